/* What hotloop.c and chains.c share: what a shared object exports, how a slice is timed, and the probe. */

#ifndef AES_EXPORTER_HOTLOOP_H
#define AES_EXPORTER_HOTLOOP_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <stdint.h>
#include <time.h>

#if defined(_WIN32)
#error "aes-exporter measures on POSIX systems only"
#endif

#define EXPORT __attribute__((visibility("default")))

/* Wall time and this thread's CPU time, in nanoseconds; -1 where the clock cannot be read. */
struct stopwatch {
    int64_t cpu;
    int64_t wall;
};

static inline int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;

    if (clock_gettime(clock, &now) != 0)
        return -1;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The CPU clock is read outside the wall clock, since reading it is a system call. */
static inline struct stopwatch start_stopwatch(void)
{
    struct stopwatch watch;

    watch.cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    watch.wall = nanoseconds(CLOCK_MONOTONIC);
    return watch;
}

/* Writes elapsed wall time to elapsed[0] and CPU time to elapsed[1]. Returns 0, or -1 if a clock cannot be read. */
static inline int stop_stopwatch(const struct stopwatch *watch, int64_t elapsed[2])
{
    int64_t wall = nanoseconds(CLOCK_MONOTONIC);
    int64_t cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);

    if (watch->wall < 0 || watch->cpu < 0 || wall < 0 || cpu < 0)
        return -1;
    elapsed[0] = wall - watch->wall;
    elapsed[1] = cpu - watch->cpu;
    return 0;
}

/* Returns how many nanoseconds so many iterations of the issue chain take now, 0 for none or where there is no such chain. */
EXPORT int64_t hotloop_probe(int64_t iterations);

#endif
