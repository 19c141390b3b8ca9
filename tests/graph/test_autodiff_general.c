/* Gradients of broadcasting, reductions, moves and elementwise losses against finite differences. */
#include "testing.h"

#include <lockstep/nn.h>

#include "differences.h"

enum { CLASSES = 5 };

static const ls_field fields[] = {
    { "x", LS_DTYPE_F32, 2, { 3, 4 } },
    { "label", LS_DTYPE_I32, 0, { 0 } },
    { "target", LS_DTYPE_F32, 1, { 6 } },
    { "map", LS_DTYPE_I64, 1, { 6 } },
};

static void check(ls_step_fn *step, int variant, int checked)
{
    for (int64_t batch = 1; batch <= 4; batch += 3)
        differences_check(step, &variant, batch, fields, sizeof fields / sizeof *fields, checked);
}

static void classify(ls_graph *g, ls_tensor *features)
{
    ls_minimize(g, ls_cross_entropy(ls_linear(features, "head", CLASSES), ls_input(g, "label")),
                NULL);
}

static ls_tensor *param_of(ls_graph *g, const char *name, int rank, int64_t a, int64_t b, int64_t c)
{
    ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
    return ls_param(g, name, &init, rank, (int64_t[]) { a, b, c });
}

typedef ls_tensor *binary_fn(ls_tensor *a, ls_tensor *b);
static binary_fn *const binaries[] = { ls_add, ls_sub, ls_mul, ls_div };

/* Parameters of all ranks on both sides, one of which appears on both sides of an operation. */
static void broadcast(ls_graph *g, void *user)
{
    binary_fn *op = binaries[*(const int *)user];
    ls_tensor *x = ls_scale(ls_input(g, "x"), 1, 3);
    ls_tensor *line = ls_scale(param_of(g, "line", 1, 4, 0, 0), 1, 3);
    ls_tensor *column = ls_scale(param_of(g, "column", 2, 3, 1, 0), 1, 3);
    ls_tensor *one = ls_scale(param_of(g, "one", 3, 1, 1, 1), 1, 3);
    ls_tensor *y = op(op(x, line), op(column, x));
    y = op(op(param_of(g, "scalar", 0, 0, 0, 0), y), op(one, line));
    classify(g, ls_mul(y, op(column, column)));
}

static void test_broadcasting(void **state)
{
    (void)state;
    for (int op = 0; op < 4; op++) check(broadcast, op, 7);
}

/* variant: kind * 2 + dimension - 1 */
static void reduce(ls_graph *g, void *user)
{
    static ls_tensor *(*const kinds[])(ls_tensor * x, int dim) = { ls_sum, ls_mean, ls_max };
    int variant = *(const int *)user, dim = 1 + variant % 2;
    ls_tensor *p = param_of(g, "p", 3, 5, 3, 4);
    ls_tensor *x = ls_mul(ls_input(g, "x"), kinds[variant / 2](p, 0));
    classify(g, kinds[variant / 2](x, dim - 3 * (variant % 3 == 0)));
}

static void test_reductions(void **state)
{
    (void)state;
    for (int variant = 0; variant < 6; variant++) check(reduce, variant, 4);
}

static void move(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x"), *p = param_of(g, "p", 2, 4, 3, 0);
    x = ls_mul(x, ls_transpose(p, 0, -1));
    ls_tensor *turned = ls_transpose(x, 1, 2);
    ls_tensor *parts[] = { ls_narrow(x, 2, 1, 3), ls_narrow(ls_mul(turned, turned), 1, 0, 3),
                           ls_scale(ls_narrow(x, -1, 0, 2), 2, 0) };
    ls_tensor *rows = ls_concat((ls_tensor *[]) { p, ls_narrow(p, 0, 2, 2) }, 2, 0); /* (6,3) */
    x = ls_concat(parts, 3, 2);                                                      /* (B,3,8) */
    classify(g, ls_add(ls_narrow(x, 2, 2, 6), ls_transpose(rows, 0, 1)));
}

static void test_moves(void **state)
{
    (void)state;
    check(move, 0, 4);
}

static void losses(ls_graph *g, void *user)
{
    int kind = *(const int *)user;
    ls_tensor *x = ls_linear(ls_input(g, "x"), "fc", 6), *target = ls_input(g, "target");
    ls_tensor *each = kind == 0   ? ls_mse(x, target)
                      : kind == 1 ? ls_bce_with_logits(x, ls_scale(target, 0.5f, 0.5f))
                                  : ls_smooth_l1(x, target, 0.7);
    ls_minimize(g, kind == 2 ? ls_mean(each, 1) : each, NULL);
}

/* The target's gradient is an input's: only checks ask for it. */
static void test_losses(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) check(losses, kind, 4);
}

/* Ignored targets follow their losses wherever those go. */
static void moved_losses(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *z = ls_linear(ls_input(g, "x"), "fc", 6 * CLASSES);
    z = ls_reshape(z, 3, (const int64_t[]) { -1, 6, CLASSES });
    ls_tensor *each = ls_cross_entropy(z, ls_input(g, "map"));
    ls_tensor *turned = ls_transpose(ls_reshape(each, 3, (const int64_t[]) { -1, 2, 3 }), 1, 2);
    ls_tensor *all[] = { ls_narrow(turned, 1, 0, 2), ls_narrow(turned, 1, 2, 1) };
    ls_minimize(g, ls_concat(all, 2, 1), NULL);
}

static void test_ignored_targets_follow(void **state)
{
    (void)state;
    check(moved_losses, 0, 3);
    ls__graph_options options = {
        .stage = LS_STAGE_TRAIN, .batch = 2, .fields = fields, .nfields = 4
    };
    ls_graph *g;
    assert_ok(ls__graph_build(moved_losses, NULL, &options, &g));
    reference *r = differences_prepare(g);
    differences_objective(r);
    const ls__graph_result *loss = reference_result(g, "loss");
    assert_non_null(loss->weights);
    for (int i = 0; i < 12; i++) { /* (B,3,2) from (B,2,3): every fourth of the targets */
        int from = i / 6 * 6 + i % 2 * 3 + i % 6 / 2;
        assert_true(reference_of(r, loss->weights)[i] == (from % 4 == 3 ? 0 : 1));
        assert_true((reference_of(r, loss->values[0])[i] == 0) == (from % 4 == 3));
    }
    reference_destroy(r);
    ls__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcasting),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_ignored_targets_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
