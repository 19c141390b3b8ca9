/* What broadcasting, reductions, moves and losses refuse, and with which words: above all what
 * would mix samples. */
#include <math.h>

#include <lockstep/nn.h>

#include "graph/graph_internal.h"
#include "testing.h"

static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 3, 4 } },
                                   { "line", LS_DTYPE_F32, 0, { 0 } },
                                   { "row", LS_DTYPE_F32, 1, { 4 } },
                                   { "label", LS_DTYPE_I32, 0, { 0 } },
                                   { "map", LS_DTYPE_I32, 1, { 3 } } };

static ls_tensor *param_of(ls_graph *g, int rank, int64_t a, int64_t b, int64_t c)
{
    return ls_param(g, "p", NULL, rank, (int64_t[]) { a, b, c });
}

typedef ls_tensor *refused_fn(ls_graph *g, ls_tensor *x);

typedef struct refused {
    refused_fn *layer;
    ls_status status;
    const char *text;
} refused;

static void refused_step(ls_graph *g, void *user)
{
    const refused *r = user;
    ls_output(g, "y", r->layer(g, ls_input(g, "x")));
}

/* --- broadcasting --- */

static ls_tensor *add_other(ls_graph *g, ls_tensor *x)
{
    return ls_add(x, param_of(g, 2, 4, 3, 0));
}

static ls_tensor *batch_in_the_middle(ls_graph *g, ls_tensor *x)
{
    return ls_mul(ls_input(g, "row"), x); /* (B,4) with (B,3,4): B would meet 3 */
}

static ls_tensor *line_with_row(ls_graph *g, ls_tensor *x)
{
    (void)x;
    return ls_sub(ls_input(g, "row"), ls_input(g, "line")); /* (B,4) with (B) */
}

static ls_tensor *batch_behind(ls_graph *g, ls_tensor *x)
{
    (void)x;
    return ls_div(param_of(g, 3, 5, 1, 4), ls_input(g, "row"));
}

static ls_tensor *batch_of_one(ls_graph *g, ls_tensor *x)
{
    return ls_add(param_of(g, 3, 5, 3, 4), x);
}

static ls_tensor *add_integers(ls_graph *g, ls_tensor *x)
{
    return ls_add(x, ls_input(g, "map"));
}

/* --- along dimensions --- */

static ls_tensor *sum_batch(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_sum(x, 0);
}

static ls_tensor *mean_rows(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_mean(ls_reshape(x, 2, (const int64_t[]) { -1, 4 }), -2);
}

static ls_tensor *max_of_nothing(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_max(x, 3);
}

static ls_tensor *sum_integers(ls_graph *g, ls_tensor *x)
{
    (void)x;
    return ls_sum(ls_input(g, "map"), 1);
}

static ls_tensor *transpose_batch(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_transpose(x, 1, -3);
}

static ls_tensor *narrow_batch(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_narrow(x, 0, 0, 1);
}

static ls_tensor *narrow_beyond(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_narrow(x, 2, 2, 3);
}

static ls_tensor *narrow_negative(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_narrow(x, 2, -1, 2);
}

static ls_tensor *narrow_huge(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_narrow(x, 2, 2, INT64_MAX);
}

static ls_tensor *concat_batch(ls_graph *g, ls_tensor *x)
{
    return ls_concat((ls_tensor *[]) { param_of(g, 3, 2, 3, 4), x }, 2, 0);
}

static ls_tensor *concat_unequal(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_concat((ls_tensor *[]) { x, ls_narrow(x, 1, 0, 2) }, 2, 2);
}

static ls_tensor *concat_types(ls_graph *g, ls_tensor *x)
{
    return ls_concat((ls_tensor *[]) { ls_sum(x, 2), ls_input(g, "map") }, 2, 1);
}

static ls_tensor *concat_null(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_concat((ls_tensor *[]) { x, NULL }, 2, 1);
}

