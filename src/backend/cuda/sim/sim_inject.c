/* Failures on demand: LOCKSTEP_SIM_FAIL=malloc:N, async:N or collective:N, for tests of what a failure leads to. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sim/sim_api.h"
#include "backend/cuda/sim/sim_internal.h"

/* Whether this is the N-th call that asks, of those the variable speaks of. */
static bool fails_now(const char *what, atomic_long *calls)
{
    const char *text = getenv("LOCKSTEP_SIM_FAIL");
    size_t n = strlen(what);
    if (!text || strncmp(text, what, n) != 0 || text[n] != ':') return false;
    return atomic_fetch_add_explicit(calls, 1, memory_order_relaxed) + 1 ==
           strtol(text + n + 1, NULL, 10);
}

bool ls__sim_malloc_fails(void)
{
    static atomic_long calls;
    return fails_now("malloc", &calls);
}

bool ls__sim_launch_fails(void)
{
    static atomic_long calls;
    return fails_now("async", &calls);
}

bool ls__sim_collective_fails(void)
{
    static atomic_long calls;
    return fails_now("collective", &calls);
}
