/* Random numbers as functions of what they are for. Philox (Salmon et al., SC 2011) is counter
 * based: any element of any stream costs the same ten rounds, so no rank needs another's state and
 * a resumed run needs none at all. Permutations are made for samplers that ask for a few hundred
 * positions of an epoch at a time. */
#include "base/random.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

static uint32_t high_of_product(uint32_t a, uint32_t b, uint32_t *low)
{
    uint64_t product = (uint64_t)a * b;
    *low = (uint32_t)product;
    return (uint32_t)(product >> 32);
}

void ls__philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint32_t low0, low1;
        uint32_t high0 = high_of_product(0xD2511F53u, c0, &low0);
        uint32_t high1 = high_of_product(0xCD9E8D57u, c2, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static uint64_t key_of(uint64_t seed, const char *purpose)
{
    return XXH3_64bits_withSeed(purpose, strlen(purpose), seed);
}

void ls__random_key(uint64_t seed, const char *purpose, uint32_t key[2])
{
    uint64_t k = key_of(seed, purpose);
    key[0] = (uint32_t)k;
    key[1] = (uint32_t)(k >> 32);
}

/* The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that maps 0 to 0.
 */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void ls__rng_init(ls_rng *rng, uint64_t seed, const char *purpose, uint64_t a, uint64_t b)
{
    /* a goes into the key, b into the upper half of the counter: for one (seed, purpose) two
     * streams with different (a, b) differ in one of them and so never share a block. */
    uint64_t k = key_of(seed, purpose) ^ mix(a);
    *rng = (ls_rng) {
        .key = { (uint32_t)k, (uint32_t)(k >> 32) },
        .counter = { 0, 0, (uint32_t)b, (uint32_t)(b >> 32) },
        .used = 4,
    };
}

uint32_t ls_rng_u32(ls_rng *rng)
{
    if (rng->used == 4) {
        ls__philox(rng->key, rng->counter, rng->block);
        if (++rng->counter[0] == 0) rng->counter[1]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

static uint64_t next_u64(ls_rng *rng)
{
    uint64_t high = ls_rng_u32(rng);
    return high << 32 | ls_rng_u32(rng);
}

double ls_rng_uniform(ls_rng *rng)
{
    return (double)(next_u64(rng) >> 11) * 0x1p-53;
}

double ls_rng_normal(ls_rng *rng)
{
    /* Box and Muller, "A note on the generation of random normal deviates", 1958; the second value
     * is given up so that a stream has no hidden state. */
    double radius = sqrt(-2.0 * log(1.0 - ls_rng_uniform(rng)));
    return radius * cos(2.0 * 3.14159265358979323846 * ls_rng_uniform(rng));
}

int64_t ls_rng_below(ls_rng *rng, int64_t limit)
{
    if (limit <= 1) return 0;
    uint64_t n = (uint64_t)limit;
    uint64_t biased = -n % n; /* 2^64 mod n: as many draws are thrown away */
    uint64_t x;
    do x = next_u64(rng);
    while (x < biased);
    return (int64_t)(x % n);
}

/* A Feistel network over the rectangle rows x columns that just covers [0, n) (Black and Rogaway,
 * "Ciphers with arbitrary finite domains", CT-RSA 2002): fewer than rows positions lie outside, so
 * walking the cycle back into [0, n) is rarely needed. */
void ls__permutation_init(ls__permutation *p, uint64_t seed, const char *purpose, uint64_t a,
                          int64_t n)
{
    LS_ASSERT(n > 0);
    uint64_t rows = (uint64_t)ceil(sqrt((double)n));
    p->n = (uint64_t)n;
    p->rows = rows;
    p->columns = (p->n + rows - 1) / rows;
    ls_rng rng;
    ls__rng_init(&rng, seed, purpose, a, 0);
    for (int i = 0; i < LS__PERMUTATION_ROUNDS; i++) p->keys[i] = next_u64(&rng);
}

/* x reduced to [0, limit) by its high bits, which is far cheaper than a division (Lemire, "Fast
 * random integer generation in an interval", TOMACS 2019). */
static uint64_t reduced(uint64_t x, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)x * limit) >> 64);
}

/* (a + b) mod limit for both in [0, limit). */
static uint64_t sum_below(uint64_t a, uint64_t b, uint64_t limit)
{
    uint64_t sum = a + b;
    return sum < limit ? sum : sum - limit;
}

static uint64_t permute_once(const ls__permutation *p, uint64_t x)
{
    uint64_t left = x / p->columns, right = x % p->columns; /* left < rows, right < columns */
    for (int i = 0; i < LS__PERMUTATION_ROUNDS; i += 2) {
        left = sum_below(left, reduced(mix(right + p->keys[i]), p->rows), p->rows);
        right = sum_below(right, reduced(mix(left + p->keys[i + 1]), p->columns), p->columns);
    }
    return left * p->columns + right;
}

int64_t ls__permutation_at(const ls__permutation *p, int64_t position)
{
    LS_ASSERT(position >= 0 && (uint64_t)position < p->n);
    uint64_t x = (uint64_t)position;
    do x = permute_once(p, x);
    while (x >= p->n);
    return (int64_t)x;
}

int64_t ls__random_permute(uint64_t seed, const char *purpose, uint64_t a, int64_t n,
                           int64_t position)
{
    ls__permutation p;
    ls__permutation_init(&p, seed, purpose, a, n);
    return ls__permutation_at(&p, position);
}
