/* The mean metric by itself, and named results. */
#include <math.h>

#include "testing.h"

#include "metric/metric_internal.h"

static ls_array array_of(ls_dtype type, int64_t count, const void *data)
{
    return (ls_array) { .type = type, .rank = 1, .shape = { count }, .data = (void *)data };
}

static double mean_of(const ls_array *values, int nvalues)
{
    double state[2] = { 0 };
    assert_int_equal(ls__mean_metric.state_size, sizeof state);
    ls__mean_metric.update(state, values, nvalues);
    return ls__mean_metric.result(state);
}

static void every_type(void **state)
{
    (void)state;
    const float f32[] = { 1, 2, 6 };
    const double f64[] = { 1, 2, 6 };
    const uint16_t bf16[] = { 0x3F80, 0x4000, 0x40C0 };
    const uint8_t u8[] = { 1, 2, 6 };
    const int32_t i32[] = { 1, 2, 6 };
    const int64_t i64[] = { 1, 2, 6 };
    const void *const data[] = { f32, f64, bf16, u8, i32, i64, i64 };
    for (ls_dtype type = LS_DTYPE_F32; type <= LS_DTYPE_U64; type++) {
        ls_array a = array_of(type, 3, data[type]);
        assert_true(mean_of(&a, 1) == 3);
    }
    ls_array scalar = { .type = LS_DTYPE_F32, .data = (void *)(f32 + 2) };
    assert_true(mean_of(&scalar, 1) == 6);
}

static void weights(void **state)
{
    (void)state;
    const float values[] = { 1, NAN, 3, 5 }, ones[] = { 1, 0, 1, 2 }, none[] = { 0, 0, 0, 0 };
    ls_array pair[] = { array_of(LS_DTYPE_F32, 4, values), array_of(LS_DTYPE_F32, 4, ones) };
    assert_true(mean_of(pair, 2) == 14 / 4.0);
    assert_true(isnan(mean_of(pair, 1)));
    pair[1].data = (void *)none;
    assert_true(isnan(mean_of(pair, 2))); /* of nothing */
}

/* Sums are kept in fp64: a million small values beside a large one are not lost. */
static void sums_are_exact_enough(void **state)
{
    (void)state;
    enum { N = 1000000 };
    static float values[N];
    for (int i = 0; i < N; i++) values[i] = i ? 0.5F : 16777216.0F;
    ls_array a = array_of(LS_DTYPE_F32, N, values);
    assert_true(mean_of(&a, 1) == (16777216.0 + 0.5 * (N - 1)) / N);
}

static void merging_adds(void **state)
{
    (void)state;
    const float values[] = { 1, 2, 3, 4, 10 };
    double whole[2] = { 0 }, part[2] = { 0 }, next[2] = { 0 };
    ls_array a = array_of(LS_DTYPE_F32, 5, values), b = array_of(LS_DTYPE_F32, 2, values),
             c = array_of(LS_DTYPE_F32, 3, values + 2);
    ls__mean_metric.update(whole, &a, 1);
    ls__mean_metric.update(part, &b, 1);
    ls__mean_metric.update(next, &c, 1);
    ls__mean_metric.merge(part, next);
    assert_memory_equal(whole, part, sizeof whole);
    ls__mean_metric.update(part, &c, 1); /* updates add to what is there */
    assert_true(ls__mean_metric.result(part) == 37 / 8.0);
}

static void values_by_name(void **state)
{
    (void)state;
    ls_values v = { .count = 2, .items = { { "loss", 0.5 }, { "accuracy", 0.9 } } };
    assert_true(ls_values_get(&v, "accuracy") == 0.9);
    assert_true(ls_values_get(&v, "loss") == 0.5);
    assert_true(isnan(ls_values_get(&v, "acc")));
    v.count = 1;
    assert_true(isnan(ls_values_get(&v, "accuracy")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(weights),
        cmocka_unit_test(sums_are_exact_enough),
        cmocka_unit_test(merging_adds),
        cmocka_unit_test(values_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
