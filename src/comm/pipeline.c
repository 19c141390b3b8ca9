/* Collectives over buffers that peers cannot read: chunks through a ring of slots in the arena.
 *
 * In round k a rank copies chunk k into its slot, then does the work on the chunks before, which
 * all ranks have copied by now: an all-reduce sums its part of chunk k-1 (the owner's own part is
 * never copied in) and fetches the other parts of chunk k-2; the others fetch from chunk k-1. One
 * step per round; the copy between a step and the wait for it hides its latency. Four slots
 * suffice: chunk k takes the slot of chunk k-4, which everybody has left in round k-2. */
#include "comm/collective.h"

#include <string.h>

#include "base/check.h"

typedef struct pipeline {
    ls_comm *comm;
    const ls__call *call;
    uint64_t seq;
    size_t element;
    int64_t chunk, nchunks; /* elements of `count` in a chunk */
} pipeline;

static pipeline plan(ls_comm *comm, const ls__call *call, uint64_t seq)
{
    pipeline p = { .comm = comm, .call = call, .seq = seq };
    p.element = ls_dtype_size(call->type);
    p.chunk = (int64_t)(comm->arena / p.element);
    if (call->op == LS__OP_REDUCE_SCATTER) p.chunk /= comm->size;
    if (p.chunk < 1) p.chunk = 1;
    p.nchunks = (call->count + p.chunk - 1) / p.chunk;
    return p;
}

static unsigned char *slot(const pipeline *p, int r, int64_t k)
{
    return ls__slot(p->comm, r, p->seq, k);
}

static int64_t chunk_count(const pipeline *p, int64_t k)
{
    int64_t left = p->call->count - k * p->chunk;
    return left < p->chunk ? left : p->chunk;
}

/* Bytes from the start of a (count) array to chunk k. */
static size_t chunk_at(const pipeline *p, int64_t k)
{
    return (size_t)(k * p->chunk) * p->element;
}

static ls__part chunk_part(const pipeline *p, int64_t k, int r)
{
    return ls__part_of(chunk_count(p, k), p->element, r, p->comm->size);
}

static void copy_in(const pipeline *p, int64_t k)
{
    const ls__call *call = p->call;
    ls_comm *comm = p->comm;
    unsigned char *to = slot(p, comm->rank, k);
    const unsigned char *from = (const unsigned char *)call->in + chunk_at(p, k);
    size_t nbytes = (size_t)chunk_count(p, k) * p->element;
    switch (call->op) {
    case LS__OP_ALL_REDUCE: {
        ls__part own = chunk_part(p, k, comm->rank);
        size_t begin = (size_t)own.begin * p->element, end = begin + (size_t)own.count * p->element;
        memcpy(to, from, begin);
        memcpy(to + end, from + end, nbytes - end);
        break;
    }
    case LS__OP_REDUCE_SCATTER:
        for (int r = 0; r < comm->size; r++)
            if (r != comm->rank)
                memcpy(to + (size_t)(r * p->chunk) * p->element,
                       from + (size_t)(r * call->count) * p->element, nbytes);
        break;
    case LS__OP_BROADCAST:
        if (call->peer == comm->rank) memcpy(to, from, nbytes);
        break;
    default:
        memcpy(to, from, nbytes);
        break;
    }
}

/* All-reduce: this rank's part of chunk k, to the output and to the slot for the others. */
static void reduce_part(const pipeline *p, int64_t k)
{
    ls_comm *comm = p->comm;
    const ls__call *call = p->call;
    unsigned char *own = slot(p, comm->rank, k);
    unsigned char *out = (unsigned char *)call->out + chunk_at(p, k);
    for (int r = 0; r < comm->size; r++) comm->sources[r] = slot(p, r, k);
    comm->sources[comm->rank] = (const unsigned char *)call->in + chunk_at(p, k);
    ls__part part = chunk_part(p, k, comm->rank);
    int64_t block = LS__REDUCE_BLOCK / (int64_t)p->element;
    for (int64_t at = part.begin; at < part.begin + part.count; at += block) {
        int64_t left = part.begin + part.count - at, n = left < block ? left : block;
        ls__reduce(comm->kernels, comm->tree, call->type, call->reduce, out, comm->sources, at, n);
        memcpy(own + (size_t)at * p->element, out + (size_t)at * p->element,
               (size_t)n * p->element);
    }
}

