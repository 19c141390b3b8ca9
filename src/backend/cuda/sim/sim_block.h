/* A block while it runs: its threads, who of them is ready, and what the others wait for. */
#ifndef LS_BACKEND_CUDA_SIM_BLOCK_H
#define LS_BACKEND_CUDA_SIM_BLOCK_H

#include "backend/cuda/sim/sim_fiber.h"
#include "backend/cuda/sim/sim_internal.h"

enum { SIM_IDENTITIES = 31 };

typedef enum sim_waits { SIM_WAITS_NOT, SIM_WAITS_BARRIER, SIM_WAITS_WARP } sim_waits;

typedef struct sim_thread {
    sim_index index;
    sim_waits waits;
    sim_fiber *fiber; /* where it stopped, while it waits or is ready */
    /* its part in an operation of its warp */
    sim_warp_op op;
    unsigned mask;
    int source;
    uint64_t value, result;
} sim_thread;

typedef struct sim_warp {
    unsigned arrived; /* lanes */
    unsigned generation;
    sim_order order[2];
} sim_warp;

struct sim_block {
    sim_here here; /* first: kernels know the block by it */
    int device;
    const sim_launch *launch;
    const void *bound;
    int nthreads;
    int started; /* threads that have begun: the first so many */
    int live;    /* threads that have not ended */
    int current; /* the one that runs */
    sim_thread threads[SIM_MAX_BLOCK];
    sim_warp warps[SIM_MAX_BLOCK / SIM_WARP];
    uint16_t ready[SIM_MAX_BLOCK]; /* a ring: who can go on */
    int ready_first, ready_count;
    int arrived;         /* at the barrier */
    unsigned generation; /* of the barrier */
    sim_fiber *home;     /* the OS thread's own stack */
    sim_fiber *running;
    sim_fiber *fibers[SIM_MAX_BLOCK + 1], *idle[SIM_MAX_BLOCK + 1];
    int nfibers, nidle;
    cudaError_t error; /* why it cannot go on */
    char trouble[256];
    void *home_identity, *identities[SIM_IDENTITIES]; /* the thread sanitizer's */
    int nidentities;
    sim_order begin, end, barrier[2];
};

/* Of the thread that runs. */
static inline sim_block *ls__sim_block_here(void)
{
    return (sim_block *)ls__sim_here;
}

/* The current thread waits until somebody calls ready for it. */
void ls__sim_block_wait(sim_block *block, sim_waits waits);
void ls__sim_block_ready(sim_block *block, int thread);
/* The block cannot go on. Does not return. */
void ls__sim_block_give_up(sim_block *block, cudaError_t error, const char *text)
    __attribute__((noreturn));

#endif
