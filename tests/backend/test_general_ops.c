/* Broadcasting, reductions, moves and elementwise losses on the CPU backend, at odd shapes and with
 * operands that no tile cuts, against the reference executor. */
#include "compare.h"
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

#include "base/memory.h"

static const int64_t batches[] = { 1, 3, 67 };
#define FOR_BATCHES(b)                                                                             \
    for (size_t b = 0; b < compare_batches(sizeof batches / sizeof *batches); b++)

typedef ls_tensor *binary_fn(ls_tensor *a, ls_tensor *b);
static binary_fn *const binaries[] = { ls_add, ls_sub, ls_mul, ls_div };

typedef ls_tensor *op_fn(ls_graph *g, ls_tensor *x, int variant);

typedef struct op_case {
    op_fn *op;
    int variant;
    bool convolved; /* x comes from a convolution: in another layout perhaps */
} op_case;

static ls_tensor *param_of(ls_graph *g, const char *name, int rank, const int64_t *shape)
{
    ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
    return ls_param(g, name, &init, rank, shape);
}

/* In [2, 4]: to divide by. */
static ls_tensor *far_from_zero(ls_tensor *x)
{
    return ls_scale(x, 1, 3);
}

static void one_op(ls_graph *g, void *user)
{
    const op_case *c = user;
    ls_tensor *x = ls_input(g, "x");
    if (c->convolved)
        x = ls_conv2d(x, "first", &(ls_conv2d_options) { .channels = 18, .kernel = 1 });
    ls_tensor *y = c->op(g, x, c->variant);
    assert_non_null(y);
    ls_output(g, "y", y);
    if (ls_tensor_rank(y) == 1) y = ls_reshape(y, 2, (const int64_t[]) { -1, 1 });
    ls_minimize(g, ls_cross_entropy(ls_linear(y, "scores", 4), ls_input(g, "label")), NULL);
}

static void check_on(op_fn *op, int variant, bool convolved, int64_t batch, int rank,
                     const int64_t *shape)
{
    op_case c = { .op = op, .variant = variant, .convolved = convolved };
    ls_field fields[] = { { "x", LS_DTYPE_F32, rank, { 0 } }, { "label", LS_DTYPE_U8, 0, { 0 } } };
    memcpy(fields[0].shape, shape, (size_t)rank * sizeof *shape);
    compare_options o = { .step = one_op,
                          .user = &c,
                          .batch = batch,
                          .fields = fields,
                          .nfields = 2,
                          .classes = 4,
                          .input_gradients = true,
                          .misaligned = batch == 3,
                          .tolerance = 3e-5 };
    compare_with_reference(&o);
    o.stage = LS_STAGE_PREDICT;
    compare_with_reference(&o);
    if (batch != 3) return;
    o.stage =
        LS_STAGE_TRAIN; /* y, which a product reads, holds bf16; a rounding may fall otherwise */
    o.precision = LS_PRECISION_BF16_MIXED;
    o.tolerance = 2.0 / 256;
    compare_with_reference(&o);
}

/* --- broadcasting --- */

/* x (B,P,Q,R) with a parameter of every shape that broadcasts to it: bit i of the mask says whether
 * the parameter spans dimension i. variant: mask + 16 * (operation + 4 * order + 8 * rectified) */
static ls_tensor *with_param(ls_graph *g, ls_tensor *x, int variant)
{
    int64_t shape[4], missing = 0;
    binary_fn *op = binaries[variant / 16 % 4];
    for (int i = 0; i < 4; i++) shape[i] = variant >> i & 1 ? ls_tensor_dim(x, i) : 1;
    while (missing < 4 && shape[missing] == 1) missing++; /* leading ones may be left out */
    if (variant & 1 || variant % 3 == 0) missing = 0;
    ls_tensor *p = far_from_zero(param_of(g, "p", (int)(4 - missing), shape + missing));
    bool swapped = variant / 64 % 2;
    ls_tensor *y = swapped ? op(p, far_from_zero(x)) : op(x, p);
    return variant / 128 ? ls_relu(ls_sub(y, ls_scale(y, 0.5f, 0.3f))) : y;
}

