/* The head of a language model, computed in blocks of rows, against the reference executor: classes
 * and rows that nothing divides, several blocks, ignored labels, weights of the user's, with and
 * without bias, training and evaluation. Then graphs whose head must stay in separate steps. */
#include "compare.h"
#include "testing.h"

#include <lockstep/nn.h>

enum { TOKENS = 6, WIDTH = 24 };

typedef struct head_model {
    int64_t inputs, classes;
    bool deep; /* a layer before: the inputs have a gradient */
    bool weighted;
    bool scores_read; /* by an accuracy too */
    bool losses_read; /* by a node before the backward pass */
} head_model;

static ls_tensor *rows_of(ls_tensor *x)
{
    return ls_reshape(x, 2, (int64_t[]) { -1, WIDTH });
}

static void language_model(ls_graph *g, void *user)
{
    const head_model *m = user;
    ls_tensor *x = rows_of(ls_input(g, "x")), *y = ls_input(g, "label");
    if (m->deep) x = ls_relu(ls_linear(x, "fc", m->inputs));
    ls_tensor *z =
        ls_reshape(ls_linear(x, "head", m->classes), 3, (int64_t[]) { -1, TOKENS, m->classes });
    ls_tensor *losses = ls_cross_entropy(z, y);
    if (m->losses_read) losses = ls_mul(losses, ls_input(g, "weight"));
    ls_minimize(g, losses, m->weighted ? ls_input(g, "weight") : NULL);
    if (m->scores_read) ls_report(g, "accuracy", ls_accuracy(z, y));
}

/* A unit in bf16's last place may fall either way. */
static const double two_units = 2.0 / 256;

static void check_in(ls_precision precision, const head_model *m, int64_t batch, ls_dtype label,
                     ls_stage stage, int64_t ignored)
{
    head_model copy = *m;
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { TOKENS, WIDTH } },
                                { "label", label, 1, { TOKENS } },
                                { "weight", LS_DTYPE_F32, 1, { TOKENS } } };
    compare_options o = { .step = language_model,
                          .user = &copy,
                          .stage = stage,
                          .batch = batch,
                          .fields = fields,
                          .nfields = 3,
                          .classes = (int)m->classes,
                          .ignored = ignored,
                          .precision = precision,
                          .tolerance = precision == LS_PRECISION_32 ? 5e-5 : two_units };
    o.misaligned = batch % 2;
    compare_with_reference(&o);
}

static void check(const head_model *m, int64_t batch, ls_dtype label, ls_stage stage,
                  int64_t ignored)
{
    check_in(LS_PRECISION_32, m, batch, label, stage, ignored);
}

/* 822 rows of 84 KB: more than a block of the CPU's holds */
static void test_blocks(void **state)
{
    (void)state;
    if (!compare_on_cpu()) skip();
    head_model m = { .inputs = 12, .classes = 20981, .deep = true };
    check(&m, 137, LS_DTYPE_I32, LS_STAGE_TRAIN, 5);
}

static void test_one_block(void **state)
{
    (void)state;
    head_model deep = { .inputs = 200, .classes = 5261, .deep = true };
    check(&deep, 1, LS_DTYPE_I64, LS_STAGE_TRAIN, 0);
    check(&deep, 6, LS_DTYPE_I32, LS_STAGE_TRAIN, 3);
    deep.weighted = true;
    check(&deep, 7, LS_DTYPE_I64, LS_STAGE_TRAIN, 4);
}

static void test_without_input_gradient(void **state)
{
    (void)state;
    head_model m = { .classes = 47777 };
    check(&m, 2, LS_DTYPE_I32, LS_STAGE_TRAIN, 4);
}

static void test_evaluation(void **state)
{
    (void)state;
    head_model m = { .inputs = 52, .classes = 20981, .deep = true };
    check(&m, 7, LS_DTYPE_I32, LS_STAGE_EVALUATE, 5);
}

static void test_separate(void **state)
{
    (void)state;
    head_model read = { .inputs = 200, .classes = 5261, .deep = true, .scores_read = true };
    check(&read, 7, LS_DTYPE_I32, LS_STAGE_TRAIN, 3);
    head_model early = { .inputs = 200, .classes = 5261, .deep = true, .losses_read = true };
    check(&early, 7, LS_DTYPE_I32, LS_STAGE_TRAIN, 0);
}

static void test_bf16(void **state)
{
    (void)state;
    head_model m = { .inputs = 200, .classes = 5261, .deep = true };
    check_in(LS_PRECISION_BF16_MIXED, &m, 7, LS_DTYPE_I32, LS_STAGE_TRAIN, 3);
    check_in(LS_PRECISION_BF16_MIXED, &m, 7, LS_DTYPE_I32, LS_STAGE_EVALUATE, 3);
    if (!compare_on_cpu()) return;
    head_model blocks = { .inputs = 12, .classes = 20981, .deep = true };
    check_in(LS_PRECISION_BF16_MIXED, &blocks, 137, LS_DTYPE_I32, LS_STAGE_TRAIN, 5);
}

static void test_bad_label(void **state)
{
    (void)state;
    head_model m = { .inputs = 200, .classes = 5261, .deep = true };
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { TOKENS, WIDTH } },
                                { "label", LS_DTYPE_I32, 1, { TOKENS } } };
    compare_options o = { .step = language_model,
                          .user = &m,
                          .batch = 9,
                          .fields = fields,
                          .nfields = 2,
                          .classes = 5261 };
    const char *text = "label 5261 of sample 7 is not in [0, 5261)";
    compare_run_fails(&o, 5261, 7 * TOKENS + 2, LS_ERR_DATA, text);
    o.stage = LS_STAGE_EVALUATE;
    compare_run_fails(&o, 5261, 7 * TOKENS + 2, LS_ERR_DATA, text);
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
        cmocka_unit_test(test_blocks),     cmocka_unit_test(test_one_block),
        cmocka_unit_test(test_evaluation), cmocka_unit_test(test_without_input_gradient),
        cmocka_unit_test(test_bf16),       cmocka_unit_test(test_separate),
        cmocka_unit_test(test_bad_label),
    };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
