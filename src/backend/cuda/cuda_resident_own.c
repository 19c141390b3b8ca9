/* Who owns what of the training state: each rank whole blocks of every bucket of gradients.
 *
 * What a rank owns lies packed, bucket by bucket, at places that are the same on every rank, so that
 * one number says where a slice is, wherever it is. */
#include <string.h>

#include "backend/cuda/cuda_resident.h"

enum { MARGIN = 16 }; /* elements: what lies side by side begins at multiples of it */

static int64_t round_up(int64_t n)
{
    return (n + MARGIN - 1) / MARGIN * MARGIN;
}

/* Buckets are numbered from 0 on without gaps. */
static int bucket_of(const ls__resident_options *o, int segment)
{
    return o->segments[segment].bucket - o->segments[0].bucket;
}

static ls_status find_slices(ls__resident *r, const ls__resident_options *o)
{
    r->nbuckets = bucket_of(o, o->nsegments - 1) + 1;
    size_t n = (size_t)r->nbuckets;
    r->slices = ls__alloc(n * (size_t)r->size, sizeof *r->slices);
    r->bucket_packed = ls__alloc(n + 1, sizeof *r->bucket_packed);
    r->range_packed = ls__alloc((size_t)r->nranges + 1, sizeof *r->range_packed);
    r->bucket_begin = ls__alloc(n + 1, sizeof *r->bucket_begin);
    if (!r->slices || !r->bucket_packed || !r->range_packed || !r->bucket_begin)
        return LS_ERR_MEMORY;
    for (int i = o->nsegments - 1; i >= 0; i--)
        r->bucket_begin[bucket_of(o, i)] = o->segments[i].offset;
    r->bucket_begin[0] = 0;
    r->bucket_begin[n] = o->count;
    cuda_slice *own = r->slices + (size_t)r->rank * n;
    for (int i = 0; i < r->nranges; i++) {
        cuda_slice *s = &own[bucket_of(o, r->ranges[i].segment)];
        if (s->end == 0) s->begin = r->ranges[i].offset;
        s->end = r->ranges[i].offset + r->ranges[i].count;
    }
    return LS_OK;
}

ls_status ls__cuda_resident_describe(ls__resident *r, const ls__resident_options *o)
{
    r->ranges = ls__alloc((size_t)o->nranges + 1, sizeof *r->ranges);
    if (!r->ranges) return LS_ERR_MEMORY;
    memcpy(r->ranges, o->ranges, (size_t)o->nranges * sizeof *r->ranges);
    if (o->nstates > CUDA_STATES_MAX || o->micro_batches > CUDA_LEAVES_MAX)
        return ls_fail(LS_ERR_ARG, "%d states, %d micro-batches", o->nstates, o->micro_batches);
    for (int i = 0; i < o->nsegments; i++) /* kernels read four neighbours at once */
        if (o->segments[i].offset % 4 != 0)
            return ls_fail(LS_ERR_ARG, "segment %d begins at element %lld, no multiple of 4", i,
                           (long long)o->segments[i].offset);
    return find_slices(r, o);
}

static int64_t blocks_of(int64_t count)
{
    return (count + LS__BLOCK - 1) / LS__BLOCK;
}

/* Everybody's slices are known: what a rank owns lies at the same places on all of them. */
void ls__cuda_resident_lay_out(ls__resident *r, const ls__resident_options *o)
{
    r->packed = MARGIN; /* 0 says that a source is not packed */
    for (int b = 0; b < r->nbuckets; b++) {
        int64_t most = 0;
        for (int p = 0; p < r->size; p++) {
            const cuda_slice *s = &r->slices[p * r->nbuckets + b];
            if (s->end - s->begin > most) most = s->end - s->begin;
        }
        r->bucket_packed[b] = r->packed;
        r->packed += round_up(most);
    }
    r->bucket_packed[r->nbuckets] = r->packed;
    const cuda_slice *own = r->slices + (size_t)r->rank * (size_t)r->nbuckets;
    for (int i = 0; i < r->nranges; i++) {
        int b = bucket_of(o, r->ranges[i].segment);
        r->range_packed[i] = r->bucket_packed[b] + r->ranges[i].offset - own[b].begin;
        r->nowned += blocks_of(r->ranges[i].count);
    }
    if (r->fast) ls__cuda_parts_plan(r);
}

void ls__cuda_resident_list_owned(ls__resident *r, const ls__resident_options *o, cuda_owned *list)
{
    int64_t first = 0, n = 0; /* block of the whole space, of the owned ones */
    int segment = 0;
    for (int i = 0; i < r->nranges; i++) {
        const ls__range *range = &r->ranges[i];
        for (; segment < range->segment; segment++) first += blocks_of(o->segments[segment].count);
        int64_t number = first + (range->offset - o->segments[segment].offset) / LS__BLOCK;
        for (int64_t at = 0; at < range->count; at += LS__BLOCK, n++, number++) {
            int64_t left = range->count - at;
            list[n] = (cuda_owned) { .at = range->offset + at,
                                     .packed = r->range_packed[i] + at,
                                     .count = (int32_t)(left < LS__BLOCK ? left : LS__BLOCK),
                                     .segment = segment };
            r->owned_numbers[n] = number;
        }
    }
}