static void test_a_parameter(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = { { 2, 5, 3 }, { 1, 1, 1 }, { 3, 1, 37 } };
    FOR_BATCHES(b)
    for (size_t s = 0; s < 3; s++)
        for (int variant = 0; variant < 256; variant++) {
            if (batches[b] > 60 && s > 0 && variant % 5 != 0) continue;
            if (!compare_in_full() && ((size_t)variant + b + s) % 3 != 0) continue;
            check_on(with_param, variant, false, batches[b], 3, shapes[s]);
        }
}

static void test_a_blocked_layout(void **state)
{
    (void)state;
    FOR_BATCHES(b)
    for (int variant = (int)b; variant < 256; variant += compare_in_full() ? 3 : 7)
        check_on(with_param, variant, true, batches[b], 3, (const int64_t[]) { 3, 4, 5 });
}

/* Samples with samples, where each broadcasts in one dimension; the parameter's own sums. */
static ls_tensor *both_ways(ls_graph *g, ls_tensor *x, int variant)
{
    int64_t b = ls_tensor_dim(x, 0), t = ls_tensor_dim(x, 1), c = ls_tensor_dim(x, 2);
    ls_tensor *rows = ls_reshape(ls_mean(x, 2), 3, (const int64_t[]) { b, t, 1 });
    ls_tensor *columns = ls_reshape(ls_sum(x, 1), 3, (const int64_t[]) { b, 1, c });
    ls_tensor *p = param_of(g, "p", 2, (const int64_t[]) { t, 1 });
    ls_tensor *q = param_of(g, "q", 2, (const int64_t[]) { 1, c });
    binary_fn *op = binaries[variant % 4];
    ls_tensor *y = op(far_from_zero(rows), far_from_zero(columns));
    y = ls_mul(y, op(far_from_zero(p), far_from_zero(q)));
    y = ls_add(y, param_of(g, "scalar", 0, NULL));
    return ls_relu(ls_add(param_of(g, "line", 1, &c), ls_mul(y, y)));
}

/* add + relu in one step where shapes broadcast. */
static ls_tensor *rectified(ls_graph *g, ls_tensor *x, int variant)
{
    int64_t c = ls_tensor_dim(x, 2), t = ls_tensor_dim(x, 1);
    ls_tensor *p =
        variant ? param_of(g, "p", 2, (const int64_t[]) { t, 1 }) : param_of(g, "p", 1, &c);
    return ls_relu(ls_add(x, p));
}

static void test_samples(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 7, 5 }, { 1, 33 }, { 16, 1 } };
    FOR_BATCHES(b)
    for (size_t s = 0; s < 3; s++)
        for (int variant = 0; variant < 4; variant++) {
            check_on(both_ways, variant, false, batches[b], 2, shapes[s]);
            check_on(rectified, variant % 2, false, batches[b], 2, shapes[s]);
        }
}

/* --- reductions --- */

/* variant: dimension + 4 * kind; a relu gives equals to choose from. */
static ls_tensor *reduced(ls_graph *g, ls_tensor *x, int variant)
{
    static ls_tensor *(*const kinds[])(ls_tensor * x, int dim) = { ls_sum, ls_mean, ls_max };
    (void)g;
    return kinds[variant / 4](ls_relu(x), variant % 4);
}

static void test_reductions(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = { { 5, 3, 4 }, { 1, 1, 1 }, { 2, 19, 33 }, { 40, 1, 3 } };
    FOR_BATCHES(b)
    for (size_t s = 0; s < 4; s++)
        for (int kind = 0; kind < 3; kind++)
            for (int dim = 1; dim <= 3; dim++) {
                check_on(reduced, dim + 4 * kind, false, batches[b], 3, shapes[s]);
                check_on(reduced, dim + 4 * kind, true, batches[b], 3, shapes[s]);
            }
    for (int kind = 0; kind < 3; kind++) {
        check_on(reduced, 1 + 4 * kind, false, 3, 1, (const int64_t[]) { 2100 });
        check_on(reduced, 1 + 4 * kind, false, 3, 2, (const int64_t[]) { 5, 1100 });
        check_on(reduced, 2 + 4 * kind, false, 3, 2, (const int64_t[]) { 5, 1100 });
    }
}

/* A parameter loses its first dimension, which is not the batch. */
static ls_tensor *reduced_param(ls_graph *g, ls_tensor *x, int variant)
{
    int64_t c = ls_tensor_dim(x, 1);
    ls_tensor *p = param_of(g, "p", 3, (const int64_t[]) { 5, 3, c });
    return ls_add(x, reduced(g, reduced(g, p, variant), variant));
}

