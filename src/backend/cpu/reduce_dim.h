/* Sums of contiguous floats, as reductions use them. */
#ifndef LS_BACKEND_CPU_REDUCE_DIM_H
#define LS_BACKEND_CPU_REDUCE_DIM_H

#include "backend/cpu/cpu.h"

/* Sixteen partial sums per block of a thousand, blocks in fp64. */
float ls__cpu_sum_floats(const float *x, int64_t n);

#endif
