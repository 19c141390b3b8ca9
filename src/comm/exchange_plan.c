/* Who owns what, who computes which leaves, how many buffers that takes.
 *
 * All of it is a function of the model, S and N, computed by every rank for itself. A bucket's
 * blocks are divided by where their middle lies among the bucket's elements: tensors of a few
 * elements are blocks too, and dividing by number of blocks would give some rank most of the work. */
#include "comm/exchange_internal.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

void ls__plan_leaves(int micro_batches, int rank, int size, int *begin, int *end)
{
    *begin = (int)((int64_t)micro_batches * rank / size);
    *end = (int)((int64_t)micro_batches * (rank + 1) / size);
}

/* Computing leaf t needs a buffer beside one for each maximal aligned subtree of [begin, t). */
int ls__plan_buffers(int micro_batches, int rank, int size)
{
    int begin, end, most = 0;
    ls__plan_leaves(micro_batches, rank, size, &begin, &end);
    for (int t = begin; t < end; t++) {
        int subtrees = 0;
        for (int at = begin; at < t; subtrees++) {
            int span = 1;
            while (at % (2 * span) == 0 && at + 2 * span <= t) span *= 2;
            at += span;
        }
        if (subtrees + 1 > most) most = subtrees + 1;
    }
    return most;
}

static int64_t nblocks_of(int64_t count)
{
    return (count + LS__BLOCK - 1) / LS__BLOCK;
}

/* Owner of each block of segments [first, last), one bucket, into owners[block]. */
static void divide_bucket(const ls__segment *segments, int first, int last, int size, int *owners)
{
    int64_t total = 0, before = 0;
    for (int s = first; s < last; s++) total += segments[s].count;
    for (int s = first; s < last; s++)
        for (int64_t at = 0; at < segments[s].count; at += LS__BLOCK) {
            int64_t left = segments[s].count - at, n = left < LS__BLOCK ? left : LS__BLOCK;
            int64_t middle = 2 * before + n; /* of 2 * total */
            *owners++ = (int)(middle * size / (2 * total));
            before += n;
        }
}

/* Largest first to the rank with the least so far. */
static ls_status divide_whole(const ls__exchange_options *o, int size, int *owners)
{
    size_t n = (size_t)o->nsegments;
    int64_t *load = ls__alloc((size_t)size, sizeof *load);
    int64_t *first = ls__alloc(n, sizeof *first);
    bool *given = ls__alloc(n, sizeof *given);
    if (load && first && given) {
        for (int s = 1; s < o->nsegments; s++)
            first[s] = first[s - 1] + nblocks_of(o->segments[s - 1].count);
        for (int i = 0; i < o->nsegments; i++) {
            int largest = -1, rank = 0;
            for (int s = 0; s < o->nsegments; s++)
                if (!given[s] && (largest < 0 || o->segments[s].count > o->segments[largest].count))
                    largest = s;
            for (int r = 1; r < size; r++)
                if (load[r] < load[rank]) rank = r;
            int64_t count = o->segments[largest].count;
            given[largest] = true;
            load[rank] += count;
            for (int64_t b = 0; b < nblocks_of(count); b++) owners[first[largest] + b] = rank;
        }
    }
    bool done = load && first && given;
    ls__free(load);
    ls__free(first);
    ls__free(given);
    return done ? LS_OK : LS_ERR_MEMORY;
}

static ls_status divide(const ls__exchange_options *o, int size, int *owners)
{
    if (o->whole_segments) return divide_whole(o, size, owners);
    int64_t block = 0;
    for (int first = 0, last; first < o->nsegments; first = last) {
        int64_t nblocks = 0;
        for (last = first; last < o->nsegments; last++) {
            if (o->segments[last].bucket != o->segments[first].bucket) break;
            nblocks += nblocks_of(o->segments[last].count);
        }
        divide_bucket(o->segments, first, last, size, owners + block);
        block += nblocks;
    }
    return LS_OK;
}

/* Cuts [offset, offset + count) of a segment, whose first block is `block`, into chunks. */
static int64_t cut(ls__chunk *out, int segment, int64_t offset, int64_t count, int64_t block)
{
    const int64_t most = (int64_t)LS__CHUNK_BLOCKS * LS__BLOCK;
    int64_t n = 0;
    for (int64_t at = 0; at < count; at += most, n++)
        out[n] = (ls__chunk) { .segment = segment,
                               .offset = offset + at,
                               .count = count - at < most ? count - at : most,
                               .block = block + n * LS__CHUNK_BLOCKS };
    return n;
}

/* The ranges of `rank`, which it owns by owners[block], and all chunks. */
static void list(const ls__exchange_options *o, int rank, const int *owners, ls__plan *plan)
{
    int64_t block = 0;
    for (int s = 0; s < o->nsegments; s++) {
        const ls__segment *segment = &o->segments[s];
        plan->nwhole += cut(plan->whole + plan->nwhole, s, segment->offset, segment->count, block);
        int64_t n = nblocks_of(segment->count);
        for (int64_t b = 0, end; b < n; b = end) {
            for (end = b; end < n && owners[block + end] == owners[block + b]; end++) continue;
            if (owners[block + b] != rank) continue;
            int64_t at = b * LS__BLOCK, last = end * LS__BLOCK;
            if (last > segment->count) last = segment->count;
            plan->ranges[plan->nranges++] =
                (ls__range) { .segment = s, .offset = segment->offset + at, .count = last - at };
            plan->nchunks +=
                cut(plan->chunks + plan->nchunks, s, segment->offset + at, last - at, block + b);
        }
        block += n;
    }
}

ls_status ls__plan_create(const ls__exchange_options *options, int rank, int size, ls__plan *out)
{
    *out = (ls__plan) { 0 };
    int64_t nblocks = 0, nchunks = 0;
    for (int s = 0; s < options->nsegments; s++) {
        int64_t n = nblocks_of(options->segments[s].count);
        nblocks += n;
        nchunks += (n + LS__CHUNK_BLOCKS - 1) / LS__CHUNK_BLOCKS;
    }
    out->nblocks = nblocks;
    int *owners = ls__alloc((size_t)nblocks, sizeof *owners);
    /* A segment is cut between at most `size` owners, each once. */
    out->ranges = ls__alloc((size_t)options->nsegments, sizeof *out->ranges);
    out->chunks = ls__alloc((size_t)(nchunks + options->nsegments), sizeof *out->chunks);
    out->whole = ls__alloc((size_t)nchunks, sizeof *out->whole);
    ls_status status = LS_ERR_MEMORY;
    if (owners && out->ranges && out->chunks && out->whole) status = divide(options, size, owners);
    if (status == LS_OK) list(options, rank, owners, out);
    ls__free(owners);
    if (status != LS_OK) ls__plan_free(out);
    return status;
}

void ls__plan_free(ls__plan *plan)
{
    ls__free(plan->ranges);
    ls__free(plan->chunks);
    ls__free(plan->whole);
    *plan = (ls__plan) { 0 };
}
