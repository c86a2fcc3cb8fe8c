/* The one compiled piece of aes-exporter: a tight loop around a library's update function.
 *
 * A plain shared object without the Python API, called through ctypes, so that one build serves every Python. It links
 * against nothing but the C library: the caller passes the address of EVP_EncryptUpdate or EVP_DecryptUpdate of
 * whatever libcrypto is measured. Both clocks are read here, because a call through ctypes costs about a microsecond.
 *
 * Beside it stand the chains in chains.c, which measure the CPU itself and no library.
 */

#include "hotloop.h"

typedef int (*update_function)(void *context, unsigned char *out, int *written, const unsigned char *in, int length);

/* Returns how many of `calls` failed: an update must answer 1 and write all that it was given. */
static int64_t repeat(update_function update, void *context, unsigned char *buffer, int length, int64_t calls)
{
    int64_t failed = 0;
    int written = 0;

    for (int64_t call = 0; call < calls; call++)
        failed += update(context, buffer, &written, buffer, length) != 1 || written != length;
    return failed;
}

/* One slice: `warm_up` untimed calls, then `calls` timed ones, in place on `buffer`.
 *
 * The initialisation vector chains from call to call, as EVP does by itself; calls with a fixed vector could overlap.
 * elapsed[0] is wall time and elapsed[1] this thread's CPU time, both in nanoseconds; the CPU clock is read outside the
 * wall clock, since reading it is a system call. Returns the number of failed calls, -1 if a clock cannot be read.
 */
EXPORT int64_t hotloop_slice(update_function update, void *context, unsigned char *buffer, int length, int64_t warm_up,
                             int64_t calls, int64_t elapsed[2])
{
    int64_t failed = repeat(update, context, buffer, length, warm_up);
    struct stopwatch watch = start_stopwatch();

    failed += repeat(update, context, buffer, length, calls);
    return stop_stopwatch(&watch, elapsed) == 0 ? failed : -1;
}
