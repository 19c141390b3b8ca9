/* Philox against its authors' vectors; streams that do not overlap; permutations that are ones. */
#include "testing.h"

#include <math.h>

#include "base/memory.h"
#include "base/random.h"

/* kat_vectors of Random123 (Salmon et al.): counter, key, result. */
static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u },
          { ~0u, ~0u },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t out[4];
        ls__philox(vectors[i].key, vectors[i].counter, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

static void streams_are_functions_of_their_names(void **state)
{
    (void)state;
    ls_rng first, again, other;
    ls__rng_init(&first, 7, "dropout", 3, 4);
    ls__rng_init(&again, 7, "dropout", 3, 4);
    for (int i = 0; i < 100; i++) assert_int_equal(ls_rng_u32(&first), ls_rng_u32(&again));

    const struct {
        uint64_t seed, a, b;
        const char *purpose;
    } others[] = { { 8, 3, 4, "dropout" },
                   { 7, 3, 4, "init" },
                   { 7, 4, 4, "dropout" },
                   { 7, 3, 5, "dropout" },
                   { 7, 3, 1ull << 40, "dropout" } };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ls__rng_init(&first, 7, "dropout", 3, 4);
        ls__rng_init(&other, others[i].seed, others[i].purpose, others[i].a, others[i].b);
        int same = 0;
        for (int k = 0; k < 100; k++) same += ls_rng_u32(&first) == ls_rng_u32(&other);
        assert_in_range(same, 0, 1);
    }
}

/* The block counter carries into its second word and leaves the words of b alone. */
static void a_stream_is_longer_than_32_bits_of_blocks(void **state)
{
    (void)state;
    ls_rng rng;
    ls__rng_init(&rng, 1, "x", 0, 9);
    rng.counter[0] = UINT32_MAX;
    for (int i = 0; i < 5; i++) ls_rng_u32(&rng);
    assert_int_equal(rng.counter[0], 1);
    assert_int_equal(rng.counter[1], 1);
    assert_int_equal(rng.counter[2], 9);
}

static void draws_have_the_right_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    ls_rng rng;
    ls__rng_init(&rng, 42, "moments", 0, 0);
    double sum = 0, square = 0, normal = 0, normal2 = 0, normal4 = 0;
    for (int i = 0; i < N; i++) {
        double u = ls_rng_uniform(&rng), z = ls_rng_normal(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u;
        square += u * u;
        normal += z;
        normal2 += z * z;
        normal4 += z * z * z * z;
    }
    assert_true(fabs(sum / N - 0.5) < 0.005);
    assert_true(fabs(square / N - 1.0 / 3) < 0.005);
    assert_true(fabs(normal / N) < 0.01);
    assert_true(fabs(normal2 / N - 1) < 0.02);
    assert_true(fabs(normal4 / N - 3) < 0.15);
}

static void below_covers_its_range_evenly(void **state)
{
    (void)state;
    enum { LIMIT = 7, N = 70000 };
    int64_t seen[LIMIT] = { 0 };
    ls_rng rng;
    ls__rng_init(&rng, 1, "below", 0, 0);
    for (int i = 0; i < N; i++) {
        int64_t x = ls_rng_below(&rng, LIMIT);
        assert_in_range(x, 0, LIMIT - 1);
        seen[x]++;
    }
    for (int i = 0; i < LIMIT; i++) assert_in_range(seen[i], 9500, 10500);
    for (int i = 0; i < 100; i++) {
        int64_t x = ls_rng_below(&rng, INT64_MAX);
        assert_true(x >= 0 && x < INT64_MAX);
    }
    assert_int_equal(ls_rng_below(&rng, 1), 0);
}

static void permutations_are_bijections(void **state)
{
    (void)state;
    enum { LARGEST = 3000 };
    char seen[LARGEST];
    for (int64_t n = 1; n <= LARGEST; n = n < 300 ? n + 1 : n + 271) {
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < n; i++) {
            int64_t x = ls__random_permute(5, "sampler", 2, n, i);
            assert_in_range(x, 0, n - 1);
            assert_int_equal(seen[x], 0);
            seen[x] = 1;
        }
    }
    ls__permutation huge;
    ls__permutation_init(&huge, 5, "sampler", 0, INT64_MAX);
    int64_t a = ls__permutation_at(&huge, 0), b = ls__permutation_at(&huge, INT64_MAX - 1);
    assert_true(a >= 0 && b >= 0 && a < INT64_MAX && b < INT64_MAX && a != b);
}

/* Where position 0 goes, over epochs; and neighbours do not stay neighbours. */
static void permutations_look_random(void **state)
{
    (void)state;
    enum { N = 10, EPOCHS = 20000 };
    int seen[N] = { 0 };
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        seen[ls__random_permute(1, "sampler", epoch, N, 0)]++;
    double chi2 = 0, expected = (double)EPOCHS / N;
    for (int i = 0; i < N; i++) chi2 += (seen[i] - expected) * (seen[i] - expected) / expected;
    assert_true(chi2 < 33.7); /* 9 degrees of freedom, p = 0.0001 */

    ls__permutation p;
    ls__permutation_init(&p, 1, "sampler", 0, 60000);
    int neighbours = 0;
    for (int64_t i = 1; i < 60000; i++)
        neighbours += ls__permutation_at(&p, i) == ls__permutation_at(&p, i - 1) + 1;
    assert_in_range(neighbours, 0, 12); /* one expected */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(streams_are_functions_of_their_names),
        cmocka_unit_test(a_stream_is_longer_than_32_bits_of_blocks),
        cmocka_unit_test(draws_have_the_right_moments),
        cmocka_unit_test(below_covers_its_range_evenly),
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(permutations_look_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