static void test_whole_reductions(void **state)
{
    (void)state;
    FOR_BATCHES(b)
    for (int kind = 0; kind < 3; kind++)
        check_on(reduced_param, 4 * kind, false, batches[b], 1, (const int64_t[]) { 7 });
}

static ls_tensor *with_nan(ls_graph *g, ls_tensor *x, int variant)
{
    float values[32];
    for (int i = 0; i < 32; i++) values[i] = i == 5 || i == 9 || i == 21 ? NAN : (float)(i % 7);
    ls_tensor *bad = ls_constant(g, values, 2, (const int64_t[]) { 4, 8 });
    return reduced(g, ls_add(x, bad), variant);
}

static void test_nan(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int dim = 1; dim < 3; dim++)
            check_on(with_nan, dim + 4 * kind, false, 1, 2, (const int64_t[]) { 4, 8 });
}

/* --- moving --- */

static ls_tensor *transposed(ls_graph *g, ls_tensor *x, int variant)
{
    (void)g;
    return ls_mul(ls_transpose(x, variant / 8, variant % 8),
                  ls_scale(ls_transpose(x, variant % 8, variant / 8), 2, 0));
}

static void test_transpose(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = { { 3, 5, 2, 4 }, { 1, 17, 1, 1 }, { 33, 2, 18, 1 } };
    FOR_BATCHES(b)
    for (size_t s = 0; s < 3; s++)
        for (int i = 1; i <= 4; i++)
            for (int k = i; k <= 4; k++)
                check_on(transposed, 8 * i + k, false, batches[b], 4, shapes[s]);
    check_on(transposed, 8 * 2 + 3, true, 3, 3, (const int64_t[]) { 2, 19, 5 });
    check_on(transposed, 8 * 1 + 3, true, 67, 3, (const int64_t[]) { 2, 3, 5 });
}

/* The last dimension in three parts, of which the middle one is used twice and the last is empty
 * of use; put together in another order, with a parameter that has a row for each sample. */
static ls_tensor *cut(ls_graph *g, ls_tensor *x, int variant)
{
    int64_t n = ls_tensor_dim(x, variant), first = n / 3, second = n - first - 1;
    int64_t shape[4];
    for (int i = 0; i < 4; i++) shape[i] = ls_tensor_dim(x, i);
    shape[variant] = 2;
    ls_tensor *a = first ? ls_narrow(x, variant, 0, first) : ls_narrow(x, variant, 0, 1);
    ls_tensor *b = second ? ls_narrow(x, variant - 4, first, second) : x;
    ls_tensor *p = param_of(g, "p", 4, shape);
    return ls_concat((ls_tensor *[]) { b, p, a, ls_relu(b) }, 4, variant);
}

static void test_narrow_and_concat(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = { { 3, 5, 4 }, { 1, 1, 1 }, { 2, 3, 37 } };
    FOR_BATCHES(b)
    for (size_t s = 0; s < 3; s++)
        for (int dim = 1; dim < 4; dim++) {
            check_on(cut, dim, false, batches[b], 3, shapes[s]);
            check_on(cut, dim, true, batches[b], 3, shapes[s]);
        }
}

/* The same on parameters, along their first dimension. */
static ls_tensor *moved_params(ls_graph *g, ls_tensor *x, int variant)
{
    int64_t c = ls_tensor_dim(x, 1);
    (void)variant;
    ls_tensor *p = param_of(g, "p", 2, (const int64_t[]) { c, 5 });
    ls_tensor *q = param_of(g, "q", 2, (const int64_t[]) { 2, c });
    ls_tensor *all[] = { ls_transpose(p, 0, 1), q, ls_narrow(q, 0, 1, 1) };
    return ls_add(x, ls_sum(ls_concat(all, 3, 0), 0));
}

static void test_whole_moves(void **state)
{
    (void)state;
    FOR_BATCHES(b)
    check_on(moved_params, 0, false, batches[b], 1, (const int64_t[]) { 19 });
}

