/* ls_attention, ls_rotary, ls_softmax and the states of decoding: what is refused, with what text,
 * and what a graph looks like. */
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 4, 30 } },
                                   { "flat", LS_DTYPE_F32, 1, { 30 } },
                                   { "tokens", LS_DTYPE_I32, 1, { 4 } } };

typedef struct layer_case {
    ls_attention_options options;
    const char *field, *name;
    double theta;
    bool rotary;
    ls_status status;
    const char *text;
} layer_case;

static void one_layer(ls_graph *g, void *user)
{
    const layer_case *c = user;
    ls_tensor *x = ls_input(g, c->field ? c->field : "x");
    const ls_attention_options *o = c->options.heads == -9 ? NULL : &c->options;
    x = c->rotary ? ls_rotary(x, o, c->theta) : ls_attention(x, c->name ? c->name : "layer", o);
    ls_output(g, "y", x);
}

static ls_status build(ls_step_fn *step, const void *user, int64_t decode, ls_graph **out)
{
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = 2, .fields = fields, .nfields = 3, .decode = decode
    };
    return ls__graph_build(step, (void *)(uintptr_t)user, &options, out);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const layer_case cases[] = {
        { { .heads = -9 }, .status = LS_ERR_ARG, .text = "number of heads" },
        { { .heads = 0 }, .status = LS_ERR_ARG, .text = "number of heads" },
        { { .heads = 2, .kv_heads = -1 }, .status = LS_ERR_ARG, .text = "number of heads" },
        { { .heads = 2, .kv_heads = 4 }, .status = LS_ERR_ARG, .text = "kv_heads 4 must divide" },
        { { .heads = 3, .kv_heads = 2 }, .status = LS_ERR_ARG, .text = "kv_heads 2 must divide" },
        { { .heads = 4 }, .status = LS_ERR_SHAPE, .text = "attention \"layer\": input (B,4,30)" },
        { { .heads = INT64_MAX / 2 }, .status = LS_ERR_SHAPE, .text = "input (B,4,30)" },
        { { .heads = 5 }, .field = "flat", .status = LS_ERR_SHAPE, .text = "input (B,30)" },
        { { .heads = 5 }, .field = "tokens", .status = LS_ERR_ARG, .text = "must be f32" },
        { { .heads = 5 }, .name = "", .status = LS_ERR_ARG, .text = "needs a name" },
        { { .heads = 5, .scale = INFINITY }, .status = LS_ERR_ARG, .text = "scale inf" },
        { { .heads = 4 }, .rotary = true, .status = LS_ERR_SHAPE, .text = "rotary \"qkv\"" },
        { { .heads = 2 },
          .rotary = true,
          .status = LS_ERR_SHAPE,
          .text = "5 numbers have no pairs" },
        { { .heads = 5 }, .rotary = true, .theta = -1, .status = LS_ERR_ARG, .text = "theta -1" },
        { { .heads = 5 }, .rotary = true, .theta = NAN, .status = LS_ERR_ARG, .text = "theta nan" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_graph *g;
        assert_fails(build(one_layer, &cases[i], 0, &g), cases[i].status, cases[i].text);
        assert_null(g);
    }
}

static void softmax_over_samples(ls_graph *g, void *user)
{
    (void)user;
    ls_output(g, "y", ls_softmax(ls_reshape(ls_input(g, "flat"), 1, (const int64_t[]) { -1 })));
}

static void test_softmax_does_not_mix_samples(void **state)
{
    (void)state;
    ls_graph *g;
    assert_fails(build(softmax_over_samples, NULL, 0, &g), LS_ERR_SHAPE, "samples do not mix");
}

/* --- decoding --- */

static void two_layers(ls_graph *g, void *user)
{
    ls_attention_options o = { .heads = 3, .kv_heads = 1 };
    const char *second = user;
    ls_tensor *x = ls_rotary(ls_input(g, "x"), &o, 0), *y = ls_attention(x, "first", &o);
    ls_tensor *more = ls_attention(ls_concat((ls_tensor *[]) { y, y, y }, 3, 2), second,
                                   &(ls_attention_options) { .heads = 1 });
    ls_output(g, "y", more);
}

static void test_states(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ls_dtype type;
        int rank;
        int64_t shape[3];
    } expected[] = { { "position", LS_DTYPE_I32, 1, { 2 } },
                     { "first.cache", LS_DTYPE_F32, 3, { 2, 50, 12 } },
                     { "second.cache", LS_DTYPE_F32, 3, { 2, 50, 36 } } };
    const ls__graph_state *states;
    ls_graph *g;
    assert_ok(build(two_layers, "second", 0, &g));
    assert_int_equal(ls__graph_states(g, NULL), 0); /* nothing is kept while not decoding */
    ls__graph_destroy(g);
    assert_ok(build(two_layers, "second", 50, &g));
    assert_int_equal(ls__graph_states(g, &states), 3);
    for (int i = 0; i < 3; i++) {
        const ls_tensor *x = states[i].tensor;
        assert_string_equal(states[i].name, expected[i].name);
        assert_int_equal(x->role, LS__ROLE_STATE);
        assert_int_equal(x->slot, i);
        assert_int_equal(x->type, expected[i].type);
        assert_int_equal(x->rank, expected[i].rank);
        for (int k = 0; k < x->rank; k++) assert_int_equal(x->shape[k], expected[i].shape[k]);
    }
    ls__graph_destroy(g);
    assert_fails(build(two_layers, "first", 50, &g), LS_ERR_SHAPE, "first.cache");
}

static void test_full_attention_is_not_decoded(void **state)
{
    (void)state;
    static const layer_case c = { .options = { .heads = 5, .full = true } };
    ls_graph *g;
    assert_fails(build(one_layer, &c, 50, &g), LS_ERR_UNSUPPORTED, "full");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mistakes),
                                        cmocka_unit_test(test_softmax_does_not_mix_samples),
                                        cmocka_unit_test(test_states),
                                        cmocka_unit_test(test_full_attention_is_not_decoded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
