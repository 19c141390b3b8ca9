/* The reduction and the commit: one pass over the owned slices.
 *
 * A block of 16 KiB is summed from everybody's gradients into L1 and updated from there, so memory
 * sees each gradient read once and each parameter and state read and written once. Clipping needs
 * the norm of the whole sum before any update; then the sum is kept in this rank's own buffer, in
 * the slice that nobody else reads. */
#include "comm/exchange_internal.h"

#include <string.h>

#include "base/check.h"

static int64_t block_at(const ls__chunk *chunk, int64_t at)
{
    int64_t left = chunk->count - at;
    return left < LS__BLOCK ? left : LS__BLOCK;
}

/* [offset, offset + count) of the sum into dst. */
static void sum_block(const ls__exchange *x, float *dst, int64_t offset, int64_t count)
{
    if (x->tree->nsources == 0)
        memset(dst, 0, (size_t)count * sizeof *dst);
    else
        ls__reduce_scaled(x->comm->kernels, x->tree, dst, x->sources, x->factors, offset, count);
}

/* This rank's own buffer for sums. Where it is a source too, a block is read before it is written.
 */
static float *sum_buffer(const ls__exchange *x)
{
    return ls__exchange_buffer(x, x->me, 0);
}

static void reduce_chunk(void *context, int64_t i)
{
    const ls__exchange *x = context;
    const ls__chunk *chunk = &x->plan.chunks[i];
    double *norms = (double *)(void *)x->norms.base;
    for (int64_t at = 0; at < chunk->count; at += LS__BLOCK) {
        int64_t n = block_at(chunk, at), offset = chunk->offset + at;
        if (!x->sum) sum_block(x, sum_buffer(x) + offset, offset, n);
        const float *sum = x->sum ? x->sum : sum_buffer(x);
        if (norms)
            norms[chunk->block + at / LS__BLOCK] = x->comm->kernels->norm2(sum + offset, (size_t)n);
    }
}

void ls__exchange_reduce(ls__exchange *x)
{
    ls__exchange_parallel(x, x->plan.nchunks, reduce_chunk);
    if (!x->sum) x->sum = sum_buffer(x);
}

/* The bf16 copy of [offset, offset + count), just updated. */
static void round_params(const ls__exchange *x, int64_t offset, int64_t count)
{
    if (!x->halves.base) return;
    const float *params = (const float *)(const void *)x->params.base;
    uint16_t *halves = (uint16_t *)(void *)x->halves.base;
    x->comm->kernels->narrow(halves + offset, params + offset, (size_t)count);
}

static void round_range(void *context, int64_t i)
{
    const ls__exchange *x = context;
    round_params(x, x->rounding[i].offset, x->rounding[i].count);
}

void ls__exchange_round_ranges(ls__exchange *x, const ls__range *ranges, int n)
{
    x->rounding = ranges;
    if (x->halves.base) ls__exchange_parallel(x, n, round_range);
}

void ls__exchange_round(ls__exchange *x)
{
    ls__exchange_round_ranges(x, x->plan.ranges, x->plan.nranges);
}

static void update(const ls__exchange *x, int segment, int64_t offset, int64_t count,
                   const float *sum)
{
    float *params = (float *)(void *)x->params.base;
    x->options.update(x->options.user, segment, offset, count, params + offset, sum, x->scale);
    round_params(x, offset, count);
}

static void commit_chunk(void *context, int64_t i)
{
    const ls__exchange *x = context;
    const ls__chunk *chunk = &x->plan.chunks[i];
    if (x->sum) {
        update(x, chunk->segment, chunk->offset, chunk->count, x->sum + chunk->offset);
        return;
    }
    _Alignas(64) float sum[LS__BLOCK];
    for (int64_t at = 0; at < chunk->count; at += LS__BLOCK) {
        int64_t n = block_at(chunk, at), offset = chunk->offset + at;
        sum_block(x, sum, offset, n);
        update(x, chunk->segment, offset, n, sum);
    }
}

static void commit_segment(void *context, int64_t i)
{
    const ls__exchange *x = context;
    const ls__range *range = &x->plan.ranges[i];
    update(x, range->segment, range->offset, range->count, x->sum + range->offset);
}

void ls__exchange_commit(ls__exchange *x, float scale, bool skip)
{
    LS_ASSERT(x->agreed && (skip || !x->options.on_device));
    x->scale = scale;
    if (!skip && x->options.whole_segments) {
        if (!x->sum) ls__exchange_reduce(x);
        ls__exchange_parallel(x, x->plan.nranges, commit_segment);
    } else if (!skip) {
        ls__exchange_parallel(x, x->plan.nchunks, commit_chunk);
    }
    /* A failure has broken the communicator: the next call tells it. */
    bool spread = !x->net || skip || ls__far_spread(x) == LS_OK;
    x->step++;
    x->agreed = x->waited = false;
    if (x->local->lane && spread)
        ls__comm_publish(x->local, ls__exchange_committed(x, x->me), x->step);
    ls__exchange_begin_step(x);
}

ls_status ls__exchange_wait(ls__exchange *x)
{
    ls_comm *local = x->local;
    if (x->comm->broken != LS_OK) return ls__comm_broken(x->comm);
    if (x->waited) return LS_OK;
    if (local->lane) {
        ls__call call = { .op = LS__OP_COMMIT,
                          .count = x->options.count,
                          .site = __builtin_return_address(0) };
        ls__comm_note(local, &call, local->seq);
        for (int r = 0; r < local->size; r++)
            if (r != local->rank)
                LS_TRY(ls__comm_wait(local, r, ls__exchange_committed(x, r), x->step));
        ls__comm_leave(local);
    }
    x->waited = true;
    return LS_OK;
}
