/* The loops give the same bits whatever instructions they use, and programs for the tree combine in
 * the tree's order whichever subtrees are given. */
#include "testing.h"

#include "base/random.h"
#include "comm/reduction.h"

enum { COUNT = 1037, NBYTES = COUNT * 8 };

/* Random bits: NaNs, infinities, denormals and all. */
static void fill(void *array, size_t nbytes, uint64_t stream)
{
    ls_rng rng;
    ls__rng_init(&rng, 3, "bits", stream, 0);
    for (size_t at = 0; at < nbytes; at += 4) {
        uint32_t word = ls_rng_u32(&rng);
        memcpy((char *)array + at, &word, nbytes - at < 4 ? nbytes - at : 4);
    }
}

/* NaNs compare by being NaN: which one a sum of two keeps is the hardware's choice. */
static bool same(const void *a, const void *b, int64_t count, ls_dtype type)
{
    size_t size = ls_dtype_size(type);
    for (int64_t i = 0; i < count; i++) {
        const char *x = (const char *)a + (size_t)i * size, *y = (const char *)b + (size_t)i * size;
        if (memcmp(x, y, size) == 0) continue;
        float f[2];
        double d[2];
        memcpy(&f[0], x, type == LS_DTYPE_F32 ? 4 : 0),
            memcpy(&f[1], y, type == LS_DTYPE_F32 ? 4 : 0);
        memcpy(&d[0], x, type == LS_DTYPE_F64 ? 8 : 0),
            memcpy(&d[1], y, type == LS_DTYPE_F64 ? 8 : 0);
        if (type == LS_DTYPE_F32 && f[0] != f[0] && f[1] != f[1]) continue;
        if (type == LS_DTYPE_F64 && d[0] != d[0] && d[1] != d[1]) continue;
        return false;
    }
    return true;
}

static void test_combine(void **state)
{
    (void)state;
    static unsigned char a[NBYTES], b[NBYTES], want[NBYTES], got[NBYTES], other[NBYTES];
    const ls__kernels *best = ls__kernels_best(), *plain = ls__kernels_portable();
    fill(a, NBYTES, 1);
    fill(b, NBYTES, 2);
    for (ls_dtype type = LS_DTYPE_F32; type <= LS_DTYPE_U64; type++) {
        if (type == LS_DTYPE_BF16) continue;
        for (ls_reduce op = LS_REDUCE_SUM; op <= LS_REDUCE_MAX; op++) {
            plain->combine[type][op](want, a, b, COUNT);
            best->combine[type][op](got, a, b, COUNT);
            assert_true(same(want, got, COUNT, type));
            best->combine_twice[type][op](got, other, a, b, COUNT);
            assert_true(same(want, got, COUNT, type) && same(want, other, COUNT, type));
            memcpy(got, a, NBYTES);
            best->combine[type][op](got, got, b, COUNT); /* in place */
            assert_true(same(want, got, COUNT, type));
        }
    }
}

