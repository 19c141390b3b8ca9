/* Our own products against sums in double precision: edges, several passes, parts and panels, and
 * that cutting a product changes no bit. The plugin exports nothing, so its files are part of this
 * program. */
#include "backend/cpu/panel_move.c"
#include "backend/cpu/sgemm.c"
#include "backend/cpu/sgemm_block.c"
#include "backend/cpu/sgemm_pack.c"

#include <math.h>
#include <stdlib.h>

#include "testing.h"

enum { GAP = 3 /* floats behind every row */ };

typedef struct matrices {
    float *a, *b, *bias, *before, *c, *scratch;
} matrices;

static float *filled(int64_t count, uint32_t seed)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed / 2147483648.0f;
    }
    return x;
}

static void set_strides(sgemm *s)
{
    s->a_stride = (s->transpose_a ? s->m : s->k) + GAP;
    s->b_stride = (s->transpose_b ? s->k : s->n) + GAP;
    s->c_stride = s->n + GAP;
}

static matrices make(const sgemm *s)
{
    matrices x = { .a = filled((s->transpose_a ? s->k : s->m) * s->a_stride, 1),
                   .b = filled((s->transpose_b ? s->n : s->k) * s->b_stride, 2),
                   .bias = filled(s->n, 3),
                   .before = filled(s->m * s->c_stride, 4),
                   .c = filled(s->m * s->c_stride, 4),
                   .scratch = malloc(ls__sgemm_scratch(s)) };
    assert_non_null(x.scratch);
    return x;
}

static void drop(matrices *x)
{
    free(x->a), free(x->b), free(x->bias), free(x->before), free(x->c), free(x->scratch);
}

static double wanted(const sgemm *s, const matrices *x, int64_t i, int64_t j)
{
    double sum = s->bias ? (double)x->bias[j] : 0;
    if (s->sum) sum += (double)x->before[i * s->c_stride + j];
    for (int64_t k = 0; k < s->k; k++)
        sum += (double)x->a[s->transpose_a ? k * s->a_stride + i : i * s->a_stride + k] *
               (double)x->b[s->transpose_b ? j * s->b_stride + k : k * s->b_stride + j];
    return s->relu && sum < 0 ? 0 : sum;
}

static void check(sgemm s)
{
    set_strides(&s);
    if (!ls__sgemm_plan(&s)) return;
    matrices x = make(&s);
    double tolerance = 1e-7 * (double)(s.k + 8);
    ls__sgemm_run(&s, x.a, x.b, x.bias, x.c, x.scratch);
    for (int64_t i = 0; i < s.m; i++) {
        for (int64_t j = 0; j < s.n; j++) {
            double want = wanted(&s, &x, i, j), got = (double)x.c[i * s.c_stride + j];
            if (!(fabs(got - want) <= tolerance))
                fail_msg("%ldx%ldx%ld (%ld,%ld): %.9g, not %.9g", (long)s.m, (long)s.n, (long)s.k,
                         (long)i, (long)j, got, want);
        }
        assert_memory_equal(x.c + i * s.c_stride + s.n, x.before + i * s.c_stride + s.n,
                            GAP * sizeof(float));
    }
    drop(&x);
}

static const int64_t shapes[][3] = { { 1, 1, 1 },     { 7, 5, 3 },      { 8, 48, 16 },
                                     { 9, 49, 17 },   { 64, 64, 300 },  { 40, 100, 31 },
                                     { 13, 150, 64 }, { 450, 20, 257 }, { 33, 530, 40 } };

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int bits = 0; bits < 32; bits++)
            if (bits < 8 || i % 3 == 1)
                check((sgemm) { .m = shapes[i][0],
                                .n = shapes[i][1],
                                .k = shapes[i][2],
                                .transpose_a = bits & 1,
                                .transpose_b = bits & 2,
                                .sum = bits & 4,
                                .bias = bits & 8,
                                .relu = bits & 16 });
}

/* Rows [r, ...) and columns [c, ...) alone. */
static void test_cut(void **state)
{
    (void)state;
    enum { ROW = 5, COLUMN = 37 };
    for (int bits = 0; bits < 4; bits++) {
        sgemm s = { .m = 70, .n = 160, .k = 600, .transpose_a = bits & 1, .transpose_b = bits & 2 };
        set_strides(&s);
        if (!ls__sgemm_plan(&s)) return;
        matrices x = make(&s);
        ls__sgemm_run(&s, x.a, x.b, NULL, x.c, x.scratch);
        sgemm cut = s;
        cut.m -= ROW;
        cut.n -= COLUMN;
        ls__sgemm_plan(&cut);
        float *part = x.before + ROW * s.c_stride + COLUMN;
        ls__sgemm_run(&cut, x.a + ROW * (s.transpose_a ? 1 : s.a_stride),
                      x.b + COLUMN * (s.transpose_b ? s.b_stride : 1), NULL, part, x.scratch);
        for (int64_t i = 0; i < cut.m; i++)
            assert_memory_equal(part + i * s.c_stride, x.c + (ROW + i) * s.c_stride + COLUMN,
                                (size_t)cut.n * sizeof(float));
        drop(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_values), cmocka_unit_test(test_cut) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
