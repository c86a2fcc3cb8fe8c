/* The one compiled piece of aes-exporter: a tight loop around a library's update function.
 *
 * A plain shared object without the Python API, called through ctypes, so that one build serves every Python. It links
 * against nothing but the C library: the caller passes the address of EVP_EncryptUpdate or EVP_DecryptUpdate of
 * whatever libcrypto is measured. Both clocks are read here, because a call through ctypes costs about a microsecond.
 *
 * Beside it stand the probe and the chains in chains.c, which measure the CPU itself and no library.
 */

#include "hotloop.h"

typedef int (*update_function)(void *context, unsigned char *out, int *written, const unsigned char *in, int length);

#define PAGE 4096
#define BUFFER_STEP (13 * 64) /* odd numbers of cache lines, so that all lines of a page are visited */
#define STACK_STEP (3 * 64)

/* Returns how many of `calls` failed: an update must answer 1 and write all that it was given.
 *
 * `placement` moves the buffer within a page, and the stack that the library's functions find. Where these lie against each
 * other and the context would be chance otherwise, and some placements cost up to 10 %: a load waits for an earlier store
 * whose address has the same low twelve bits.
 */
static __attribute__((noinline)) int64_t repeat(update_function update, void *context, unsigned char *page, int length,
                                                int64_t placement, int64_t calls)
{
    volatile unsigned char *deeper = __builtin_alloca((size_t)(placement * STACK_STEP % PAGE) + 1);
    unsigned char *buffer = page + placement * BUFFER_STEP % PAGE;
    int64_t failed = 0;
    int written = 0;

    *deeper = 0;
    for (int64_t call = 0; call < calls; call++)
        failed += update(context, buffer, &written, buffer, length) != 1 || written != length;
    return failed;
}

/* One slice: `warm_up` untimed calls, then `calls` timed ones in `parts` parts, in place below `page`.
 *
 * `page` has room for a page and `length` bytes; each part has the next placement, from `placement` on.
 * The initialisation vector chains from call to call, as EVP does by itself; calls with a fixed vector could overlap.
 * Around the parts the core is probed with `probe` iterations. All of this takes elapsed[0] of wall time and elapsed[1] of
 * this thread's CPU time, the CPU clock being read outside the wall clock, since reading it is a system call; `timings` has
 * room for a probe, a part, a probe, ..., the last part, a probe. All are nanoseconds. Returns the number of failed calls,
 * -1 if a clock cannot be read.
 */
EXPORT int64_t hotloop_slice(update_function update, void *context, unsigned char *page, int length, int64_t placement,
                             int64_t warm_up, int64_t calls, int64_t parts, int64_t probe, int64_t elapsed[2],
                             int64_t *timings)
{
    int64_t failed = repeat(update, context, page, length, placement, warm_up);
    struct stopwatch watch = start_stopwatch();

    *timings++ = hotloop_probe(probe);
    for (int64_t part = 0; part < parts; part++) {
        int64_t share = (calls + parts - 1 - part) / parts; /* the first ones get what is left over */
        int64_t start = nanoseconds(CLOCK_MONOTONIC);

        failed += repeat(update, context, page, length, placement + part, share);

        int64_t taken = nanoseconds(CLOCK_MONOTONIC) - start;

        *timings++ = taken > 0 ? taken : 1; /* some clocks are coarse */
        *timings++ = hotloop_probe(probe);
    }
    return stop_stopwatch(&watch, elapsed) == 0 ? failed : -1;
}
