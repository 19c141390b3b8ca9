/* Runs a fuzz entry without a fuzzer: each seed as it is, then mutated, the same every time. The
 * entry comes from tests/ROOM/fuzz_X.c, which the test includes; the same file builds with
 * clang -fsanitize=fuzzer. */
#ifndef LS_FUZZING_H
#define LS_FUZZING_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t fuzz_state = 88172645463325252u;

/* Marsaglia's xorshift64. */
static inline uint64_t fuzz_random(uint64_t below)
{
    fuzz_state ^= fuzz_state << 13;
    fuzz_state ^= fuzz_state >> 7;
    fuzz_state ^= fuzz_state << 17;
    return below ? fuzz_state % below : 0;
}

/* In a buffer of exactly this size, so that the address sanitizer sees every byte too far. */
static inline void fuzz_one(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) abort();
    if (size) memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* One random change of (size) bytes in a buffer of (room); the new size. */
static inline size_t fuzz_mutate(uint8_t *data, size_t size, size_t room)
{
    static const uint8_t edges[] = { 0, 1, 0x7f, 0x80, 0xff, '0', '9', '"', '\\', '\n', '-', '=' };
    size_t at = fuzz_random(size), count = 1 + fuzz_random(8);
    switch (fuzz_random(6)) {
    case 0: /* flip a bit */
        if (size) data[at] ^= (uint8_t)(1u << fuzz_random(8));
        return size;
    case 1: /* an edge value */
        if (size) data[at] = edges[fuzz_random(sizeof edges)];
        return size;
    case 2: /* cut the end off */
        return fuzz_random(size + 1);
    case 3: /* take some bytes out */
        if (count > size - at) count = size - at;
        memmove(data + at, data + at + count, size - at - count);
        return size - count;
    case 4: /* repeat some bytes */
        if (count > size - at) count = size - at;
        if (size + count > room) return size;
        memmove(data + at + count, data + at, size - at);
        return size + count;
    default: /* random bytes */
        if (count > size - at) count = size - at;
        for (size_t i = 0; i < count; i++) data[at + i] = (uint8_t)fuzz_random(256);
        return size;
    }
}

static inline void fuzz_seed(const void *seed, size_t size, int rounds)
{
    size_t room = 2 * size + 64;
    uint8_t *data = malloc(room);
    if (!data) abort();
    fuzz_one(seed, size);
    for (int round = 0; round < rounds; round++) {
        memcpy(data, seed, size);
        size_t n = size;
        for (uint64_t k = 0; k <= fuzz_random(4); k++) n = fuzz_mutate(data, n, room);
        fuzz_one(data, n);
    }
    free(data);
}

#endif
