/* Random streams as functions of what they are for: (seed, purpose, a, b) -> a stream. Purposes are
 * text: "init", "dropout", "sampler", "augment". */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <lockstep/base.h>

/* One block of Philox4x32-10. */
void ls__philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
/* The key of a (seed, purpose) pair: XXH3 of both. */
void ls__random_key(uint64_t seed, const char *purpose, uint32_t key[2]);
/* A stream that starts at counter (0, 0, a, b) folded so that distinct (a, b) of 64 bits each never
 * overlap within 2^32 draws. */
void ls__rng_init(ls_rng *rng, uint64_t seed, const char *purpose, uint64_t a, uint64_t b);
/* A bijection of [0, n): where position goes under the permutation keyed by (seed, purpose, a).
 * O(1) memory: a Feistel network over Philox with cycle walking. */
int64_t ls__random_permute(uint64_t seed, const char *purpose, uint64_t a, int64_t n,
                           int64_t position);

#endif
