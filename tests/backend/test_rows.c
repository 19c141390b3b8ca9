/* What transformers do to rows: embeddings, norms over the last dimension, activations, linear
 * layers for each row, tied weights. At odd shapes, against the reference executor. */
#include "compare.h"
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>
#include <lockstep/op.h>

#include "graph/ops.h"

static const int64_t batches[] = { 1, 3, 35 };
#define FOR_BATCHES(b)                                                                             \
    for (size_t b = 0; b < compare_batches(sizeof batches / sizeof *batches); b++)
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* In training with gradients of parameters and inputs, and outside it. */
static void check(compare_options o)
{
    o.misaligned = o.batch == 3;
    o.input_gradients = true;
    compare_with_reference(&o);
    o.stage = LS_STAGE_EVALUATE;
    compare_with_reference(&o);
    o.stage = LS_STAGE_PREDICT;
    compare_with_reference(&o);
}

/* --- embeddings --- */

typedef struct text_case {
    int64_t vocabulary, width, context;
    bool tied, twice, bare; /* bare: the scores are the embedding itself */
    bool quiet;             /* nobody but the loss reads the scores */
} text_case;

static void text(ls_graph *g, void *user)
{
    const text_case *c = user;
    ls_tensor *tokens = ls_input(g, "tokens");
    ls_tensor *x = ls_embedding(tokens, "wte", c->vocabulary, c->width, 0.7);
    if (c->context) x = ls_position_embedding(x, "wpe", c->context, 0.5);
    if (c->twice) x = ls_mul(x, ls_embedding(tokens, "wte", c->vocabulary, c->width, 0.7));
    ls_output(g, "x", x);
    if (!c->bare)
        x = ls_linear_with(x, "head",
                           &(ls_linear_options) { .features = c->vocabulary,
                                                  .rows = true,
                                                  .no_bias = c->tied,
                                                  .deviation = c->tied ? 0 : 0.3,
                                                  .tied_to = c->tied ? "wte" : NULL });
    ls_minimize(g, ls_cross_entropy(x, ls_input(g, "label")), NULL);
    if (!c->quiet) ls_report(g, "accuracy", ls_accuracy(x, ls_input(g, "label")));
}

static void check_text(text_case c, int64_t batch, int64_t length, ls_dtype type, int64_t ignored)
{
    const ls_field fields[] = { { "tokens", type, 1, { length } },
                                { "label", LS_DTYPE_I32, 1, { length } } };
    compare_options o = { .step = text,
                          .user = &c,
                          .batch = batch,
                          .fields = fields,
                          .nfields = 2,
                          .classes = c.bare ? (int)c.width : (int)c.vocabulary,
                          .tokens = (int)c.vocabulary,
                          .ignored = ignored };
    check(o);
    if (type == LS_DTYPE_U8) return;
    o.tokens = (int)c.vocabulary + 1; /* some tokens are one too many */
    o.stage = LS_STAGE_EVALUATE;
    if (type == LS_DTYPE_I32)
        compare_run_fails(&o, (int32_t)c.vocabulary, batch * length - 1, LS_ERR_DATA, "token ");
}

static void test_embedding(void **state)
{
    (void)state;
    static const text_case cases[] = {
        { .vocabulary = 1, .width = 1, .context = 7 },
        { .vocabulary = 2, .width = 5, .context = 8, .bare = true },
        { .vocabulary = 65, .width = 17, .context = 19 },
        { .vocabulary = 131, .width = 48, .context = 7, .tied = true },
        { .vocabulary = 131, .width = 33, .tied = true, .twice = true },
        { .vocabulary = 31, .width = 16, .twice = true, .context = 11 },
        { .vocabulary = 251, .width = 40, .bare = true, .context = 9 },
    };
    static const ls_dtype types[] = { LS_DTYPE_I32, LS_DTYPE_I64, LS_DTYPE_U8 };
    for (size_t i = 0; i < COUNT(cases); i++) FOR_BATCHES(b)
        {
            check_text(cases[i], batches[b], 7, types[i % 3], i % 2 ? 3 : 0);
            check_text(cases[i], batches[b], 1, types[(i + 1) % 3], 0);
        }
}

