/* Cross-entropy, accuracy and their gradient, row by row of scores.
 *
 * A row of a language model has some 50,000 scores, 200 KB: a block reads it once and keeps the sum
 * of exponentials relative to the largest score so far. Rows of a few classes are a warp's. */
#include <cfloat>

#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_integers.h"
#include "backend/cuda/kernel_loss.h"

enum { LONG = 1024 }; /* scores of a row that keep a block busy */

/* --- labels --- */

enum { IGNORED = -100 }; /* LS__LABEL_IGNORED */

struct label_list {
    const void *values;
    device_integer type;
    int64_t per_sample, classes;
    cuda_values *failure;

    __device__ int64_t at(int64_t row) const
    {
        return integer_at(values, type, row);
    }
    __device__ bool counts(int64_t label) const
    {
        return label >= 0 && label < classes;
    }
    __device__ void check(int64_t row, int64_t label) const
    {
        if (label != IGNORED && !counts(label)) note_failure(failure, row / per_sample, false);
    }
};

/* --- sums of exponentials --- */

/* sum of exp(x - most) */
struct exponentials {
    float most, sum;

    __device__ void raise(float to)
    {
        if (!(to > most)) return; /* nor where it is NaN: the sum becomes that */
        sum *= expf(most - to);
        most = to;
    }
};

enum { AHEAD = 4 }; /* scores on their way */

template <int THREADS>
static __device__ inline exponentials sum_exponentials(const float *x, int64_t n)
{
    typedef row_of<THREADS> row;
    /* The lowest number and not -inf, of which a score's difference would be NaN. */
    exponentials own = { -FLT_MAX, 0 };
    for (int64_t i = row::lane(); i < n; i += AHEAD * THREADS) {
        float v[AHEAD], most = -FLT_MAX;
        for (int k = 0; k < AHEAD; k++) v[k] = i + k * THREADS < n ? x[i + k * THREADS] : -INFINITY;
        for (int k = 0; k < AHEAD; k++) most = fmaxf(most, v[k]);
        own.raise(most);
        for (int k = 0; k < AHEAD; k++) own.sum += expf(v[k] - own.most);
    }
    exponentials all = own;
    all.most = row::combine(own.most, larger_of());
    own.raise(all.most);
    all.sum = row::combine(own.sum, sum_of());
    return all;
}

/* NaN where all scores are -inf. */
static __device__ inline float log_of(exponentials e)
{
    return e.sum == 0 ? NAN : e.most + logf(e.sum);
}

template <int THREADS, typename L, typename W>
static __global__ void cross_entropy(const float *scores, const void *labels, device_integer type,
                                     int64_t per_sample, int64_t rows, int64_t classes,
                                     cuda_values *values, L *losses, W *weights, float *logsum)
{
    typedef row_of<THREADS> row;
    const int64_t r = row::index();
    if (r >= rows) return;
    const label_list list = { labels, type, per_sample, classes, values };
    const int64_t label = list.at(r);
    const bool counts = list.counts(label);
    scores += r * classes;
    const float sum = counts ? log_of(sum_exponentials<THREADS>(scores, classes)) : 0;
    if (row::lane() != 0) return;
    list.check(r, label);
    if (losses) store(losses + r, counts ? sum - scores[label] : 0);
    if (weights) store(weights + r, counts ? 1 : 0);
    if (logsum) logsum[r] = sum;
}

/* Calls f with the threads of a row: constant<LS_WARP> or constant<LS_BLOCK>. */
template <typename F> static void with_threads(int64_t classes, F f)
{
    if (classes < LONG)
        f(constant<LS_WARP>());
    else
        f(constant<LS_BLOCK>());
}

void ls__launch_cross_entropy(const score_rows *a, device_out losses, device_out weights,
                              float *logsum, cudaStream_t stream)
{
    with_threads(a->classes, [&](auto threads) {
        by_type(losses.half, [&](auto l) {
            by_type(weights.half, [&](auto w) {
                typedef decltype(l) L;
                typedef decltype(w) W;
                constexpr int THREADS = decltype(threads)::value;
                LS_LAUNCH((cross_entropy<THREADS, L, W>), blocks_for(a->rows, LS_BLOCK / THREADS),
                          LS_BLOCK, 0, stream, a->scores, a->labels.data, a->labels.type,
                          a->labels.per_sample, a->rows, a->classes, a->values,
                          static_cast<L *>(losses.data), static_cast<W *>(weights.data), logsum);
            });
        });
    });
}

