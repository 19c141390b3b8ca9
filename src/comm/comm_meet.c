/* Meetings: how a call begins on all ranks, and how its ranks are found to agree.
 *
 * Number, description and a small payload of a call share one cache line, so that an 8-byte
 * all-reduce costs each rank one line to write and one per peer to read. */
#include "comm/net_internal.h"

#include <string.h>

#include "base/check.h"

enum { OP_BITS = 5, TYPE_BITS = 3, REDUCE_BITS = 2, PEER_BITS = 12 };

uint64_t ls__call_what(const ls__call *call)
{
    uint64_t what = (uint64_t)call->count;
    what = what << PEER_BITS | (uint64_t)call->peer;
    what = what << REDUCE_BITS | (uint64_t)call->reduce;
    what = what << TYPE_BITS | (uint64_t)call->type;
    return what << OP_BITS | (uint64_t)call->op;
}

static uint64_t cut(uint64_t *what, int bits)
{
    uint64_t field = *what & ((1u << bits) - 1);
    *what >>= bits;
    return field;
}

ls__call ls__call_unpack(uint64_t what)
{
    ls__call call = { 0 };
    call.op = (ls__op)cut(&what, OP_BITS);
    call.type = (ls_dtype)cut(&what, TYPE_BITS);
    call.reduce = (ls_reduce)cut(&what, REDUCE_BITS);
    call.peer = (int)cut(&what, PEER_BITS);
    call.count = (int64_t)what;
    return call;
}

void ls__comm_note(ls_comm *comm, const ls__call *call, uint64_t seq)
{
    struct ls__record_line *record = &comm->lane->record;
    atomic_store_explicit(&record->what, ls__call_what(call), memory_order_relaxed);
    atomic_store_explicit(&record->site, (uintptr_t)call->site, memory_order_relaxed);
    atomic_store_explicit(&record->inside, 1, memory_order_relaxed);
    atomic_store_explicit(&record->seq, seq, memory_order_release);
}

void ls__comm_leave(ls_comm *comm)
{
    if (comm->lane) atomic_store_explicit(&comm->lane->record.inside, 0, memory_order_relaxed);
}

void ls__comm_enter(ls_comm *comm, const ls__call *call, const void *inlined, size_t nbytes)
{
    uint64_t seq = ++comm->seq;
    comm->entered = true;
    if (!comm->lane) return;
    ls__comm_note(comm, call, seq);
    ls__head *head = &comm->lane->heads[seq & 1];
    head->what = ls__call_what(call);
    memcpy(head->inlined, inlined, nbytes);
    ls__comm_publish(comm, &head->seq, seq);
}

ls_status ls__comm_meet(ls_comm *comm)
{
    comm->entered = false;
    if (!comm->lane) return LS_OK;
    uint64_t seq = comm->seq;
    uint64_t what = comm->lane->heads[seq & 1].what;
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank) continue;
        const ls__head *head = &comm->lanes[r].heads[seq & 1];
        LS_TRY(ls__comm_wait(comm, r, &head->seq, seq));
        if (head->what != what) return ls__comm_break(comm, ls__comm_report_mismatch(comm));
    }
    return LS_OK;
}

ls_status ls__comm_gather_inlined(ls_comm *comm, const ls__call *call, const void *inlined,
                                  size_t nbytes)
{
    ls__comm_enter(comm, call, inlined, nbytes);
    return ls__comm_meet(comm);
}

void ls__comm_step(ls_comm *comm)
{
    ls__comm_publish(comm, &comm->lane->progress, ++comm->progress);
}

ls_status ls__comm_await_step(ls_comm *comm, uint64_t progress)
{
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) LS_TRY(ls__comm_wait(comm, r, &comm->lanes[r].progress, progress));
    return LS_OK;
}

ls_status ls__comm_collect(ls_comm *comm, const ls__call *call, const void *mine, size_t nbytes)
{
    if (comm->nodes) return ls__net_gather(comm->nodes, call, mine, nbytes);
    return ls__comm_gather_inlined(comm, call, mine, nbytes);
}

const void *ls__comm_collected(const ls_comm *comm, int r, size_t nbytes)
{
    if (comm->nodes) return comm->nodes->shared.base + (size_t)r * nbytes;
    return ls__comm_inlined(comm, r);
}