static ls_tensor *concat_many(ls_graph *g, ls_tensor *x)
{
    ls_tensor *all[17];
    (void)g;
    for (int i = 0; i < 17; i++) all[i] = x;
    return ls_concat(all, 17, 1);
}

/* --- losses --- */

static ls_tensor *learned_target(ls_graph *g, ls_tensor *x)
{
    (void)g;
    ls_tensor *line = ls_input(g, "row");
    return ls_mse(line, ls_linear(ls_flatten(x), "fc", 4));
}

static ls_tensor *target_of_another_shape(ls_graph *g, ls_tensor *x)
{
    return ls_bce_with_logits(x, ls_input(g, "row"));
}

static ls_tensor *integer_target(ls_graph *g, ls_tensor *x)
{
    return ls_smooth_l1(ls_sum(x, 2), ls_input(g, "map"), 1);
}

static ls_tensor *no_beta(ls_graph *g, ls_tensor *x)
{
    (void)g;
    return ls_smooth_l1(x, x, 0);
}

static ls_tensor *half_weighted(ls_graph *g, ls_tensor *x)
{
    ls_tensor *each = ls_cross_entropy(x, ls_input(g, "map"));
    return ls_concat((ls_tensor *[]) { each, ls_sum(x, 2) }, 2, 1);
}

static const refused cases[] = {
    { add_other, LS_ERR_SHAPE,
      "add: the inputs must be of one shape, or broadcast to one: from the last dimension on, "
      "equal "
      "or 1; inputs (B,3,4), p (4,3)" },
    { batch_in_the_middle, LS_ERR_SHAPE,
      "mul: shapes are aligned at their last dimension, so that the batch of (B,4) would meet "
      "another dimension of (B,3,4) than the first; give it dimensions of 1 by ls_reshape" },
    { line_with_row, LS_ERR_SHAPE, "sub: shapes are aligned at their last dimension" },
    { batch_behind, LS_ERR_SHAPE, "div: shapes are aligned at their last dimension" },
    { add_integers, LS_ERR_SHAPE, "add: " },
    { sum_batch, LS_ERR_SHAPE,
      "sum: dimension 0 of (B,3,4) is the batch, which is cut into micro-batches and among "
      "devices; "
      "ls_minimize, ls_report and ls_report_metric go over all samples for you" },
    { mean_rows, LS_ERR_SHAPE, "mean: dimension -2 of (B*3,4) is the batch" },
    { max_of_nothing, LS_ERR_SHAPE, "max: (B,3,4) has no dimension 3" },
    { sum_integers, LS_ERR_SHAPE,
      "reduce: takes f32 (ls_scale converts integers); inputs (B,3) i32" },
    { transpose_batch, LS_ERR_SHAPE,
      "transpose: dimension -3 of (B,3,4) is the batch, which is cut into micro-batches and among "
      "devices; samples stay where they are" },
    { narrow_batch, LS_ERR_SHAPE, "narrow: dimension 0 of (B,3,4) is the batch" },
    { narrow_beyond, LS_ERR_SHAPE,
      "slice: 3 elements from 2 on are not all in dimension 2; inputs (B,3,4)" },
    { narrow_negative, LS_ERR_SHAPE, "slice: 2 elements from -1 on are not all in dimension 2" },
    { narrow_huge, LS_ERR_SHAPE, "slice: 9223372036854775807 elements from 2 on are not all in" },
    { concat_batch, LS_ERR_SHAPE, "concat: dimension 0 of (B,3,4) is the batch" },
    { concat_unequal, LS_ERR_SHAPE,
      "concat: the inputs may differ in dimension 2 only; inputs (B,3,4), (B,2,4)" },
    { concat_types, LS_ERR_SHAPE, "concat: the inputs may differ in dimension 1 only" },
    { concat_null, LS_ERR_ARG, "concat: an input is NULL; inputs (B,3,4), NULL" },
    { concat_many, LS_ERR_ARG, "concat: 17 tensors, at most 16 are possible" },
    { learned_target, LS_ERR_ARG,
      "mse: the target (B,4) depends on parameters; it may depend on inputs only" },
    { target_of_another_shape, LS_ERR_SHAPE,
      "elementwise_loss: x and target must be f32 and of one shape; inputs (B,3,4), (B,4)" },
    { integer_target, LS_ERR_SHAPE, "elementwise_loss: x and target must be f32" },
    { no_beta, LS_ERR_ARG, "smooth_l1: beta is 0, but must be a positive number" },
    { half_weighted, LS_ERR_UNSUPPORTED,
      "concat: some of its inputs can have ignored targets and others cannot" },
};

