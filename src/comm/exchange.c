/* Exchanges: created, taken apart, asked.
 *
 * All memory is had here, each page by the rank that will write it, and the page tables for what a
 * rank will read of the others' too: a training step allocates nothing and faults on nothing. */
#include "comm/exchange_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"
#include "comm/work.h"

static ls_status check_segments(const ls__exchange_options *o)
{
    int64_t end = 0;
    for (int s = 0; s < o->nsegments; s++) {
        const ls__segment *segment = &o->segments[s];
        if (segment->offset < end || segment->count < 1 ||
            segment->count > o->count - segment->offset)
            return ls_fail(LS_ERR_ARG,
                           "segment %d at %" PRId64 " of %" PRId64
                           " elements overlaps, is empty or leaves the space of %" PRId64,
                           s, segment->offset, segment->count, o->count);
        if (s > 0 && segment->bucket < o->segments[s - 1].bucket)
            return ls_fail(LS_ERR_ARG, "bucket %d of segment %d is behind bucket %d",
                           segment->bucket, s, o->segments[s - 1].bucket);
        end = segment->offset + segment->count;
    }
    return LS_OK;
}

static ls_status check_options(const ls__exchange_options *o)
{
    if (o->nsegments < 1 || !o->segments || o->count < 1 || o->count >= INT64_C(1) << 40)
        return ls_fail(LS_ERR_ARG, "a space of %d segments and %" PRId64 " elements", o->nsegments,
                       o->count);
    if (o->micro_batches < 1 || o->micro_batches > LS__LEAVES_MAX)
        return ls_fail(LS_ERR_ARG, "%d micro-batches: 1 to %d are possible", o->micro_batches,
                       LS__LEAVES_MAX);
    if (o->on_device && (o->norms || o->halves || o->whole_segments))
        return ls_fail(LS_ERR_ARG, "an exchange for a device that computes here");
    if (!o->update && !o->on_device) return ls_fail(LS_ERR_ARG, "an exchange without an update");
    return check_segments(o);
}

/* What must be the same on every rank, as one number. */
static uint64_t fingerprint(const ls__exchange_options *o)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) return 0;
    XXH3_64bits_reset(state);
    int64_t scalars[] = { o->count,  o->nsegments,      o->micro_batches, o->norms,
                          o->halves, o->whole_segments, o->on_device };
    XXH3_64bits_update(state, scalars, sizeof scalars);
    for (int s = 0; s < o->nsegments; s++) {
        const ls__segment *segment = &o->segments[s];
        int64_t fields[] = { segment->offset, segment->count, segment->bucket, segment->in_norm };
        XXH3_64bits_update(state, fields, sizeof fields);
    }
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

static ls__call call_of(ls__op op, const ls__exchange_options *o, const void *site)
{
    return (ls__call) { .op = op, .count = o->count, .site = site };
}

/* A rank that failed before the others could know, or that describes another space, is found here.
 */
static ls_status compare(ls_comm *comm, const ls__exchange_options *o, ls_status status,
                         const void *site)
{
    struct {
        uint64_t hash;
        ls_status status;
    } mine = { .status = status }, theirs;
    ls__call call = { .op = LS__OP_ALLOC, .site = site };
    if (comm->size == 1) return status;
    if (status == LS_OK) mine.hash = fingerprint(o);
    LS_TRY(ls__comm_collect(comm, &call, &mine, sizeof mine));
    for (int r = 0; r < comm->size && status == LS_OK; r++) {
        memcpy(&theirs, ls__comm_collected(comm, r, sizeof theirs), sizeof theirs);
        if (theirs.status != LS_OK)
            status = ls_fail(theirs.status, "rank %d could not create the exchange", r);
        else if (theirs.hash != mine.hash)
            status = ls_fail(LS_ERR_MISMATCH,
                             "rank %d describes another model or number of micro-batches than "
                             "rank %d; every rank must build the same",
                             r, comm->rank);
    }
    ls__comm_leave(ls__comm_local(comm));
    return status;
}

