/* Embeddings, norms over rows and linear layers for each row: what they refuse and with which
 * words, tokens outside the vocabulary, positions while decoding, how parameters begin. */
#include "golden.h"

#include <math.h>

#include <lockstep/nn.h>

#include "testing.h"

enum { BATCH = 5, LENGTH = 3, WIDTH = 4, VOCABULARY = 7, CONTEXT = 6 };

static const ls_field fields[] = { { "tokens", LS_DTYPE_I32, 1, { LENGTH } },
                                   { "x", LS_DTYPE_F32, 2, { LENGTH, WIDTH } },
                                   { "line", LS_DTYPE_F32, 0, { 0 } } };

/* --- refused --- */

typedef struct refused {
    ls_tensor *(*layer)(ls_graph *g, ls_tensor *tokens, ls_tensor *x);
    ls_status status;
    const char *text;
} refused;

#define REFUSED(name, expression)                                                                  \
    static ls_tensor *name(ls_graph *g, ls_tensor *tokens, ls_tensor *x)                           \
    {                                                                                              \
        (void)g, (void)tokens, (void)x;                                                            \
        return expression;                                                                         \
    }
REFUSED(no_integers, ls_embedding(x, "wte", VOCABULARY, WIDTH, 0))
REFUSED(no_rows, ls_embedding(tokens, "wte", 0, WIDTH, 0))
REFUSED(no_name, ls_embedding(tokens, "", VOCABULARY, WIDTH, 0))
REFUSED(no_deviation, ls_embedding(tokens, "wte", VOCABULARY, WIDTH, NAN))
REFUSED(too_long, ls_position_embedding(x, "wpe", LENGTH - 1, 0))
REFUSED(flat, ls_position_embedding(ls_flatten(x), "wpe", CONTEXT, 0))
REFUSED(no_context, ls_position_embedding(x, "wpe", 0, 0))
REFUSED(one_number, ls_layer_norm(ls_input(g, "line"), "norm"))
REFUSED(tokens_normed, ls_rms_norm(tokens, "norm"))
REFUSED(no_options, ls_linear_with(x, "fc", NULL))
REFUSED(negative, ls_linear_with(x, "fc", &(ls_linear_options) { .features = 2, .deviation = -1 }))
REFUSED(tied_wrong,
        ls_linear_with(ls_position_embedding(x, "wpe", CONTEXT, 0), "fc",
                       &(ls_linear_options) { .features = 5, .rows = true, .tied_to = "wpe" }))
REFUSED(tokens_active, ls_gelu(tokens))

static void refused_step(ls_graph *g, void *user)
{
    const refused *r = user;
    ls_output(g, "y", r->layer(g, ls_input(g, "tokens"), ls_input(g, "x")));
}

static void test_refused(void **state)
{
    (void)state;
    const refused all[] = {
        { no_integers, LS_ERR_SHAPE, "embedding \"wte\": tokens must be i32, i64 or u8, not f32" },
        { no_rows, LS_ERR_ARG, "embedding \"wte\": a table of 0 rows of 4" },
        { no_name, LS_ERR_ARG, "embedding: a layer needs a name" },
        { no_deviation, LS_ERR_ARG, "embedding \"wte\": deviation nan" },
        { too_long, LS_ERR_SHAPE, "3 tokens are more than the context's 2 positions" },
        { flat, LS_ERR_SHAPE, "position_embedding \"wpe\": input (B,12) must be (B, C, n)" },
        { no_context, LS_ERR_ARG, "position_embedding \"wpe\": a table of 0 rows of 4" },
        { one_number, LS_ERR_SHAPE, "layer_norm \"norm\": input (B) must be (B, n)" },
        { tokens_normed, LS_ERR_ARG, "rms_norm \"norm\": input" },
        { no_options, LS_ERR_ARG, "linear \"fc\": 0 features" },
        { negative, LS_ERR_ARG, "linear \"fc\": deviation -1" },
        { tied_wrong, LS_ERR_SHAPE, "wpe.weight (6,4) exists and is asked for again" },
        { tokens_active, LS_ERR_SHAPE, "activation: takes f32" },
    };
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = BATCH, .fields = fields, .nfields = 3
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_graph *g;
        assert_fails(ls__graph_build(refused_step, (void *)&all[i], &options, &g), all[i].status,
                     all[i].text);
    }
}

/* --- tokens --- */

static void text_step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_embedding(ls_input(g, "tokens"), "wte", VOCABULARY, WIDTH, 0.5);
    ls_output(g, "x", ls_position_embedding(x, "wpe", CONTEXT, 0));
}

