/* Bytes between the ranks' devices: the seam behind which NCCL stands, and shared memory of the
 * simulation's processes. Bytes only: every sum is ours, in the tree. */
#ifndef LS_BACKEND_CUDA_VENDOR_COLLECTIVE_H
#define LS_BACKEND_CUDA_VENDOR_COLLECTIVE_H

#include <stdbool.h>

#include <lockstep/comm.h>

#include "backend/cuda/runtime.h"

typedef struct cuda_collective cuda_collective;

/* What one rank sends another in an exchange, or receives from it; the two sizes are the same. */
typedef struct cuda_transfer {
    int peer;
    void *data; /* on the device */
    size_t nbytes;
} cuda_transfer;

typedef struct cuda_collective_options {
    ls_comm *comm; /* borrowed: by it the ranks find each other */
    int device;
    size_t most_bytes; /* of what a rank sends in one exchange */
    int timeout_ms;    /* -1 = none */
} cuda_collective_options;

/* [all] Fails on every rank or on none. */
ls_status ls__vendor_collective_create(const cuda_collective_options *options,
                                       cuda_collective **out);
/* [all] Behind a failure: alone. */
void ls__vendor_collective_destroy(cuda_collective *c);

/* [all] Work on the stream: what is sent to a peer arrives in the order of its list. what: for
 * messages, "gradients"; a constant. */
ls_status ls__vendor_collective_exchange(cuda_collective *c, cudaStream_t stream, const char *what,
                                         const cuda_transfer *sends, int nsends,
                                         const cuda_transfer *receives, int nreceives);
/* While the host waits for a stream: whether exchanges can still come to an end. The failure names
 * the rank; behind it they have been aborted, everywhere. */
ls_status ls__vendor_collective_check(cuda_collective *c);
/* Ends what is in flight, here and on the other ranks, whose waits fail in these words. */
void ls__vendor_collective_abort(cuda_collective *c, const char *why);
/* [all] The same answer on every rank; what is missing is told once. */
bool ls__vendor_collective_available(ls_comm *comm, int device);

#endif