static ls_status allocate_local(ls__exchange *x)
{
    const ls__exchange_options *o = &x->options;
    int size = x->comm->size, capacity = 0;
    x->segments = ls__alloc((size_t)o->nsegments, sizeof *x->segments);
    x->rank_nbuffers = ls__alloc((size_t)size, sizeof *x->rank_nbuffers);
    if (!x->segments || !x->rank_nbuffers) return LS_ERR_MEMORY;
    memcpy(x->segments, o->segments, (size_t)o->nsegments * sizeof *x->segments);
    x->options.segments = x->segments;
    bool stores_sum = o->norms || o->whole_segments;
    for (int r = 0; r < size; r++) {
        int n = ls__plan_buffers(o->micro_batches, r, size);
        LS_ASSERT(n <= LS__SOURCES_MAX);
        capacity += n;
        x->rank_nbuffers[r] = n == 0 && stores_sum ? 1 : n;
    }
    x->nbuffers = x->rank_nbuffers[x->comm->rank];
    ls__plan_leaves(o->micro_batches, x->comm->rank, size, &x->begin, &x->end);
    x->leaves = ls__alloc((size_t)capacity, sizeof *x->leaves);
    x->sources = ls__alloc((size_t)capacity, sizeof *x->sources);
    x->factors = ls__alloc((size_t)capacity, sizeof *x->factors);
    x->waits_ms = ls__alloc((size_t)size, sizeof *x->waits_ms);
    if (!x->leaves || !x->sources || !x->factors || !x->waits_ms) return LS_ERR_MEMORY;
    LS_TRY(ls__tree_create(capacity, &x->tree));
    return ls__plan_create(o, x->comm->rank, size, &x->plan);
}

static size_t part(size_t nbytes, int size)
{
    return ls__round_up((nbytes + (size_t)size - 1) / (size_t)size, LS__PAGE);
}

/* Fills this process's page table for the owned ranges of everybody's buffers. */
static void prefault_owned(ls__exchange *x)
{
    for (int r = 0; r < x->local->size; r++)
        for (int b = 0; b < x->rank_nbuffers[ls__comm_name(x->local, r)]; b++)
            for (int i = 0; i < x->plan.nranges; i++) {
                const ls__range *range = &x->plan.ranges[i];
                uintptr_t at = (uintptr_t)(ls__exchange_buffer(x, r, b) + range->offset);
                uintptr_t first = at / LS__PAGE * LS__PAGE;
                size_t nbytes = at - first + (size_t)range->count * sizeof(float);
                ls__shm_prefault((void *)first, ls__round_up(nbytes, LS__PAGE));
            }
}

static ls_status allocate_shared(ls__exchange *x, const void *site)
{
    ls_comm *comm = x->comm;
    const ls__exchange_options *o = &x->options;
    ls__call call = call_of(LS__OP_ALLOC, o, site);
    int size = x->local->size, most_buffers = 0;
    size_t space = (size_t)o->count * sizeof(float);
    for (int r = 0; r < size; r++) {
        int n = x->rank_nbuffers[ls__comm_name(x->local, r)];
        if (n > most_buffers) most_buffers = n;
    }
    x->buffer_stride = o->on_device ? LS__PAGE : ls__round_up(space, LS__PAGE);
    if (most_buffers == 0) most_buffers = 1; /* a node without leaves */
    size_t params = part(space, size), grads = (size_t)most_buffers * x->buffer_stride;
    LS_TRY(ls__comm_reserve(comm, params, params, &call, LS_OK, &x->params));
    if (o->halves) {
        size_t halves = part((size_t)o->count * sizeof(uint16_t), size);
        LS_TRY(ls__comm_reserve(comm, halves, halves, &call, LS_OK, &x->halves));
    }
    LS_TRY(ls__comm_reserve(comm, grads, (size_t)x->nbuffers * x->buffer_stride, &call, LS_OK,
                            &x->grads));

    size_t nnotes = (size_t)((o->micro_batches + comm->size - 1) / comm->size) + 2;
    x->board_stride = ls__round_up(sizeof(ls__board) + nnotes * sizeof(ls__note), LS__LINE);
    size_t boards = LS__LINE + 2 * x->board_stride;
    LS_TRY(ls__comm_reserve(comm, boards, 0, &call, LS_OK, &x->boards));
    if (o->norms) {
        size_t norms = part((size_t)x->plan.nblocks * sizeof(double), size);
        LS_TRY(ls__comm_reserve(comm, norms, norms, &call, LS_OK, &x->norms));
    }
    if (x->net) LS_TRY(ls__far_create(x));
    if (!x->local->lane) return LS_OK;
    ls__shm_prefault(x->params.base, x->params.stride * (size_t)size);
    if (o->halves) ls__shm_prefault(x->halves.base, x->halves.stride * (size_t)size);
    if (!o->on_device) prefault_owned(x);
    return LS_OK;
}

