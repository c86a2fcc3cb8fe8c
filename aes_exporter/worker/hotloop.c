/* The one compiled piece of aes-exporter: a tight loop around a library's update function.
 *
 * A plain shared object without the Python API, called through ctypes, so that one build serves every Python. It links
 * against nothing but the C library: the caller passes the address of EVP_EncryptUpdate or EVP_DecryptUpdate of
 * whatever libcrypto is measured. Both clocks are read here, because a call through ctypes costs about a microsecond.
 */

#define _POSIX_C_SOURCE 200809L

#include <stdint.h>
#include <time.h>

#if defined(_WIN32)
#error "aes-exporter measures on POSIX systems only"
#endif

#define EXPORT __attribute__((visibility("default")))

typedef int (*update_function)(void *context, unsigned char *out, int *written, const unsigned char *in, int length);

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;

    if (clock_gettime(clock, &now) != 0)
        return -1;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

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
    int64_t cpu_start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    int64_t start = nanoseconds(CLOCK_MONOTONIC);

    failed += repeat(update, context, buffer, length, calls);

    int64_t end = nanoseconds(CLOCK_MONOTONIC);
    int64_t cpu_end = nanoseconds(CLOCK_THREAD_CPUTIME_ID);

    if (cpu_start < 0 || start < 0 || end < 0 || cpu_end < 0)
        return -1;
    elapsed[0] = end - start;
    elapsed[1] = cpu_end - cpu_start;
    return failed;
}
