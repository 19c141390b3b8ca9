/* Labels and tokens: integers of three types, and what happens to an impossible one. */
#ifndef LS_BACKEND_CPU_INTEGERS_H
#define LS_BACKEND_CPU_INTEGERS_H

#include "backend/cpu/cpu.h"

static inline int64_t ls__cpu_integer(ls_dtype type, const void *values, int64_t i)
{
    switch (type) {
    case LS_DTYPE_U8:
        return ((const uint8_t *)values)[i];
    case LS_DTYPE_I64:
        return ((const int64_t *)values)[i];
    default:
        return ((const int32_t *)values)[i];
    }
}

/* The run will fail: value of this sample (of the micro-batch) is not in [0, limit). The first
 * sample's is kept. */
static inline void ls__cpu_note(const cpu_call *call, const char *what, int64_t sample,
                                int64_t value, int64_t limit)
{
    cpu_failure *f = call->failure;
    if (f->sample >= 0 && f->sample <= sample) return;
    f->what = what;
    f->sample = sample;
    f->value = value;
    f->limit = limit;
}

#endif
