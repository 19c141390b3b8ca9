/* Training state between host and device: parameters, and what a rank owns of the optimizer's state.
 *
 * Many stretches go through the two staging blocks: a block is filled or emptied while the other
 * travels. A space has hundreds of tensors, most of them small. */
#include <string.h>

#include "backend/cuda/cuda_resident.h"
#include "backend/cuda/kernel_elementwise.h"

typedef struct cuda_piece {
    float *host, *device;
    int64_t count;
} cuda_piece;

enum { FLOATS = CUDA_STAGING_BYTES / sizeof(float) };

/* A place in the list. */
typedef struct cursor {
    const cuda_piece *pieces;
    int n, i;
    int64_t done; /* of piece i */
} cursor;

/* The next stretch, at most room floats. False: there is none. */
static bool next(cursor *c, int64_t room, cuda_piece *out)
{
    while (c->i < c->n && c->done == c->pieces[c->i].count) {
        c->i++;
        c->done = 0;
    }
    if (c->i == c->n || room == 0) return false;
    const cuda_piece *p = &c->pieces[c->i];
    int64_t left = p->count - c->done;
    *out = (cuda_piece) { p->host + c->done, p->device + c->done, left < room ? left : room };
    c->done += out->count;
    return true;
}

static ls_status pieces_up(cuda_device *d, const cuda_piece *pieces, int n)
{
    cursor c = { .pieces = pieces, .n = n };
    cuda_piece p;
    for (int turn = 0;; turn ^= 1) {
        int64_t used = 0;
        LS_CUDA_TRY(cudaEventSynchronize(d->staged[turn]), "copying to it");
        while (next(&c, FLOATS - used, &p)) {
            float *block = (float *)(void *)d->staging[turn] + used;
            memcpy(block, p.host, (size_t)p.count * sizeof *block);
            LS_CUDA_TRY(cudaMemcpyAsync(p.device, block, (size_t)p.count * sizeof *block,
                                        cudaMemcpyHostToDevice, d->stream),
                        "copying to it");
            used += p.count;
        }
        if (used == 0) return LS_OK;
        LS_CUDA_TRY(cudaEventRecord(d->staged[turn], d->stream), "recording an event");
    }
}

/* Empties a block that holds what `from` is about to hand out. */
static ls_status unload(cuda_device *d, int turn, cursor *from, int64_t used)
{
    cuda_piece p;
    const float *block = (const float *)(void *)d->staging[turn];
    if (used == 0) return LS_OK;
    LS_CUDA_TRY(cudaEventSynchronize(d->staged[turn]), "copying from it");
    while (used > 0 && next(from, used, &p)) {
        memcpy(p.host, block, (size_t)p.count * sizeof *block);
        block += p.count;
        used -= p.count;
    }
    return LS_OK;
}

static ls_status pieces_down(cuda_device *d, const cuda_piece *pieces, int n)
{
    cursor ahead = { .pieces = pieces, .n = n }, behind = ahead;
    cuda_piece p;
    int64_t held = 0; /* floats in the block before */
    for (int turn = 0;; turn ^= 1) {
        int64_t used = 0;
        while (next(&ahead, FLOATS - used, &p)) {
            LS_CUDA_TRY(cudaMemcpyAsync((float *)(void *)d->staging[turn] + used, p.device,
                                        (size_t)p.count * sizeof(float), cudaMemcpyDeviceToHost,
                                        d->stream),
                        "copying from it");
            used += p.count;
        }
        if (used > 0)
            LS_CUDA_TRY(cudaEventRecord(d->staged[turn], d->stream), "recording an event");
        LS_TRY(unload(d, turn ^ 1, &behind, held));
        held = used;
        if (used == 0) return LS_OK;
    }
}

/* --- what training state is made of --- */

/* Pieces of what this rank owns: of the parameters (states 0), or of state i - 1. */
static int owned_pieces(const ls__resident *r, float *host, float *device, bool packed,
                        cuda_piece *out)
{
    int64_t at = 0;
    for (int i = 0; i < r->nranges; i++) {
        const ls__range *range = &r->ranges[i];
        out[i] = packed
                     ? (cuda_piece) { host + at, device + r->range_packed[i], range->count }
                     : (cuda_piece) { host + range->offset, device + range->offset, range->count };
        at += range->count;
    }
    return r->nranges;
}

static ls_status put(ls__resident *r, const float *params, float *const *states, cuda_piece *pieces)
{
    cuda_device *d = r->device;
    LS_TRY(ls__cuda_resident_before(r));
    LS_TRY(ls__cuda_upload(d, r->params, params, (size_t)r->count * sizeof *params));
    if (r->halves) ls__cuda_launch_convert(d->stream, r->count, r->params, false, r->halves, true);
    LS_CUDA_TRY(cudaGetLastError(), "rounding parameters");
    for (int i = 0; i < r->nstates; i++) {
        if (states)
            LS_TRY(pieces_up(d, pieces, owned_pieces(r, states[i], r->states[i], true, pieces)));
        else
            LS_CUDA_TRY(
                cudaMemsetAsync(r->states[i], 0, (size_t)r->packed * sizeof(float), d->stream),
                "clearing states");
    }
    return LS_OK;
}

static ls_status get(ls__resident *r, float *params, float *const *states, bool whole,
                     cuda_piece *pieces)
{
    cuda_device *d = r->device;
    cuda_piece all = { params, r->params, r->count };
    LS_TRY(ls__cuda_resident_before(r));
    LS_TRY(ls__cuda_resident_settle(r, d->stream, "updating parameters"));
    if (whole)
        LS_TRY(pieces_down(d, &all, 1));
    else
        LS_TRY(pieces_down(d, pieces, owned_pieces(r, params, r->params, false, pieces)));
    for (int i = 0; states && i < r->nstates; i++)
        LS_TRY(pieces_down(d, pieces, owned_pieces(r, states[i], r->states[i], true, pieces)));
    return LS_OK;
}

/* One of put and get: with room for the pieces. */
static ls_status copy(ls__resident *r, float *params, float *const *states, bool whole, bool up)
{
    cuda_piece *pieces = ls__alloc((size_t)r->nranges + 1, sizeof *pieces);
    if (!pieces) return LS_ERR_MEMORY;
    ls_status status = ls__cuda_enter(r->device);
    if (status == LS_OK) {
        status = up ? put(r, params, states, pieces) : get(r, params, states, whole, pieces);
        ls__cuda_leave(r->device);
    }
    ls__free(pieces);
    return status;
}

ls_status ls__cuda_resident_put(ls__resident *r, const float *params, float *const *states)
{
    return copy(r, (float *)(uintptr_t)params, states, false, true); /* only read */
}

ls_status ls__cuda_resident_get(ls__resident *r, float *params, float *const *states, bool whole)
{
    return copy(r, params, states, whole, false);
}
