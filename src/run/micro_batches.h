/* Into how many micro-batches a batch is cut: decided at the first start, kept while it can be. */
#ifndef LS_RUN_MICRO_BATCHES_H
#define LS_RUN_MICRO_BATCHES_H

#include <lockstep/base.h>

typedef struct ls__micro_batches_request {
    int requested;     /* by a flag or the program; 0 = not named */
    const char *label; /* "--micro-batches 2", for messages */
    int recorded;      /* by the checkpoint; 0 = a first start */
    int world_size;
} ls__micro_batches_request;

/* *changed: the bits differ from those of a run that went on with the recorded number. A first
 * start with fewer micro-batches than devices is LS_ERR_CONFIG and says what to type. */
ls_status ls__micro_batches_choose(const ls__micro_batches_request *request, int *out,
                                   bool *changed);
/* "1, 2 and 4" : the device counts up to S that divide it; the others give the same bits but uneven
 * shares. */
void ls__micro_batches_even(int micro_batches, char out[128]);

#endif