/* Positions that are computed: the device finds out too, and says what the CPU says. */
static void placed(ls_graph *g, void *user)
{
    (void)user;
    const ls_init init = { .kind = LS_INIT_NORMAL, .scale = 1 };
    ls_tensor *first = ls_narrow(ls_input(g, "position"), 1, 1, 1);
    ls_tensor *in[] = { ls_input(g, "x"), ls_param(g, "wpe", &init, 2, (int64_t[]) { 9, 4 }),
                        ls_reshape(first, 1, (int64_t[]) { -1 }) };
    ls_output(g, "y", ls_apply(&ls__op_position_embedding, NULL, 0, in, 3));
}

static void test_positions_beyond(void **state)
{
    (void)state;
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 3, 4 } },
                                { "position", LS_DTYPE_I32, 1, { 2 } } };
    compare_options o = { .step = placed,
                          .stage = LS_STAGE_PREDICT,
                          .batch = 3,
                          .fields = fields,
                          .nfields = 2,
                          .tokens = 7 };
    compare_with_reference(&o);
    compare_run_fails(&o, 7, 3, LS_ERR_DATA, "position 9 of sample 1 is not in [0, 9)");
    compare_run_fails(&o, -2, 5, LS_ERR_DATA, "position -2 of sample 2 is not in [0, 9)");
}

/* Tied weights: rows are added where the linear layer's gradient lies, so nothing of the table's
 * size is in the arena. */
static void test_no_second_table(void **state)
{
    (void)state;
    text_case c = { .vocabulary = 12000, .width = 128, .context = 2, .tied = true };
    const ls_field fields[] = { { "tokens", LS_DTYPE_I32, 1, { 2 } },
                                { "label", LS_DTYPE_I32, 1, { 2 } } };
    for (int variant = 0; variant < 4; variant++) {
        ls__graph_options options = {
            .stage = LS_STAGE_TRAIN, .batch = 3, .fields = fields, .nfields = 2
        };
        ls_graph *g;
        ls__executable *e;
        c.twice = variant & 1;
        c.quiet = variant & 2; /* the head, its loss and their gradients are one */
        assert_ok(ls__graph_build(text, &c, &options, &g));
        assert_ok(compare_backend(2)->compile(g, &e));
        size_t table = 12000 * 128 * sizeof(float);
        assert_in_range(compare_memory(e), 1, table - 1);
        compare_backend(2)->destroy(e);
        ls__graph_destroy(g);
        compare_with_reference(&(compare_options) { .step = text,
                                                    .user = &c,
                                                    .batch = 3,
                                                    .fields = fields,
                                                    .nfields = 2,
                                                    .classes = 12000,
                                                    .tokens = 12000 });
    }
}

/* --- many scores --- */

enum { SCORES = 2500 };

/* Rows in several chunks: a larger score in each, -inf in the whole first one; or a NaN in one. */
static void many_scores(ls_graph *g, void *user)
{
    float *offsets = malloc(SCORES * sizeof *offsets);
    for (int i = 0; i < SCORES; i++)
        offsets[i] = i < 1500 ? -INFINITY : (float)(i / 700) * 30 - 200;
    if (*(const bool *)user) offsets[1030] = NAN;
    ls_tensor *hidden = ls_constant(g, offsets, 2, (const int64_t[]) { 1, SCORES });
    free(offsets);
    ls_tensor *x = ls_add(ls_linear(ls_input(g, "x"), "fc", SCORES), hidden);
    ls_minimize(g, ls_cross_entropy(x, ls_input(g, "label")), NULL);
    ls_output(g, "x", x);
    ls_report(g, "accuracy", ls_accuracy(x, ls_input(g, "label")));
}

static void test_many_scores(void **state)
{
    (void)state;
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { 3 } },
                                { "label", LS_DTYPE_I32, 0, { 0 } } };
    bool nan = false;
    compare_options o = { .step = many_scores, .user = &nan, .fields = fields, .nfields = 2 };
    o.input_gradients = true;
    o.first_label = 1600;
    o.classes = SCORES - 1600;
    for (int i = 0; i < 4; i++) {
        nan = i & 1;
        o.batch = i & 2 ? 67 : 3;
        o.ignored = i & 2 ? 3 : 0;
        compare_with_reference(&o);
    }
}

/* --- norms --- */