static ls_status build(const refused *r, int64_t batch, ls_graph **g)
{
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = batch, .fields = fields, .nfields = 5
    };
    return ls__graph_build(refused_step, (void *)r, &options, g);
}

static void test_refused(void **state)
{
    (void)state;
    ls_graph *g;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(build(&cases[i], 6, &g), cases[i].status, cases[i].text);
}

/* What a batch of another size refuses is refused with a batch of one, and of the size by which
 * shapes fit by chance. */
static void test_a_batch_that_fits_by_chance(void **state)
{
    (void)state;
    ls_graph *g;
    const refused one = { .layer = batch_of_one };
    assert_fails(build(&one, 1, &g), LS_ERR_SHAPE,
                 "add: the batch of (B,3,4) would be broadcast to 5 samples, those of p (5,3,4)");
    const refused rows = { .layer = batch_in_the_middle };
    const refused lines = { .layer = line_with_row };
    for (int64_t batch = 1; batch <= 4; batch++) {
        assert_fails(build(&rows, batch, &g), LS_ERR_SHAPE, "mul: shapes are aligned");
        assert_fails(build(&lines, batch, &g), LS_ERR_SHAPE, "sub: shapes are aligned");
    }
}

/* --- what is no mistake --- */

static void without_target(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x"), *target = ls_input(g, "target"); /* the data has none */
    ls_tensor *both[] = { x, target };
    ls_minimize(g, ls_add(ls_mse(x, target), ls_concat(both, 2, 1)), NULL);
    ls_report(g, "mean", ls_mean(ls_sub(x, target), 1));
    ls_output(g, "y", ls_narrow(ls_transpose(ls_sum(ls_max(x, -1), -1), 0, 0), 0, 0, 0));
}

static void nothing_to_do(ls_graph *g, void *user)
{
    ls_tensor *x = ls_input(g, "x");
    (void)user;
    assert_ptr_equal(ls_transpose(x, 1, -2), x);
    assert_ptr_equal(ls_narrow(x, 2, 0, 4), x);
    assert_ptr_equal(ls_concat(&x, 1, 1), x);
    assert_null(ls_concat(NULL, 0, 1));
    assert_null(ls_sum(NULL, 1));
    ls_tensor *y =
        ls_max(ls_mean(ls_sum(ls_reshape(x, 4, (const int64_t[]) { -1, 3, 2, 2 }), 1), -1), 1);
    assert_int_equal(ls_tensor_rank(y), 1);
    assert_int_equal(ls_tensor_dim(y, 0), 2);
    ls_output(g, "y", y);
}

static void test_what_is_no_mistake(void **state)
{
    (void)state;
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = 2, .fields = fields, .nfields = 5
    };
    ls_graph *g;
    assert_ok(ls__graph_build(nothing_to_do, NULL, &options, &g));
    ls__graph_destroy(g);
    /* only the last line is one */
    assert_fails(ls__graph_build(without_target, NULL, &options, &g), LS_ERR_SHAPE,
                 "transpose: dimension 0 of (B) is the batch");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_a_batch_that_fits_by_chance),
        cmocka_unit_test(test_what_is_no_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
