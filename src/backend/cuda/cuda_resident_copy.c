/* Many stretches between host and device through the two staging blocks: a block is filled or emptied
 * while the other travels. A space has hundreds of tensors, most of them small. */
#include <string.h>

#include "backend/cuda/cuda_resident.h"

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

ls_status ls__cuda_pieces_up(cuda_device *d, const cuda_piece *pieces, int n)
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

ls_status ls__cuda_pieces_down(cuda_device *d, const cuda_piece *pieces, int n)
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
