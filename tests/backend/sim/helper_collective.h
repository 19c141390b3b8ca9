/* What every library that connects devices must do, on ranks that are threads: each with a device, a
 * stream and some memory. Both stand-ins are held to it. */
#ifndef LS_TESTS_HELPER_COLLECTIVE_H
#define LS_TESTS_HELPER_COLLECTIVE_H

#include "backend/cuda/vendor_collective.h"
#include "comm/helper_ranks.h"

enum { MEMORY = 4096 }; /* floats */

typedef struct device_rank {
    test_rank *t;
    cuda_collective *c;
    cudaStream_t stream;
    float *data; /* (MEMORY) on the device, registered */
} device_rank;

/* [all] False: the rank has failed. */
bool device_rank_begin(device_rank *d, test_rank *t, int timeout_ms);
void device_rank_end(device_rank *d);
bool device_rank_put(device_rank *d, int64_t at, const float *values, int64_t n);
bool device_rank_get(device_rank *d, int64_t at, float *values, int64_t n);
/* Waits for the stream as the backend does: the status of the check that failed, or LS_OK. */
ls_status device_rank_wait(device_rank *d);

/* A test: reduce-scatter with several spans a call, all-gather in place and not, messages of different
 * sizes in the list's order; on 2 to 4 ranks. */
void collective_values(void **state);

/* Bodies for run_ranks. */
void collective_missing(test_rank *t);  /* rank 1 does not come, and is named */
void collective_given_up(test_rank *t); /* rank 1 gives up; the others fail in its words */

#endif
