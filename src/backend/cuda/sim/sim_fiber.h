/* Stacks that an OS thread switches between by itself: the threads of a simulated block. */
#ifndef LS_BACKEND_CUDA_SIM_FIBER_H
#define LS_BACKEND_CUDA_SIM_FIBER_H

#include <stdbool.h>

typedef struct sim_fiber sim_fiber;

/* NULL = no memory. entry never returns: it switches away for good. */
sim_fiber *ls__sim_fiber_create(void (*entry)(void *context), void *context);
/* The OS thread's own stack, as something to come back to; destroyed as the others. */
sim_fiber *ls__sim_fiber_of_thread(void);
/* Not the one that runs; whatever is still on its stack is dropped. */
void ls__sim_fiber_destroy(sim_fiber *f);
/* from: the one that runs. Returns when somebody switches to it again. */
void ls__sim_fiber_switch(sim_fiber *from, sim_fiber *to);

#endif
