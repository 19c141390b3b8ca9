/* Exponentials and what is made of them, against the C library in double precision: units of the last
 * place over the whole range, and what infinity and NaN become. */
#include "backend/cpu/lanes_math.h"

#include <math.h>

#include "testing.h"

enum kind { EXP, SIGMOID, REST, TANH, BELOW, DENSITY };

static float computed(enum kind kind, float x)
{
    lanes v = LANES_OF(x), a = v, b = v;
    float out[LANES];
    if (kind == EXP) lanes_exp_falling(&a);
    if (kind == SIGMOID || kind == REST) lanes_sigmoid(&v, &a, &b);
    if (kind == TANH) lanes_tanh(&a);
    if (kind == BELOW || kind == DENSITY) lanes_normal(&v, &a, &b);
    lanes_store(out, kind == REST || kind == DENSITY ? &b : &a);
    return out[LANES - 1];
}

static double wanted(enum kind kind, double x)
{
    switch (kind) {
    case EXP:
        return exp(x);
    case SIGMOID:
        return 1 / (1 + exp(-x));
    case REST:
        return 1 / (1 + exp(x));
    case TANH:
        return tanh(x);
    case BELOW:
        return erfc(-x * M_SQRT1_2) / 2;
    case DENSITY:
        return exp(-x * x / 2) / sqrt(2 * M_PI);
    }
    return NAN;
}

/* Off by how many units of the last place; what lies below 1e-37 may be 0. */
static double units_off(float got, double want)
{
    float near = (float)want;
    double unit = (double)(nextafterf(fabsf(near), INFINITY) - fabsf(near));
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(near) || isinf(got)) return got == near ? 0 : INFINITY;
    if (fabs(want) < 1e-37) return fabs((double)got) < 1.1e-37 ? 0 : INFINITY;
    return fabs((double)got - want) / unit;
}

static void check(enum kind kind, float low, float high, double tolerance)
{
    for (uint32_t bits = 0; bits <= 0x7f800000u; bits += 4093) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            union {
                uint32_t bits;
                float value;
            } x = { .bits = bits | sign << 31 };
            if (x.value < low || x.value > high) continue;
            double off = units_off(computed(kind, x.value), wanted(kind, (double)x.value));
            if (!(off <= tolerance))
                fail_msg("function %d of %.9g is %.9g, off by %.1f units", (int)kind,
                         (double)x.value, (double)computed(kind, x.value), off);
        }
    }
}

static void test_units(void **state)
{
    (void)state;
    check(EXP, -INFINITY, 80, 1);
    check(SIGMOID, -INFINITY, INFINITY, 3);
    check(REST, -INFINITY, INFINITY, 3);
    check(TANH, -INFINITY, INFINITY, 2);
    check(BELOW, -INFINITY, INFINITY, 6);
    check(DENSITY, -INFINITY, INFINITY, 3);
}

static void test_extremes(void **state)
{
    (void)state;
    for (enum kind kind = EXP; kind <= DENSITY; kind++)
        assert_true(isnan(computed(kind, NAN)) && isnan(computed(kind, -NAN)));
    assert_true(computed(EXP, -INFINITY) == 0 && computed(EXP, 0) == 1);
    assert_true(computed(EXP, -1e30f) == 0);
    assert_true(computed(SIGMOID, INFINITY) == 1 && computed(SIGMOID, -INFINITY) == 0);
    assert_true(computed(TANH, INFINITY) == 1 && computed(TANH, -INFINITY) == -1);
    assert_true(computed(TANH, -0.0f) == 0 && signbit(computed(TANH, -0.0f)));
    assert_true(computed(BELOW, INFINITY) == 1 && computed(BELOW, -INFINITY) == 0);
    assert_true(computed(BELOW, 0) == 0.5f && computed(DENSITY, INFINITY) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_units),
                                        cmocka_unit_test(test_extremes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
