/* What changes from run to run, in device memory; read by kernels and by the executor's copies. */
#ifndef LS_BACKEND_CUDA_VALUES_H
#define LS_BACKEND_CUDA_VALUES_H

#include <stdint.h>

typedef struct cuda_values {
    uint64_t seed;
    int64_t step;  /* of dropout's key */
    int64_t first; /* position of the micro-batch's first sample in the global batch */
    double grad_seed;
    /* The first sample of the micro-batch with an impossible label or token, as
     *     sample << 1 | (label ? 1 : 0)
     * by atomicMin; all ones = none. The executor looks the value up in the field itself. */
    unsigned long long failure;
} cuda_values;

#endif
