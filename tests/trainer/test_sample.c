/* ls_sample: frequencies against probabilities, the largest ones only, and scores that are equal,
 * infinite or no numbers. */
#include "testing.h"

#include <math.h>

#include <lockstep/trainer.h>

#include "base/random.h"

enum { DRAWS = 40000, COUNT = 6 };

static void draw(const float *scores, int64_t count, double temperature, int64_t top_k,
                 double *frequency)
{
    ls_rng rng;
    ls__rng_init(&rng, 3, "sample", 0, 0);
    memset(frequency, 0, (size_t)count * sizeof *frequency);
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = ls_sample(scores, count, temperature, top_k, &rng);
        assert_in_range(token, 0, count - 1);
        frequency[token] += 1;
    }
    for (int64_t i = 0; i < count; i++) frequency[i] /= DRAWS;
}

/* expected: weights, not normalized; a weight of 0 is never drawn. */
static void check(const float *scores, int64_t count, double temperature, int64_t top_k,
                  const double *expected)
{
    double frequency[COUNT], sum = 0;
    draw(scores, count, temperature, top_k, frequency);
    for (int64_t i = 0; i < count; i++) sum += expected[i];
    for (int64_t i = 0; i < count; i++) {
        double p = expected[i] / sum;
        if (fabs(frequency[i] - p) > 5 * sqrt(p * (1 - p) / DRAWS) + 1e-12)
            fail_msg("token %lld: drawn %g of the time, not %g", (long long)i, frequency[i], p);
    }
}

static void test_temperature(void **state)
{
    (void)state;
    static const float scores[COUNT] = { 1, -2, 0.5f, 3, 0, 2.5f };
    static const double temperatures[] = { 1, 0.3, 4, 1e-3, 1e9, INFINITY };
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        double expected[COUNT];
        for (int i = 0; i < COUNT; i++)
            expected[i] = exp(((double)scores[i] - 3) / temperatures[t]);
        check(scores, COUNT, temperatures[t], 0, expected);
        check(scores, COUNT, temperatures[t], COUNT, expected);
        check(scores, COUNT, temperatures[t], 1000, expected);
    }
}

static void test_top_k(void **state)
{
    (void)state;
    static const float scores[COUNT] = { 1, -2, 0.5f, 3, -0.0f, 2.5f };
    static const int rank[COUNT] = { 2, 5, 3, 0, 4, 1 };
    for (int64_t k = 1; k < COUNT; k++) {
        double expected[COUNT];
        for (int i = 0; i < COUNT; i++) expected[i] = rank[i] < k ? exp((double)scores[i]) : 0;
        check(scores, COUNT, 1, k, expected);
    }
}

/* Of equals at the limit the first ones. */
static void test_ties(void **state)
{
    (void)state;
    static const float scores[COUNT] = { 1, 2, 1, 2, 1, 0 };
    check(scores, COUNT, 1, 3, (const double[]) { 1, exp(1), 0, exp(1), 0, 0 });
    check(scores, COUNT, 1, 4, (const double[]) { 1, exp(1), 1, exp(1), 0, 0 });
    check(scores, COUNT, 1, 1, (const double[]) { 0, 1, 0, 0, 0, 0 });
    static const float zeros[COUNT] = { -1, 0.0f, -0.0f, 0.0f, -0.0f, -1 };
    check(zeros, COUNT, 1, 3, (const double[]) { 0, 1, 1, 1, 0, 0 });
    static const float same[COUNT] = { -7, -7, -7, -7, -7, -7 };
    check(same, COUNT, 0.5, 2, (const double[]) { 1, 1, 0, 0, 0, 0 });
}

static void test_greedy(void **state)
{
    (void)state;
    static const float scores[COUNT] = { 1, 2, 1, 2, NAN, 0 };
    static const double temperatures[] = { 0, -1, NAN };
    ls_rng rng;
    ls__rng_init(&rng, 3, "sample", 0, 0);
    for (int t = 0; t < 3; t++)
        assert_int_equal(ls_sample(scores, COUNT, temperatures[t], 0, &rng), 1);
    assert_int_equal(ls_sample(scores, 1, 0, 0, &rng), 0);
    assert_int_equal(ls_sample(scores, 1, 1, 5, &rng), 0);
}

static void test_no_numbers(void **state)
{
    (void)state;
    static const float some[COUNT] = { NAN, 0, -INFINITY, 0, -NAN, -INFINITY };
    check(some, COUNT, 1, 0, (const double[]) { 0, 1, 0, 1, 0, 0 });
    check(some, COUNT, 1, 5, (const double[]) { 0, 1, 0, 1, 0, 0 });
    check(some, COUNT, INFINITY, 4, (const double[]) { 0, 1, 0, 1, 0, 0 });
    static const float infinite[COUNT] = { 5, INFINITY, 3, INFINITY, NAN, -INFINITY };
    check(infinite, COUNT, 1, 0, (const double[]) { 0, 1, 0, 1, 0, 0 });
    check(infinite, COUNT, 1, 3, (const double[]) { 0, 1, 0, 1, 0, 0 });
    static const float nothing[COUNT] = { NAN, NAN, -INFINITY, NAN, NAN, NAN };
    check(nothing, COUNT, 1, 0, (const double[]) { 1, 0, 0, 0, 0, 0 });
    check(nothing, COUNT, 1, 2, (const double[]) { 1, 0, 0, 0, 0, 0 });
    static const float far[COUNT] = { 3e38f, -3e38f, 3e38f, 0, 1, 2 };
    check(far, COUNT, 1, 0, (const double[]) { 1, 0, 1, 0, 0, 0 });
}

/* Many scores: the limit is found among keys that agree in all but the last bits. */
static void test_limit(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    float *scores = malloc(MANY * sizeof *scores);
    ls_rng rng;
    ls__rng_init(&rng, 3, "sample", 0, 0);
    for (int i = 0; i < MANY; i++)
        scores[i] = 1 + (float)((i * 2503) % MANY) * 0x1p-23f; /* a permutation */
    for (int64_t k = 1; k < MANY; k = k * 3 + 1)
        for (int n = 0; n < 50; n++) {
            int32_t token = ls_sample(scores, MANY, 1, k, &rng);
            assert_in_range(token, 0, MANY - 1);
            assert_true((token * 2503) % MANY >= MANY - k);
        }
    free(scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temperature), cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_ties),        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_no_numbers),  cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
