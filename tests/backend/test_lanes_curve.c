/* Curves and their derivatives against the C library in double precision, over the whole range. */
#include "backend/cpu/lanes_curve.h"

#include <math.h>

#include "testing.h"

static const double two_root = 1.59576912160573071; /* 2 sqrt(2 / pi) */

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}

static double cube(double x)
{
    return two_root * (x + 0.044715 * x * x * x);
}

static double value_at(ls__activation_kind kind, double x)
{
    switch (kind) {
    case LS__ACTIVATION_GELU:
        return x * erfc(-x * M_SQRT1_2) / 2;
    case LS__ACTIVATION_GELU_TANH:
        return x * sigmoid_of(cube(x));
    case LS__ACTIVATION_SILU:
        return x * sigmoid_of(x);
    case LS__ACTIVATION_TANH:
        return tanh(x);
    case LS__ACTIVATION_SIGMOID:
        return sigmoid_of(x);
    }
    return NAN;
}

/* The derivative is the sum of two parts. */
static void parts_at(ls__activation_kind kind, double x, double *first, double *second)
{
    double z = kind == LS__ACTIVATION_GELU_TANH ? cube(x) : x,
           both = sigmoid_of(z) * sigmoid_of(-z);
    *first = kind == LS__ACTIVATION_SIGMOID ? both : sigmoid_of(z);
    *second = kind == LS__ACTIVATION_SIGMOID ? 0 : x * both;
    if (kind == LS__ACTIVATION_GELU_TANH) *second *= two_root * (1 + 0.134145 * x * x);
    if (kind == LS__ACTIVATION_GELU) {
        *first = erfc(-x * M_SQRT1_2) / 2;
        *second = x * exp(-x * x / 2) / sqrt(2 * M_PI);
    }
    if (kind == LS__ACTIVATION_TANH) {
        *first = 4 * sigmoid_of(2 * x) * sigmoid_of(-2 * x);
        *second = 0;
    }
}

typedef struct curve_result {
    float value, slope;       /* both at once */
    float alone, slope_alone; /* curve, slope; the latter of 1 */
} curve_result;

static void compute(ls__activation_kind kind, float x, curve_result *out)
{
    lanes v = LANES_OF(x), both = v, d = { 0 }, alone = v, one = LANES_OF(1.0f);
    float all[4][LANES];
    lanes_curve_and_slope(kind, &both, &d);
    lanes_curve(kind, &alone);
    lanes_slope(kind, &v, &one);
    lanes_store(all[0], &both);
    lanes_store(all[1], &d);
    lanes_store(all[2], &alone);
    lanes_store(all[3], &one);
    *out = (curve_result) { all[0][7], all[1][7], all[2][7], all[3][7] };
}

/* What lies below 1e-34 may be 0, and the other way round. */
static void check_near(ls__activation_kind kind, float x, float got, double want, double unit,
                       double units)
{
    double tolerance = units * 0x1p-23 * unit + 1e-34;
    if (!(fabs((double)got - want) <= tolerance))
        fail_msg("kind %d at %.9g is %.9g, not %.9g: off by %.1f units", (int)kind, (double)x,
                 (double)got, want, fabs((double)got - want) / (0x1p-23 * unit));
}

/* The approximation's sigmoid is of a rounded product, which costs units as the product grows. */
static void check(ls__activation_kind kind, float x)
{
    bool rounded = kind == LS__ACTIVATION_GELU_TANH && x < 0;
    double units = rounded ? 4 - 2 * cube((double)x) : 8, want = value_at(kind, (double)x);
    double first, second;
    curve_result got;
    compute(kind, x, &got);
    parts_at(kind, (double)x, &first, &second);
    check_near(kind, x, got.value, want, fabs(want), units);
    check_near(kind, x, got.slope, first + second, fabs(first) + fabs(second), units);
    check_near(kind, x, got.alone, (double)got.value, fabs(want), 2);
    check_near(kind, x, got.slope_alone, (double)got.slope, fabs(first) + fabs(second), 2);
}

static void test_units(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 16381) {
        union {
            uint32_t bits;
            float value;
        } x = { .bits = bits };
        for (int kind = 0; kind <= LS__ACTIVATION_SIGMOID; kind++) {
            check((ls__activation_kind)kind, x.value);
            check((ls__activation_kind)kind, -x.value);
        }
    }
}

static void test_extremes(void **state)
{
    (void)state;
    curve_result got;
    for (int kind = 0; kind <= LS__ACTIVATION_SIGMOID; kind++) {
        compute((ls__activation_kind)kind, NAN, &got);
        assert_true(isnan(got.value) && isnan(got.slope));
        compute((ls__activation_kind)kind, -NAN, &got);
        assert_true(isnan(got.value) && isnan(got.slope));
    }
    compute(LS__ACTIVATION_GELU_TANH, 0, &got);
    assert_true(got.value == 0 && got.slope == 0.5f);
    compute(LS__ACTIVATION_GELU_TANH, INFINITY, &got);
    assert_true(isinf(got.value) && got.slope == 1);
    compute(LS__ACTIVATION_GELU_TANH, -INFINITY, &got);
    assert_true(isnan(got.value) && isnan(got.slope));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_units),
                                        cmocka_unit_test(test_extremes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
