/* Drawing a token from scores. No sorting and no memory: the top_k-th largest score is found byte by
 * byte of its bits, by counting; a vocabulary of 50,000 takes some 100 microseconds. */
#include <math.h>
#include <string.h>

#include <lockstep/trainer.h>

/* What can be drawn: scores above a limit, and so many of those at it. */
typedef struct candidates {
    uint32_t limit;
    int64_t equals;
} candidates;

/* As unsigned integers in the order of the scores; NaN and -infinity are 0. Both zeros are one. */
static uint32_t key_of(float score)
{
    if (!(score > -INFINITY)) return 0;
    float plain = score + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &plain, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The k-th largest key, k <= count: bytes from the highest on, each by a histogram of those that
 * agree in the bytes before. */
static candidates largest(const float *scores, int64_t count, int64_t k)
{
    uint32_t limit = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t histogram[256] = { 0 };
        for (int64_t i = 0; i < count; i++) {
            uint32_t key = key_of(scores[i]);
            if ((key & known) == limit) histogram[key >> shift & 255]++;
        }
        uint32_t byte = 255;
        while (histogram[byte] < k) k -= histogram[byte--];
        limit |= byte << shift;
        known |= 255u << shift;
    }
    return (candidates) { limit, k };
}

static int64_t most_likely(const float *scores, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (key_of(scores[i]) > key_of(scores[best])) best = i;
    return best;
}

/* exp((score - most) / temperature) for a candidate; 0 for others. Asked in the order of the scores,
 * since of equals at the limit the first ones count. */
static double weight_of(float score, float most, double temperature, candidates *c)
{
    uint32_t key = key_of(score);
    if (key == 0 || key < c->limit || (key == c->limit && c->equals-- <= 0)) return 0;
    if (score == most) return 1; /* infinity too */
    return exp(((double)score - (double)most) / temperature);
}

int32_t ls_sample(const float *scores, int64_t count, double temperature, int64_t top_k,
                  ls_rng *rng)
{
    if (!scores || count < 1) return 0;
    int64_t best = most_likely(scores, count);
    if (!(temperature > 0) || key_of(scores[best]) == 0) return (int32_t)best;
    candidates all = { 0, 0 }, c;
    if (top_k > 0 && top_k < count) all = largest(scores, count, top_k);
    float most = scores[best];
    double sum = 0, drawn;
    c = all;
    for (int64_t i = 0; i < count; i++) sum += weight_of(scores[i], most, temperature, &c);
    drawn = ls_rng_uniform(rng) * sum;
    c = all;
    for (int64_t i = 0; i < count; i++) {
        double weight = weight_of(scores[i], most, temperature, &c);
        if (weight == 0) continue;
        best = i; /* the last one takes what rounding leaves */
        drawn -= weight;
        if (drawn < 0) break;
    }
    return (int32_t)best;
}