static void test_copy(void **state)
{
    (void)state;
    static unsigned char a[NBYTES], got[NBYTES + 8];
    fill(a, NBYTES, 5);
    for (size_t n = 0; n < 1100; n += 37) {
        memset(got, 7, sizeof got);
        ls__kernels_best()->copy(got + 3, a + 1, n);
        assert_memory_equal(got + 3, a + 1, n);
        assert_true(got[2] == 7 && got[3 + n] == 7);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    static uint16_t all[65536], back[65536], portable[65536];
    static float wide[65536];
    const ls__kernels *best = ls__kernels_best();
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    best->widen(wide, all, 65536);
    best->narrow(back, wide, 65536);
    for (int i = 0; i < 65536; i++) {
        bool nan = (i & 0x7f80) == 0x7f80 && (i & 0x7f);
        assert_int_equal(back[i], nan ? i | 0x40 : i); /* a NaN stays one, and is quiet */
    }
    fill(wide, sizeof wide, 9);
    best->narrow(back, wide, 65536);
    ls__kernels_portable()->narrow(portable, wide, 65536);
    assert_memory_equal(back, portable, sizeof back);
    const float ties[] = { 1.00390625f, 1.01171875f }; /* halfway: to the even neighbour */
    best->narrow(back, ties, 2);
    assert_int_equal(back[0], 0x3f80);
    assert_int_equal(back[1], 0x3f82);
}

static void test_floats(void **state)
{
    (void)state;
    static float a[COUNT], b[COUNT], want[COUNT], got[COUNT];
    const ls__kernels *best = ls__kernels_best(), *plain = ls__kernels_portable();
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(i * 7919 % 1013) / 7.0f - 60.0f;
        b[i] = (float)(i * 104729 % 997) / 3.0f - 150.0f;
    }
    plain->add_scaled(want, a, 0.3f, b, 0.7f, COUNT);
    best->add_scaled(got, a, 0.3f, b, 0.7f, COUNT);
    assert_memory_equal(want, got, sizeof want);
    for (int i = 0; i < COUNT; i++) {
        volatile float x = 0.3f * a[i], y = 0.7f * b[i]; /* rounded, not contracted */
        assert_true(want[i] == x + y);
    }
    plain->scale(want, a, 0.3f, COUNT);
    best->scale(got, a, 0.3f, COUNT);
    assert_memory_equal(want, got, sizeof want);
    for (size_t n = 0; n < 40; n++) assert_true(plain->norm2(a, n) == best->norm2(a, n));
    assert_true(plain->norm2(a, COUNT) == best->norm2(a, COUNT));
}

/* The sum of the sources in the node, by splitting it in two until there is one. */
static float split(const int *leaves, const float *values, int n, int first, int span)
{
    int middle = 0;
    if (n == 1) return values[0];
    while (middle < n && leaves[middle] < first + span / 2) middle++;
    if (middle == 0) return split(leaves, values, n, first + span / 2, span / 2);
    if (middle == n) return split(leaves, values, n, first, span / 2);
    return split(leaves, values, middle, first, span / 2) +
           split(leaves + middle, values + middle, n - middle, first + span / 2, span / 2);
}

static void test_programs(void **state)
{
    (void)state;
    enum { MOST = 512 };
    static float values[MOST];
    static const float *sources[MOST];
    static float ones[MOST];
    static int leaves[MOST];
    ls__tree *tree;
    ls_rng rng;
    ls__rng_init(&rng, 11, "trees", 0, 0);
    assert_ok(ls__tree_create(MOST, &tree));
    for (int round = 0; round < 300; round++) {
        int n = 0;
        for (int leaf = 0; leaf < MOST; leaf++)
            if (ls_rng_below(&rng, MOST) < round * 2) leaves[n++] = leaf;
        if (n == 0) continue;
        for (int i = 0; i < n; i++) {
            values[i] = (float)ls_rng_normal(&rng);
            sources[i] = &values[i];
            ones[i] = 1.0f;
        }
        float got;
        ls__tree_build(tree, leaves, n);
        assert_int_equal(tree->nops, n - 1);
        ls__reduce_scaled(ls__kernels_best(), tree, &got, sources, ones, 0, 1);
        assert_true(got == split(leaves, values, n, 0, MOST));
    }
    ls__tree_destroy(tree);
}

static void test_node(void **state)
{
    (void)state;
    int first;
    assert_int_equal(ls__tree_node(5, 5, &first), 1);
    assert_int_equal(first, 5);
    assert_int_equal(ls__tree_node(4, 5, &first), 2);
    assert_int_equal(first, 4);
    assert_int_equal(ls__tree_node(3, 4, &first), 8);
    assert_int_equal(first, 0);
    assert_int_equal(ls__tree_node(9, 11, &first), 4);
    assert_int_equal(first, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combine),  cmocka_unit_test(test_copy),
        cmocka_unit_test(test_bf16),     cmocka_unit_test(test_floats),
        cmocka_unit_test(test_programs), cmocka_unit_test(test_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
