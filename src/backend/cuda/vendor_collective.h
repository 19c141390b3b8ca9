/* What travels between the ranks' devices: the seam behind which NCCL stands, and shared memory of
 * the simulation's processes. Exchanges move bytes only, so that every sum is ours, in the tree;
 * reduce_scatter adds in an order of the library's own. */
#ifndef LS_BACKEND_CUDA_VENDOR_COLLECTIVE_H
#define LS_BACKEND_CUDA_VENDOR_COLLECTIVE_H

#include <stdbool.h>

#include <lockstep/comm.h>

#include "backend/cuda/runtime.h"
#include "comm/link.h"

typedef struct cuda_collective cuda_collective;

/* What one rank sends another in an exchange, or receives from it; the two sizes are the same. */
typedef struct cuda_transfer {
    int peer;
    void *data; /* on the device */
    size_t nbytes;
} cuda_transfer;

/* The same on every rank but for the pointers, which are on the device. */
typedef struct cuda_span {
    const float *from;
    float *to;
    size_t count;
} cuda_span;

typedef struct cuda_collective_options {
    ls_comm *comm; /* borrowed: by it the ranks find each other */
    int device;
    size_t most_bytes; /* of what a rank sends in one call */
    int timeout_ms;    /* -1 = none */
    const char *root;  /* host name or address at which rank 0's machine is reached; NULL = there is
                          only one machine */
    ls__link_store store; /* of all ranks, where they are on several machines; it outlives this */
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
/* [all] from: (size, count) of each rank; to: (count) the sums of the ranks' parts for this one. The
 * spans are one call. */
ls_status ls__vendor_collective_reduce_scatter(cuda_collective *c, cudaStream_t stream,
                                               const char *what, const cuda_span *spans, int n);
/* [all] from: (count); to: (size, count). from may be this rank's place in to. */
ls_status ls__vendor_collective_all_gather(cuda_collective *c, cudaStream_t stream,
                                           const char *what, const cuda_span *spans, int n);
/* While the host waits for a stream: whether exchanges can still come to an end. The failure names
 * the rank; behind it they have been aborted, everywhere. */
ls_status ls__vendor_collective_check(cuda_collective *c);
/* Ends what is in flight, here and on the other ranks, whose waits fail in these words. */
void ls__vendor_collective_abort(cuda_collective *c, const char *why);
/* [all] The same answer on every rank; what is missing is told once. */
bool ls__vendor_collective_available(ls_comm *comm, int device);

/* Device memory of the kind that it likes best for what travels; *out NULL on failure. */
cudaError_t ls__vendor_collective_allocate(size_t nbytes, void **out);
void ls__vendor_collective_free(void *p);
/* Says that this memory is what travels, so that it may go without a copy in between. It stays
 * allocated until destroy. Where the library cannot, nothing changes. */
ls_status ls__vendor_collective_register(cuda_collective *c, void *p, size_t nbytes);

#endif