static void gather_parts(const pipeline *p, int64_t k)
{
    unsigned char *out = (unsigned char *)p->call->out + chunk_at(p, k);
    for (int r = 0; r < p->comm->size; r++) {
        if (r == p->comm->rank) continue;
        ls__part part = chunk_part(p, k, r);
        size_t begin = (size_t)part.begin * p->element;
        memcpy(out + begin, slot(p, r, k) + begin, (size_t)part.count * p->element);
    }
}

/* Reduce-scatter: chunk k of the sum of everybody's part for this rank. */
static void reduce_chunk(const pipeline *p, int64_t k)
{
    ls_comm *comm = p->comm;
    const ls__call *call = p->call;
    size_t mine = (size_t)(comm->rank * p->chunk) * p->element;
    for (int r = 0; r < comm->size; r++) comm->sources[r] = slot(p, r, k) + mine;
    comm->sources[comm->rank] = (const unsigned char *)call->in +
                                (size_t)(comm->rank * call->count) * p->element + chunk_at(p, k);
    ls__reduce(comm->kernels, comm->tree, call->type, call->reduce,
               (unsigned char *)call->out + chunk_at(p, k), comm->sources, 0, chunk_count(p, k));
}

/* The last thing that happens to chunk k. */
static void fetch(const pipeline *p, int64_t k)
{
    const ls__call *call = p->call;
    int own = p->comm->rank;
    unsigned char *out = (unsigned char *)call->out + chunk_at(p, k);
    size_t nbytes = (size_t)chunk_count(p, k) * p->element;
    size_t whole = (size_t)call->count * p->element;
    switch (call->op) {
    case LS__OP_ALL_REDUCE:
        gather_parts(p, k);
        break;
    case LS__OP_REDUCE_SCATTER:
        reduce_chunk(p, k);
        break;
    case LS__OP_BROADCAST:
        if (call->peer != own) memcpy(out, slot(p, call->peer, k), nbytes);
        break;
    default:
        for (int r = 0; r < p->comm->size; r++)
            if (r != own) memcpy(out + (size_t)r * whole, slot(p, r, k), nbytes);
        break;
    }
}

void ls__pipeline_prime(ls_comm *comm, const ls__call *call, uint64_t seq)
{
    pipeline p = plan(comm, call, seq);
    copy_in(&p, 0);
}

/* The part of an all-gather that needs nobody. */
static void place_own(const pipeline *p)
{
    const ls__call *call = p->call;
    size_t whole = (size_t)call->count * p->element;
    unsigned char *own = (unsigned char *)call->out + (size_t)p->comm->rank * whole;
    if (call->op == LS__OP_ALL_GATHER && own != call->in) memcpy(own, call->in, whole);
}

ls_status ls__pipeline_run(ls_comm *comm, const ls__call *call)
{
    pipeline p = plan(comm, call, comm->seq);
    place_own(&p);
    int depth = call->op == LS__OP_ALL_REDUCE ? 2 : 1;
    uint64_t base = comm->progress;
    for (int64_t k = 1; k < p.nchunks + depth; k++) {
        if (k < p.nchunks) copy_in(&p, k);
        LS_TRY(ls__comm_await_step(comm, base + (uint64_t)(k - 1)));
        if (depth == 2 && k - 1 < p.nchunks) reduce_part(&p, k - 1);
        if (k >= depth) fetch(&p, k - depth);
        ls__comm_step(comm);
    }
    return LS_OK;
}
