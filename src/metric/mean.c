/* The weighted mean, in fp64: what losses and reports are. Values are added in the order of their
 * elements, states in the order of their chunks, so the bits depend on neither ranks nor threads.
 * Workload: a few hundred values per micro-batch. */
#include <math.h>
#include <stddef.h>

#include "base/check.h"
#include "metric/metric_internal.h"

static double value_at(const ls_array *array, int64_t i)
{
    switch (array->type) {
    case LS_DTYPE_F32:
        return (double)((const float *)array->data)[i];
    case LS_DTYPE_F64:
        return ((const double *)array->data)[i];
    case LS_DTYPE_U8:
        return ((const uint8_t *)array->data)[i];
    case LS_DTYPE_I32:
        return ((const int32_t *)array->data)[i];
    case LS_DTYPE_I64:
        return (double)((const int64_t *)array->data)[i];
    case LS_DTYPE_U64:
        return (double)((const uint64_t *)array->data)[i];
    case LS_DTYPE_BF16: {
        union {
            uint32_t bits;
            float value;
        } x = { .bits = (uint32_t)((const uint16_t *)array->data)[i] << 16 };
        return (double)x.value;
    }
    }
    return NAN;
}

/* A value of weight 0 (an ignored target) does not count, not even when it is no number. */
static void mean_update(void *state, const ls_array *values, int nvalues)
{
    ls__mean_state *mean = state;
    int64_t count = ls_array_count(&values[0]);
    LS_ASSERT(nvalues < 2 || ls_array_count(&values[1]) == count);
    double sum = 0, weight = 0;
    for (int64_t i = 0; i < count; i++) {
        double w = nvalues < 2 ? 1 : value_at(&values[1], i);
        if (w == 0) continue;
        sum += w * value_at(&values[0], i);
        weight += w;
    }
    mean->sum += sum;
    mean->weight += weight;
}

static void mean_merge(void *state, const void *next)
{
    ls__mean_state *mean = state;
    const ls__mean_state *other = next;
    mean->sum += other->sum;
    mean->weight += other->weight;
}

static double mean_result(const void *state)
{
    const ls__mean_state *mean = state;
    return mean->weight != 0 ? mean->sum / mean->weight : NAN;
}

const ls_metric ls__mean_metric = {
    .name = "mean",
    .state_size = sizeof(ls__mean_state),
    .better = LS_MODE_AUTO,
    .update = mean_update,
    .merge = mean_merge,
    .result = mean_result,
};
