/* Gradients added, and parameters gathered, by the library that connects the devices: what a run does
 * that did not ask for the fixed tree. Less travels between machines, and no other rank's gradients
 * are kept, but the order of the sums is the library's.
 *
 * Buckets are copied into parts of one size (kernel_parts.cu) that lie in `staging`, as many as it
 * holds are one call, and the stream's order alone makes its reuse safe. */
#include "backend/cuda/cuda_resident.h"
#include "backend/cuda/vendor_collective.h"

void ls__cuda_parts_plan(ls__resident *r)
{
    int64_t largest = 0, sum = 0;
    for (int b = 0; b < r->nbuckets; b++) {
        int64_t elements = r->size * ls__cuda_bucket_most(r, b);
        sum += elements;
        if (elements > largest) largest = elements;
    }
    r->staging_count = sum < 2 * largest ? sum : 2 * largest; /* small buckets go together */
}

/* How many buckets from b on, counted by `step`, fit into staging; `end` is none of them. */
static int fitting(const ls__resident *r, int b, int end, int step)
{
    int n = 0;
    for (int64_t filled = 0; b + n * step != end; n++) {
        filled += r->size * ls__cuda_bucket_most(r, b + n * step);
        if (filled > r->staging_count) break;
    }
    return n;
}

static cuda_parts parts_of(const ls__resident *r, int b, int first, int n)
{
    return (cuda_parts) { r->parts + (size_t)first * (size_t)r->nbuckets + b, r->nbuckets, n,
                          ls__cuda_bucket_most(r, b) };
}

/* What is left to merge is two buffers at most, since nothing waits for a sibling here. */
static ls_status reduce_group(ls__resident *r, int first, int n, cuda_span *spans)
{
    const float *from = NULL, *plus = NULL;
    float *staging = r->staging;
    int nspans = 0;
    if (r->own.n > 0) from = ls__cuda_buffer(r, r->own.list[0].buffer);
    if (r->nmerges > 0) plus = ls__cuda_buffer(r, r->merges[0].from);
    for (int b = first; b > first - n; b--) {
        cuda_parts parts = parts_of(r, b, 0, r->size);
        if (parts.most == 0) continue;
        ls__cuda_launch_gather(r->stream, &parts, from, plus, staging);
        spans[nspans++] =
            (cuda_span) { staging, r->inbox[0] + r->bucket_packed[b], (size_t)parts.most };
        staging += r->size * parts.most;
    }
    LS_CUDA_TRY(cudaGetLastError(), "adding gradients");
    return ls__vendor_collective_reduce_scatter(r->collective, r->stream, "gradients", spans,
                                                nspans);
}

ls_status ls__cuda_parts_reduce(ls__resident *r, int first)
{
    LS_ASSERT(r->own.n <= 1 && r->nmerges <= 1);
    cuda_span *spans = ls__alloc((size_t)r->nbuckets, sizeof *spans);
    ls_status status = spans ? LS_OK : LS_ERR_MEMORY;
    while (r->next_bucket > first && status == LS_OK) {
        int n = fitting(r, r->next_bucket - 1, first - 1, -1);
        status = reduce_group(r, r->next_bucket - 1, n, spans);
        r->next_bucket -= n;
    }
    ls__free(spans);
    return status;
}

static ls_status gather_group(ls__resident *r, int first, int n, cuda_span *spans)
{
    float *staging = r->staging;
    int nspans = 0;
    for (int b = first; b < first + n; b++) {
        cuda_parts own = parts_of(r, b, r->rank, 1);
        if (own.most == 0) continue;
        float *place = staging + r->rank * own.most;
        ls__cuda_launch_gather(r->stream, &own, r->params, NULL, place);
        spans[nspans++] = (cuda_span) { place, staging, (size_t)own.most };
        staging += r->size * own.most;
    }
    LS_CUDA_TRY(cudaGetLastError(), "gathering parameters");
    LS_TRY(ls__vendor_collective_all_gather(r->collective, r->stream, "parameters", spans, nspans));
    staging = r->staging;
    for (int b = first; b < first + n; b++) {
        cuda_parts all = parts_of(r, b, 0, r->size);
        if (all.most > 0)
            ls__cuda_launch_scatter(r->stream, &all, r->rank, staging, r->params, r->halves);
        staging += r->size * all.most;
    }
    return LS_OK;
}

ls_status ls__cuda_parts_gather(ls__resident *r)
{
    cuda_span *spans = ls__alloc((size_t)r->nbuckets, sizeof *spans);
    ls_status status = spans ? LS_OK : LS_ERR_MEMORY;
    for (int b = 0, n; b < r->nbuckets && status == LS_OK; b += n) {
        n = fitting(r, b, r->nbuckets, 1);
        status = gather_group(r, b, n, spans);
    }
    ls__free(spans);
    return status;
}