static void moved_integers(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    ls_tensor *parts[] = { ls_transpose(ls_narrow(x, 1, 1, 3), 1, 2),
                           ls_narrow(ls_transpose(x, 1, 2), 2, 0, 3) };
    ls_tensor *y = ls_scale(ls_concat(parts, 2, 1), 0.01f, 0);
    ls_output(g, "y", y);
    ls_minimize(g, ls_cross_entropy(ls_linear(y, "fc", 4), ls_input(g, "label")), NULL);
}

static void test_integers(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_DTYPE_U8, LS_DTYPE_I32, LS_DTYPE_I64, LS_DTYPE_F32 };
    for (size_t t = 0; t < 4; t++) {
        const ls_field fields[] = { { "x", types[t], 2, { 5, 19 } },
                                    { "label", LS_DTYPE_I32, 0, { 0 } } };
        compare_options o = {
            .step = moved_integers, .batch = 67, .fields = fields, .nfields = 2, .classes = 4
        };
        compare_with_reference(&o);
        o.stage = LS_STAGE_PREDICT;
        compare_with_reference(&o);
    }
}

/* --- losses --- */

static void with_loss(ls_graph *g, void *user)
{
    int kind = *(const int *)user;
    ls_tensor *x = ls_scale(ls_linear(ls_input(g, "x"), "fc", 5), kind == 1 ? 30 : 1, 0);
    ls_tensor *target = ls_input(g, "target");
    if (kind == 1) target = ls_scale(target, 0.5f, 0.5f);
    ls_tensor *losses = kind == 0   ? ls_mse(x, target)
                        : kind == 1 ? ls_bce_with_logits(x, target)
                                    : ls_smooth_l1(x, target, 0.4);
    ls_minimize(g, kind == 3 ? ls_sum(losses, 1) : losses, NULL);
}

static void test_losses(void **state)
{
    (void)state;
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 2, 3 } },
                                       { "target", LS_DTYPE_F32, 1, { 5 } } };
    for (int kind = 0; kind < 4; kind++) FOR_BATCHES(b)
        {
            compare_options o = { .step = with_loss,
                                  .user = &kind,
                                  .batch = batches[b],
                                  .fields = fields,
                                  .nfields = 2,
                                  .input_gradients = true };
            compare_with_reference(&o);
            o.stage = LS_STAGE_EVALUATE;
            compare_with_reference(&o);
        }
}

/* --- every allocation of a build and a compilation may fail --- */

static void all_kinds(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x"), *target = ls_input(g, "target");
    x = ls_add(both_ways(g, x, 3), ls_mul(x, param_of(g, "row", 1, (const int64_t[]) { 5 })));
    x = ls_add(ls_sum(x, 1),
               ls_max(ls_concat((ls_tensor *[]) { x, ls_narrow(x, 1, 0, 2) }, 2, 1), 1));
    x = ls_mean(ls_transpose(ls_reshape(x, 3, (const int64_t[]) { -1, 5, 1 }), 1, 2), 1);
    ls_minimize(g, ls_add(ls_mse(x, target), ls_smooth_l1(x, target, 1)), NULL);
}

static void test_failed_allocations(void **state)
{
    (void)state;
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 4, 5 } },
                                       { "target", LS_DTYPE_F32, 1, { 5 } } };
    ls__graph_options options = { .batch = 3, .fields = fields, .nfields = 2 };
    ls_status status = LS_ERR_MEMORY;
    int failures = 0;
    for (long n = 1; status != LS_OK; n++) {
        ls_graph *g;
        ls__executable *e = NULL;
        ls__alloc_fail_at(n);
        status = ls__graph_build(all_kinds, NULL, &options, &g);
        if (status == LS_OK) status = compare_backend(1)->compile(g, &e);
        ls__alloc_fail_at(0);
        if (status != LS_OK) assert_int_equal(status, LS_ERR_MEMORY);
        failures += status != LS_OK;
        compare_backend(1)->destroy(e);
        ls__graph_destroy(g);
    }
    assert_true(failures > (compare_on_cpu() ? 300 : 200));
}

static int open_backend(void **state)
{
    (void)state;
    compare_backend(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_parameter),      cmocka_unit_test(test_a_blocked_layout),
        cmocka_unit_test(test_samples),          cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_whole_reductions), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_transpose),        cmocka_unit_test(test_narrow_and_concat),
        cmocka_unit_test(test_whole_moves),      cmocka_unit_test(test_integers),
        cmocka_unit_test(test_losses),           cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