ls_status ls__exchange_create(ls_comm *comm, const ls__exchange_options *options,
                              ls__exchange **out)
{
    *out = NULL;
    const void *site = __builtin_return_address(0);
    if (comm->broken != LS_OK) return ls__comm_broken(comm);
    LS_TRY(ls__works_finish(comm));
    ls__exchange *x = ls__alloc(1, sizeof *x);
    ls_status status = x ? check_options(options) : LS_ERR_MEMORY;
    if (x) {
        x->comm = comm;
        x->local = ls__comm_local(comm);
        x->me = x->local->rank;
        x->net = comm->nodes;
        x->options = *options;
    }
    if (status == LS_OK) status = allocate_local(x);
    status = compare(comm, options, status, site);
    if (status == LS_OK) status = allocate_shared(x, site);
    if (status != LS_OK) {
        ls__exchange_destroy(x);
        return status;
    }
    x->waited = true;
    ls__exchange_begin_step(x);
    *out = x;
    return LS_OK;
}

void ls__exchange_destroy(ls__exchange *x)
{
    if (!x) return;
    ls__call call = call_of(LS__OP_FREE, &x->options, __builtin_return_address(0));
    ls__far_destroy(x);
    ls__comm_release(x->comm, &x->far_boards, &call);
    ls__comm_release(x->comm, &x->norms, &call);
    ls__comm_release(x->comm, &x->boards, &call);
    ls__comm_release(x->comm, &x->grads, &call);
    ls__comm_release(x->comm, &x->halves, &call);
    ls__comm_release(x->comm, &x->params, &call);
    ls__plan_free(&x->plan);
    ls__tree_destroy(x->tree);
    ls__free(x->segments);
    ls__free(x->rank_nbuffers);
    ls__free(x->leaves);
    ls__free(x->sources);
    ls__free(x->factors);
    ls__free(x->waits_ms);
    ls__free(x);
}

float *ls__exchange_params(ls__exchange *x)
{
    return (float *)(void *)x->params.base;
}

const uint16_t *ls__exchange_halves(const ls__exchange *x)
{
    return (const uint16_t *)(const void *)x->halves.base;
}

void ls__exchange_leaves(const ls__exchange *x, int *begin, int *end)
{
    *begin = x->begin;
    *end = x->end;
}

int64_t ls__exchange_gradient_bytes(const ls__exchange *x)
{
    int64_t nbytes = 0;
    for (int l = 0; l < x->local->size; l++)
        nbytes += x->rank_nbuffers[ls__comm_name(x->local, l)] * (int64_t)x->buffer_stride;
    return nbytes;
}

int ls__exchange_owned(const ls__exchange *x, const ls__range **ranges)
{
    *ranges = x->plan.ranges;
    return x->plan.nranges;
}
