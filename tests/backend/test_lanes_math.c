/* Exponentials and what is made of them, against the C library in double precision: units of the
 * last place over the whole range, and what infinity and NaN become. Rounding to bf16. */
#include "backend/cpu/lanes_half.h"

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

/* --- bf16 --- */

/* The nearest of the two neighbours, the even one when both are as near. */
static uint16_t half_of(uint32_t bits)
{
    uint32_t low = bits & 0xffff, up = low > 0x8000 || (low == 0x8000 && (bits >> 16 & 1));
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits >> 16) + up);
}

/* The sixteen at even places, and the same the other way round at odd ones. */
static void check_pairs(const uint32_t bits[LANES])
{
    uint32_t turned[LANES];
    uint16_t pairs[2 * LANES], again[2 * LANES];
    lanes even, odd;
    for (int i = 0; i < LANES; i++) turned[i] = bits[LANES - 1 - i];
    memcpy(&even, bits, sizeof even);
    memcpy(&odd, turned, sizeof odd);
    lanes_store_pairs(pairs, &even, &odd);
    lanes_load_pairs(&even, &odd, pairs);
    lanes_store_pairs(again, &even, &odd);
    assert_memory_equal(pairs, again, sizeof pairs);
    for (int i = 0; i < LANES; i++) {
        assert_int_equal(pairs[2 * i], half_of(bits[i]));
        assert_int_equal(pairs[2 * i + 1], half_of(turned[i]));
    }
}

static void test_half(void **state)
{
    (void)state;
    for (uint64_t first = 0; first < (uint64_t)1 << 32; first += 16 * 32749) {
        uint32_t bits[LANES], back[LANES];
        uint16_t half[LANES];
        lanes v;
        for (uint32_t i = 0; i < LANES; i++) bits[i] = (uint32_t)first + i * 32749 + (i & 8) * 4096;
        memcpy(&v, bits, sizeof v);
        lanes_store_half(half, &v);
        lanes_load_half(&v, half);
        memcpy(back, &v, sizeof v);
        for (int i = 0; i < LANES; i++) {
            assert_int_equal(half[i], half_of(bits[i]));
            assert_int_equal(back[i], (uint32_t)half[i] << 16);
        }
        check_pairs(bits);
    }
}

static void test_half_rest(void **state)
{
    (void)state;
    const lanes zero = { 0 };
    for (int64_t n = 1; n <= LANES; n++) {
        uint16_t in[2 * LANES], out[2 * LANES];
        float floats[2 * LANES];
        lanes v;
        for (int i = 0; i < 2 * LANES; i++)
            in[i] = (uint16_t)(0x3f80 + i), out[i] = 7, floats[i] = 7;
        lanes_load_any(&v, in, true, 5, n, &zero);
        lanes_store_any(out, true, 3, n, &v);
        lanes_store_any(floats, false, 3, n, &v);
        for (int i = 0; i < 2 * LANES; i++) {
            bool written = i >= 3 && i < 3 + n;
            assert_int_equal(out[i], written ? in[i + 2] : 7);
            assert_true((floats[i] == 7) == !written);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_units),
                                        cmocka_unit_test(test_extremes),
                                        cmocka_unit_test(test_half),
                                        cmocka_unit_test(test_half_rest) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
