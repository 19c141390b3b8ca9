/* Send and receive between two ranks: a rendezvous, then chunks through two slots of the sender.
 *
 * Either side first announces which message it is at and what it expects, so that unequal counts
 * are found at once and not by running out of bytes. A sender has one pair of slots for all
 * receivers: it returns only when the bytes have moved. From communicator memory they move in one
 * copy. */
#include <string.h>

#include "base/check.h"
#include "comm/net_internal.h"
#include "comm/work.h"

typedef struct transfer {
    ls_comm *comm;
    const ls__call *call;
    int peer;
    ls__pair *pair;
    size_t nbytes;
    int64_t nchunks;
    uint64_t base; /* chunks of earlier messages */
} transfer;

static size_t chunk_nbytes(const transfer *t, int64_t k)
{
    size_t left = t->nbytes - (size_t)k * t->comm->arena;
    return left < t->comm->arena ? left : t->comm->arena;
}

static unsigned char *mail(const transfer *t, int sender, int64_t k)
{
    size_t index = (size_t)sender * 2 + (size_t)(k & 1);
    return t->comm->mail + index * t->comm->arena;
}

static ls_status send_chunks(const transfer *t)
{
    ls_comm *comm = t->comm;
    const _Atomic uint64_t *taken = &t->pair->receiver.chunks;
    for (int64_t k = 0; k < t->nchunks; k++) {
        if (k >= 2) LS_TRY(ls__comm_wait(comm, t->peer, taken, t->base + (uint64_t)k - 1));
        memcpy(mail(t, comm->rank, k), (const char *)t->call->in + (size_t)k * comm->arena,
               chunk_nbytes(t, k));
        ls__comm_publish(comm, &t->pair->sender.chunks, t->base + (uint64_t)k + 1);
    }
    return ls__comm_wait(comm, t->peer, taken, t->base + (uint64_t)t->nchunks);
}

static ls_status receive_chunks(const transfer *t)
{
    ls_comm *comm = t->comm;
    int from = t->peer;
    for (int64_t k = 0; k < t->nchunks; k++) {
        LS_TRY(ls__comm_wait(comm, from, &t->pair->sender.chunks, t->base + (uint64_t)k + 1));
        memcpy((char *)t->call->out + (size_t)k * comm->arena, mail(t, from, k),
               chunk_nbytes(t, k));
        ls__comm_publish(comm, &t->pair->receiver.chunks, t->base + (uint64_t)k + 1);
    }
    return LS_OK;
}

/* The sender's buffer is in communicator memory: one chunk, copied by the receiver. */
static ls_status move_directly(const transfer *t, const void *source)
{
    if (t->call->op == LS__OP_SEND)
        return ls__comm_wait(t->comm, t->peer, &t->pair->receiver.chunks, t->base + 1);
    memcpy(t->call->out, source, t->nbytes);
    ls__comm_publish(t->comm, &t->pair->receiver.chunks, t->base + 1);
    return LS_OK;
}

static uint64_t expected(const ls__call *call)
{
    ls__call plain = { .op = LS__OP_SEND, .type = call->type, .count = call->count };
    return ls__call_what(&plain);
}

static ls_status perform(ls_comm *comm, const ls__call *call)
{
    bool sends = call->op == LS__OP_SEND;
    int peer = ls__comm_index(comm, call->peer);
    int from = sends ? comm->rank : peer, to = sends ? peer : comm->rank;
    ls__pair *pair = &comm->pairs[from * comm->size + to];
    ls__pair_end *own = sends ? &pair->sender : &pair->receiver;
    ls__pair_end *other = sends ? &pair->receiver : &pair->sender;
    transfer t = { .comm = comm, .call = call, .peer = peer, .pair = pair };
    t.nbytes = (size_t)call->count * ls_dtype_size(call->type);
    t.nchunks = (int64_t)((t.nbytes + comm->arena - 1) / comm->arena);
    t.base = atomic_load_explicit(&pair->receiver.chunks, memory_order_acquire);

    uint64_t message = atomic_load_explicit(&own->seq, memory_order_relaxed) + 1;
    int parity = (int)(message & 1);
    own->calls[parity].what = expected(call);
    own->calls[parity].site = (uintptr_t)call->site;
    own->calls[parity].place = sends ? ls__comm_locate(comm, call->in, t.nbytes) : 0;
    ls__comm_publish(comm, &own->seq, message);
    LS_TRY(ls__comm_wait(comm, peer, &other->seq, message));
    uint64_t theirs = other->calls[parity].what;
    if (theirs != expected(call))
        return ls__comm_break(comm,
                              ls__comm_report_pair(comm, call, theirs, other->calls[parity].site));
    if (t.nbytes == 0) return LS_OK;
    uint64_t place = pair->sender.calls[parity].place;
    if (place != 0) return move_directly(&t, ls__comm_address(comm, place));
    return sends ? send_chunks(&t) : receive_chunks(&t);
}

ls_status ls__pair_run(ls_comm *comm, const ls__call *call)
{
    ls__comm_note(comm, call, comm->seq);
    ls_status status = perform(comm, call);
    if (status == LS_OK) ls__comm_leave(comm);
    return status;
}

ls_status ls__call_pair(ls_comm *comm, const ls__call *call)
{
    LS_TRY(ls__call_check(comm, call));
    if (call->peer == comm->rank)
        return ls_fail(LS_ERR_ARG, "rank %d cannot %s itself", comm->rank,
                       call->op == LS__OP_SEND ? "send to" : "receive from");
    if (comm->first) LS_TRY(ls__works_finish(comm));
    return comm->nodes ? ls__net_pair(comm->nodes, call) : ls__pair_run(comm, call);
}
