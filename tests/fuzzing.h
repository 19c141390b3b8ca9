/* Fuzzing without a fuzzer: the drivers that ctest runs feed an entry with its seeds and with a
 * fixed number of mutations of them, the same ones on every machine. The preset fuzz (clang) builds
 * the same entries for libFuzzer. */
#ifndef LS_FUZZING_H
#define LS_FUZZING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#ifdef LS_FUZZ_DRIVER

static uint64_t fuzz_state = 0x9E3779B97F4A7C15u;

/* xorshift64* (Vigna, ACM TOMS 2016): a generator of the driver's own, whatever the library's does. */
static uint32_t fuzz_random(uint32_t below)
{
    fuzz_state ^= fuzz_state >> 12;
    fuzz_state ^= fuzz_state << 25;
    fuzz_state ^= fuzz_state >> 27;
    return (uint32_t)((fuzz_state * 0x2545F4914F6CDD1Du) >> 33) % below;
}

/* One small change: bits, bytes, edges of integers, cuts, repeats, insertions. data has room for
 * 2 * n + 16 bytes; returns the new size. */
static size_t fuzz_mutate(uint8_t *data, size_t n)
{
    static const uint8_t edges[] = { 0, 1, 0x7F, 0x80, 0xFF, '"', '\'', '{', '}', '[', ']', '\\' };
    if (n == 0) {
        data[0] = (uint8_t)fuzz_random(256);
        return 1;
    }
    size_t at = fuzz_random((uint32_t)n), length = 1 + fuzz_random(8);
    if (length > n - at) length = n - at;
    switch (fuzz_random(8)) {
    case 0:
        data[at] ^= (uint8_t)(1u << fuzz_random(8));
        return n;
    case 1:
        data[at] = (uint8_t)fuzz_random(256);
        return n;
    case 2:
        memset(data + at, edges[fuzz_random(sizeof edges)], length);
        return n;
    case 3:
        return at; /* cut off */
    case 4:        /* removed from the middle */
        memmove(data + at, data + at + length, n - at - length);
        return n - length;
    case 5: /* repeated */
        memmove(data + at + length, data + at, n - at);
        return n + length;
    case 6: /* inserted */
        memmove(data + at + 1, data + at, n - at);
        data[at] = edges[fuzz_random(sizeof edges)];
        return n + 1;
    default: /* copied from elsewhere */
        memmove(data + at, data + fuzz_random((uint32_t)(n - length + 1)), length);
        return n;
    }
}

/* The seed, every prefix of it (at most 4096), and rounds mutations of one to eight changes. */
static void fuzz_seed(const void *seed, size_t n, int rounds)
{
    enum { CHANGES = 8 };
    /* The input is in memory of exactly its size, so that a sanitizer sees a read beyond. */
    size_t room = 2 * n + 16 + 8 * CHANGES;
    uint8_t *scratch = malloc(room);
    if (!scratch) abort();
    for (int i = -(int)(n < 4096 ? n : 4096) - 1; i < rounds; i++) {
        size_t size = n;
        memcpy(scratch, seed, n);
        if (i < 0)
            size = n - (size_t)(-i - 1);
        else
            for (uint32_t k = 1 + fuzz_random(CHANGES); k > 0; k--)
                size = fuzz_mutate(scratch, size);
        uint8_t *input = malloc(size ? size : 1);
        if (!input) abort();
        memcpy(input, scratch, size);
        LLVMFuzzerTestOneInput(input, size);
        free(input);
    }
    free(scratch);
}

#endif
#endif
