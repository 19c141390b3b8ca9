/* Launchers of what a linear layer needs beside its products. Pointers are on the device. */
#ifndef LS_BACKEND_CUDA_KERNEL_LINEAR_H
#define LS_BACKEND_CUDA_KERNEL_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sum (columns) of g (rows,columns) over its rows, in an order that depends on the shape only. */
size_t ls__cuda_column_sums_workspace(int64_t rows, int64_t columns);
void ls__cuda_launch_column_sums(cudaStream_t stream, int64_t rows, int64_t columns, const void *g,
                                 bool g_half, float *sum, float *workspace);

#ifdef __cplusplus
}
#endif
#endif
