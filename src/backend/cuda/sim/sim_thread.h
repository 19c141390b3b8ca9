/* What a kernel sees of the thread and the block it runs in, and what it calls to meet others. */
#ifndef LS_BACKEND_CUDA_SIM_THREAD_H
#define LS_BACKEND_CUDA_SIM_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/sim/sim_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sim_index {
    unsigned x, y, z;
} sim_index;

typedef struct sim_here {
    sim_index thread;           /* threadIdx */
    sim_index block;            /* blockIdx */
    sim_index block_size, grid; /* blockDim, gridDim */
    void *dynamic_shared;       /* the block's */
} sim_here;

/* Of the OS thread: the simulated thread that it runs now; NULL = none. It cannot be initial-exec:
 * that would ask the loader to keep all __shared__ variables of all kernels in every thread. */
extern __thread sim_here *ls__sim_here __attribute__((visibility("hidden")));

typedef enum sim_warp_op {
    SIM_WARP_SYNC,    /* orders memory; no value */
    SIM_WARP_SHUFFLE, /* the value of another lane */
    SIM_WARP_BALLOT   /* one bit for each lane whose value is not 0 */
} sim_warp_op;

void ls__sim_barrier(void);
/* Waits for the lanes of mask; then a shuffle returns the value that lane `source` of the warp gave.
 * From a lane that does not take part, or is outside [0, 32): bytes of ones. */
uint64_t ls__sim_warp(sim_warp_op op, unsigned mask, uint64_t value, int source);
int ls__sim_lane(void);

/* --- launches --- */
typedef struct sim_argument {
    const void *at; /* a parameter's value */
    size_t nbytes;
    bool is_pointer; /* else a struct, in which pointers are looked for */
} sim_argument;

typedef struct sim_launch {
    const char *name;
    const void *kernel; /* its address, by which attributes are found */
    void (*invoke)(const void *bound);
    sim_index grid, block;
    size_t shared_bytes;
} sim_launch;

/* bound: the kernel and the values of its parameters, which are copied; arguments point into it.
 * Errors are found by cudaGetLastError. */
void ls__sim_launch(const sim_launch *launch, const void *bound, size_t nbytes,
                    const sim_argument *arguments, int narguments, cudaStream_t stream);
cudaError_t ls__sim_allow_shared(const void *kernel, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
