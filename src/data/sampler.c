/* How a batch is cut and in which order samples come: arithmetic without state, so that any rank
 * computes any micro-batch of any step, and resuming needs nothing but the step. */
#include "base/check.h"
#include "base/random.h"
#include "data/loader.h"

void ls__cut_micro_batch(const ls__cut *cut, int64_t samples, int s, int64_t *begin, int64_t *end)
{
    LS_ASSERT(samples >= 0 && samples <= cut->batch && s >= 0 && s < cut->micro_batches);
    int64_t unit = cut->unit > 0 ? cut->unit : 1;
    int64_t units = samples / unit + (samples % unit != 0); /* the last one may be short */
    int64_t each = units / cut->micro_batches, more = units % cut->micro_batches;
    /* Micro-batch s begins behind `each` units for every one before it, and one more for as many
     * of them as floor(s * more / S): the longer ones are spread evenly. */
    int64_t first = each * s + more * s / cut->micro_batches;
    int64_t last = each * (s + 1) + more * (s + 1) / cut->micro_batches;
    *begin = first * unit < samples ? first * unit : samples;
    *end = last * unit < samples ? last * unit : samples;
}

int64_t ls__sampler_epoch(int64_t length, int64_t position)
{
    return position / length;
}

int64_t ls__sampler_index(uint64_t seed, int64_t length, int64_t position)
{
    uint64_t epoch = (uint64_t)ls__sampler_epoch(length, position);
    return ls__random_permute(seed, "sampler", epoch, length, position % length);
}

void ls__sampler_indices(uint64_t seed, int64_t length, int64_t position, int64_t count,
                         int64_t *indices)
{
    ls__permutation order;
    int64_t epoch = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t now = ls__sampler_epoch(length, position + i);
        if (now != epoch) {
            epoch = now;
            ls__permutation_init(&order, seed, "sampler", (uint64_t)epoch, length);
        }
        indices[i] = ls__permutation_at(&order, (position + i) % length);
    }
}