typedef struct norm_case {
    bool rms, parameters_only;
} norm_case;

static ls_tensor *norm(ls_tensor *x, const char *name, const norm_case *c)
{
    return c->rms ? ls_rms_norm(x, name) : ls_layer_norm(x, name);
}

static void norms(ls_graph *g, void *user)
{
    const norm_case *c = user;
    ls_tensor *x = ls_input(g, "x"), *y = norm(ls_scale(x, 2, 0.5f), "n1", c);
    y = ls_add(y, norm(y, "n2", c)); /* its gradient has a second reader */
    ls_output(g, "y", y);
    if (c->parameters_only) {
        int64_t shape[] = { 3, ls_tensor_dim(x, -1) };
        ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
        ls_tensor *p = norm(ls_param(g, "p", &init, 2, shape), "n3", c);
        y = ls_add(ls_linear(y, "y", 4),
                   ls_reshape(ls_sum(ls_linear(p, "p4", 4), 0), 2, (int64_t[]) { 1, 4 }));
    } else {
        y = ls_linear(y, "scores", 4);
    }
    ls_minimize(g, ls_cross_entropy(y, ls_input(g, "label")), NULL);
}

static void test_norms(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = { { 1 },       { 2 },         { 5 },      { 16 },
                                         { 17 },      { 31 },        { 300 },    { 3, 1 },
                                         { 7, 16 },   { 5, 33 },     { 1, 64 },  { 2, 47 },
                                         { 2, 3, 5 }, { 3, 2, 130 }, { 2, 1031 } };
    for (size_t i = 0; i < COUNT(shapes); i++) FOR_BATCHES(b)
    for (int rms = 0; rms < 2; rms++) {
        int rank = shapes[i][1] == 0 ? 1 : shapes[i][2] == 0 ? 2 : 3;
        ls_field fields[] = { { "x", LS_DTYPE_F32, rank, { 0 } },
                              { "label", LS_DTYPE_U8, 0, { 0 } } };
        memcpy(fields[0].shape, shapes[i], sizeof shapes[i]);
        norm_case c = { .rms = rms };
        compare_options o = { .step = norms,
                              .user = &c,
                              .batch = batches[b],
                              .fields = fields,
                              .nfields = 2,
                              .classes = 4,
                              /* of two values only signs are left, and differences of rounding */
                              .tolerance = shapes[i][rank - 1] <= 2 ? 2e-3 : 1e-4 };
        check(o);
        c.parameters_only = rank == 1;
        if (c.parameters_only) check(o);
    }
}

/* --- activations --- */

static ls_tensor *(*const activations[])(ls_tensor *) = { ls_gelu, ls_gelu_tanh, ls_silu, ls_tanh,
                                                          ls_sigmoid };

static void active(ls_graph *g, void *user)
{
    ls_tensor *(*activation)(ls_tensor *) = *(ls_tensor * (*const *)(ls_tensor *)) user;
    ls_tensor *x = ls_scale(ls_input(g, "x"), 6, 0.25f), *y = activation(x);
    ls_output(g, "y", y);
    ls_report(g, "y", y);
    y = activation(ls_linear(activation(ls_linear(y, "fc", 19)), "scores", 4));
    ls_minimize(g, ls_cross_entropy(y, ls_input(g, "label")), NULL);
}

static void test_activations(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1 }, { 16 }, { 3, 7 }, { 5, 37 } };
    for (size_t k = 0; k < COUNT(activations); k++) FOR_BATCHES(b)
    for (size_t i = 0; i < COUNT(shapes); i++) {
        ls_field fields[] = { { "x", LS_DTYPE_F32, shapes[i][1] ? 2 : 1, { 0 } },
                              { "label", LS_DTYPE_I32, 0, { 0 } } };
        memcpy(fields[0].shape, shapes[i], sizeof shapes[i]);
        check((compare_options) { .step = active,
                                  .user = (void *)&activations[k],
                                  .batch = batches[b],
                                  .fields = fields,
                                  .nfields = 2,
                                  .classes = 4 });
    }
}

static int open_backend(void **state)
{
    (void)state;
    compare_backend(2);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),   cmocka_unit_test(test_no_second_table),
        cmocka_unit_test(test_many_scores), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_positions_beyond),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
