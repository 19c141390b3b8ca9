/* Clocks: monotonic for durations and limits, wall time for what people read. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

int64_t ls__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double ls__now(void)
{
    return (double)ls__now_ns() * 1e-9;
}

double ls__wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void ls__sleep_ms(int ms)
{
    if (ms <= 0) return;
    struct timespec left = { ms / 1000, (long)(ms % 1000) * 1000000 };
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

void ls__wall_text(double wall, char out[32])
{
    time_t seconds = (time_t)wall;
    struct tm utc;
    if (!gmtime_r(&seconds, &utc) || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(out, 32, "?");
}