/* --- gradient --- */

template <int THREADS, typename Y>
static __global__ void cross_entropy_grad(const float *g, const float *scores, const void *labels,
                                          device_integer type, const float *logsum, Y *dscores,
                                          int64_t rows, int64_t classes)
{
    typedef row_of<THREADS> row;
    const int64_t r = row::index();
    if (r >= rows) return;
    const int64_t label = integer_at(labels, type, r);
    const bool counts = label >= 0 && label < classes;
    const float factor = counts ? g[r] : 0, from = counts ? logsum[r] : 0;
    scores += r * classes;
    dscores += r * classes;
    for (int64_t i = row::lane(); i < classes; i += THREADS) {
        float slope = expf(scores[i] - from) - (i == label ? 1.0f : 0.0f);
        store(dscores + i, counts ? slope * factor : 0);
    }
}

void ls__launch_cross_entropy_grad(const score_rows *a, const float *g, const float *logsum,
                                   device_out dscores, cudaStream_t stream)
{
    with_threads(a->classes, [&](auto threads) {
        by_type(dscores.half, [&](auto type) {
            typedef decltype(type) Y;
            constexpr int THREADS = decltype(threads)::value;
            LS_LAUNCH((cross_entropy_grad<THREADS, Y>), blocks_for(a->rows, LS_BLOCK / THREADS),
                      LS_BLOCK, 0, stream, g, a->scores, a->labels.data, a->labels.type, logsum,
                      static_cast<Y *>(dscores.data), a->rows, a->classes);
        });
    });
}

/* --- accuracy --- */

/* A number that is larger for a larger score, of equal scores for the first; a NaN is larger than
 * all. */
static __device__ inline unsigned long long rank_of(float score, int64_t index)
{
    unsigned bits = __float_as_uint(score == 0 ? 0 : score); /* -0 is 0 */
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (score != score) bits = 0xffffffffu;
    return (unsigned long long)bits << 32 | (0xffffffffu - (unsigned)index);
}

template <int THREADS, typename C, typename W>
static __global__ void accuracy(const float *scores, const void *labels, device_integer type,
                                int64_t per_sample, int64_t rows, int64_t classes,
                                cuda_values *values, C *correct, W *weights)
{
    typedef row_of<THREADS> row;
    const int64_t r = row::index();
    if (r >= rows) return;
    const label_list list = { labels, type, per_sample, classes, values };
    const int64_t label = list.at(r);
    scores += r * classes;
    unsigned long long best = 0;
    for (int64_t i = row::lane(); i < classes; i += THREADS)
        best = larger_of()(best, rank_of(scores[i], i));
    best = row::combine(best, larger_of());
    if (row::lane() != 0) return;
    list.check(r, label);
    const bool hit = list.counts(label) && 0xffffffffu - (unsigned)best == (unsigned)label;
    if (correct) store(correct + r, hit ? 1 : 0);
    if (weights) store(weights + r, list.counts(label) ? 1 : 0);
}

void ls__launch_accuracy(const score_rows *a, device_out correct, device_out weights,
                         cudaStream_t stream)
{
    with_threads(a->classes, [&](auto threads) {
        by_type(correct.half, [&](auto c) {
            by_type(weights.half, [&](auto w) {
                typedef decltype(c) C;
                typedef decltype(w) W;
                constexpr int THREADS = decltype(threads)::value;
                LS_LAUNCH((accuracy<THREADS, C, W>), blocks_for(a->rows, LS_BLOCK / THREADS),
                          LS_BLOCK, 0, stream, a->scores, a->labels.data, a->labels.type,
                          a->labels.per_sample, a->rows, a->classes, a->values,
                          static_cast<C *>(correct.data), static_cast<W *>(weights.data));
            });
        });
    });
}
