/* Comm: how ranks exchange buffers. Plain memory in, plain memory out; no tensors.
 *
 * Every function here is collective: all ranks of the communicator call it with the same count,
 * type and operation, in the same order. A rank that calls something else ends the call on all
 * ranks at once with LS_ERR_MISMATCH, one that calls nothing within the world's --timeout with
 * LS_ERR_TIMEOUT; the text names the odd rank and both call sites ("train+0x1b2e" is what addr2line
 * -e train 0x1b2e takes). A rank that is lost ends all calls with LS_ERR_PEER. After such an error only destroying is legal.
 * A communicator is used by one thread at a time. Sums are taken in one fixed order: the same bits
 * on every rank, run after run. */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include <lockstep/base.h>
#include <lockstep/world.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_reduce { LS_REDUCE_SUM, LS_REDUCE_MIN, LS_REDUCE_MAX } ls_reduce;

typedef struct ls_work ls_work; /* a collective in flight */

int ls_comm_rank(const ls_comm *comm);
int ls_comm_size(const ls_comm *comm);

/* out[i] = op over ranks of in[i]; (count) each; in == out is fine. */
LS_NODISCARD ls_status ls_comm_all_reduce(ls_comm *comm, const void *in, void *out, int64_t count,
                                          ls_dtype type, ls_reduce op);
/* in: (size * count), out: (count) = this rank's part of the reduction. */
LS_NODISCARD ls_status ls_comm_reduce_scatter(ls_comm *comm, const void *in, void *out,
                                              int64_t count, ls_dtype type, ls_reduce op);
/* in: (count), out: (size * count) in rank order; in may be out + rank * count. */
LS_NODISCARD ls_status ls_comm_all_gather(ls_comm *comm, const void *in, void *out, int64_t count,
                                          ls_dtype type);
/* data: (count), read on root, written on the others. */
LS_NODISCARD ls_status ls_comm_broadcast(ls_comm *comm, void *data, int64_t count, ls_dtype type,
                                         int root);
LS_NODISCARD ls_status ls_comm_barrier(ls_comm *comm);

/* Pairs: only the two ranks named take part. Both block until the bytes have moved. */
LS_NODISCARD ls_status ls_comm_send(ls_comm *comm, const void *data, int64_t count, ls_dtype type,
                                    int to);
LS_NODISCARD ls_status ls_comm_recv(ls_comm *comm, void *data, int64_t count, ls_dtype type,
                                    int from);

/* The same, started now and finished by ls_work_wait, which frees the work; buffers belong to the
 * call until then. Works are waited for in the order they were started. Over shared memory the CPU
 * itself moves the bytes: starting publishes this rank's input, the rest happens in the wait (or in
 * the next call, before it). */
LS_NODISCARD ls_status ls_comm_all_reduce_start(ls_comm *comm, const void *in, void *out,
                                                int64_t count, ls_dtype type, ls_reduce op,
                                                ls_work **work);
LS_NODISCARD ls_status ls_comm_reduce_scatter_start(ls_comm *comm, const void *in, void *out,
                                                    int64_t count, ls_dtype type, ls_reduce op,
                                                    ls_work **work);
LS_NODISCARD ls_status ls_comm_all_gather_start(ls_comm *comm, const void *in, void *out,
                                                int64_t count, ls_dtype type, ls_work **work);
LS_NODISCARD ls_status ls_comm_broadcast_start(ls_comm *comm, void *data, int64_t count,
                                               ls_dtype type, int root, ls_work **work);
LS_NODISCARD ls_status ls_work_wait(ls_work *work);

/* [all] Memory that is exchanged without a copy: zeroed, aligned to a page, the same nbytes on
 * every rank. Freed by ls_comm_free [all] or with the communicator. Any part of it may be an input
 * or output; the transfer is direct when all ranks' buffers of the call lie in such memory. */
LS_NODISCARD ls_status ls_comm_alloc(ls_comm *comm, size_t nbytes, void **out);
void ls_comm_free(ls_comm *comm, void *data);

#ifdef __cplusplus
}
#endif
#endif
