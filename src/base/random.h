/* Random streams as functions of what they are for: (seed, purpose, a, b) -> a stream. Purposes are
 * text: "init", "dropout", "sampler", "augment". */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <lockstep/base.h>

/* One block of Philox4x32-10. */
void ls__philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
/* The key of a (seed, purpose) pair: XXH3 of both. */
void ls__random_key(uint64_t seed, const char *purpose, uint32_t key[2]);
/* The stream of (seed, purpose, a, b): for one (seed, purpose) no two streams share a block. */
void ls__rng_init(ls_rng *rng, uint64_t seed, const char *purpose, uint64_t a, uint64_t b);

/* A bijection of [0, n), keyed by (seed, purpose, a), in O(1) memory: a Feistel network with cycle
 * walking. n > 0. Plain data: may be copied and used by several threads. */
enum { LS__PERMUTATION_ROUNDS = 8 };
typedef struct ls__permutation {
    uint64_t n, rows, columns;
    uint64_t keys[LS__PERMUTATION_ROUNDS];
} ls__permutation;
void ls__permutation_init(ls__permutation *p, uint64_t seed, const char *purpose, uint64_t a,
                          int64_t n);
int64_t ls__permutation_at(const ls__permutation *p, int64_t position); /* position in [0, n) */
/* The same for one position. */
int64_t ls__random_permute(uint64_t seed, const char *purpose, uint64_t a, int64_t n,
                           int64_t position);

#endif