static void test_a_token_outside_the_vocabulary_is_named(void **state)
{
    (void)state;
    static const int64_t samples[BATCH] = { 100, 101, 102, 1234567, 104 };
    const ls__backend *backend = execution_backend(2);
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = BATCH, .fields = fields, .nfields = 1
    };
    execution e;
    int32_t tokens[BATCH * LENGTH] = { 0 };
    execution_open(&e, backend, text_step, NULL, &options);
    e.fields[0] = tokens;
    e.context.samples = samples;
    assert_ok(execution_run(&e));
    tokens[4 * LENGTH] = -100; /* no token is ignored; the first bad sample is named */
    assert_fails(execution_run(&e), LS_ERR_DATA, "token -100 of sample 104 is not in [0, 7)");
    tokens[3 * LENGTH + 2] = VOCABULARY;
    assert_fails(execution_run(&e), LS_ERR_DATA, "token 7 of sample 1234567 is not in [0, 7)");
    tokens[3 * LENGTH + 2] = tokens[4 * LENGTH] = VOCABULARY - 1;
    assert_ok(execution_run(&e));
    execution_close(&e);
}

/* --- decoding --- */

static void decode_step(ls_graph *g, void *user)
{
    (void)user;
    ls_output(g, "x", ls_position_embedding(ls_input(g, "one"), "wpe", CONTEXT, 1));
}

static void test_positions_go_on(void **state)
{
    (void)state;
    static const ls_field one = { "one", LS_DTYPE_F32, 2, { 1, WIDTH } };
    const ls__backend *backend = execution_backend(2);
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = BATCH, .fields = &one, .nfields = 1, .decode = CONTEXT
    };
    float x[BATCH * WIDTH];
    int32_t position[BATCH] = { 0, 5, 3, 3, 1 };
    void *states[] = { position };
    int64_t count;
    execution e;
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = (float)i;
    execution_open(&e, backend, decode_step, NULL, &options);
    e.fields[0] = x;
    e.context.states = states;
    assert_ok(execution_run(&e));
    const float *y = execution_result(&e, "x").data,
                *rows = execution_param(&e, "wpe.weight", &count);
    for (int i = 0; i < BATCH * WIDTH; i++)
        assert_true(y[i] == x[i] + rows[position[i / WIDTH] * WIDTH + i % WIDTH]);
    position[2] = CONTEXT;
    assert_fails(execution_run(&e), LS_ERR_DATA, "position 6 of sample 2 is not in [0, 6)");
    position[2] = -1;
    assert_fails(execution_run(&e), LS_ERR_DATA, "position -1 of sample 2 is not in [0, 6)");
    execution_close(&e);
}

/* --- how parameters begin --- */

static void begin_step(ls_graph *g, void *user)
{
    (void)user;
    ls_linear_options normal = { .features = 300, .rows = true, .deviation = 0.02 };
    ls_linear_options uniform = { .features = 300, .rows = true };
    ls_tensor *x = ls_embedding(ls_input(g, "tokens"), "wte", 500, 100, 0);
    x = ls_linear_with(ls_position_embedding(x, "wpe", 50, 0.01), "normal", &normal);
    ls_output(g, "x", ls_layer_norm(ls_linear_with(x, "uniform", &uniform), "norm"));
}

static double deviation_of(execution *e, const char *name, double *most)
{
    int64_t count;
    const float *values = execution_param(e, name, &count);
    double sum = 0;
    *most = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)values[i] * (double)values[i];
        *most = fmax(*most, fabs((double)values[i]));
    }
    return sqrt(sum / (double)count);
}

static void test_how_parameters_begin(void **state)
{
    (void)state;
    ls__graph_options options = {
        .stage = LS_STAGE_PREDICT, .batch = 1, .fields = fields, .nfields = 1
    };
    execution e;
    double most;
    execution_open(&e, &reference_backend, begin_step, NULL, &options);
    assert_true(fabs(deviation_of(&e, "wte.weight", &most) - 1) < 0.02);
    assert_true(fabs(deviation_of(&e, "wpe.weight", &most) - 0.01) < 0.0005);
    assert_true(fabs(deviation_of(&e, "normal.weight", &most) - 0.02) < 0.0005);
    assert_true(most > 0.07); /* no uniform numbers */
    assert_true(deviation_of(&e, "normal.bias", &most) == 0);
    assert_true(fabs(deviation_of(&e, "uniform.weight", &most) - 1 / sqrt(900.0)) < 0.0005);
    assert_true(most <= 1 / sqrt(300.0));
    assert_true(deviation_of(&e, "norm.weight", &most) == 1 && most == 1);
    assert_true(deviation_of(&e, "norm.bias", &most) == 0);
    execution_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_a_token_outside_the_vocabulary_is_named),
        cmocka_unit_test(test_positions_go_on),
        cmocka_unit_test(test_how_parameters_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
