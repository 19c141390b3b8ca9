/* Gradients of embeddings, norms over rows, activations and tied weights against finite
 * differences. */
#include "testing.h"

#include <lockstep/nn.h>

#include "differences.h"

enum { CLASSES = 5, LENGTH = 6 };

static const ls_field fields[] = {
    { "tokens", LS_DTYPE_I32, 1, { LENGTH } }, /* in [0, CLASSES) */
    { "label", LS_DTYPE_I64, 1, { LENGTH } },  /* some are ignored */
    { "x", LS_DTYPE_F32, 2, { 3, 4 } },
};

static void check(ls_step_fn *step, int variant, int checked)
{
    for (int64_t batch = 1; batch <= 4; batch += 3)
        differences_check(step, &variant, batch, fields, sizeof fields / sizeof *fields, checked);
}

/* variant: 1 = tied head, 2 = the table is read twice */
static void text(ls_graph *g, void *user)
{
    int variant = *(const int *)user;
    ls_tensor *tokens = ls_input(g, "tokens"), *x = ls_embedding(tokens, "wte", CLASSES, 3, 0.5);
    x = ls_position_embedding(x, "wpe", LENGTH + 2, 0.5);
    if (variant & 2) x = ls_mul(x, ls_embedding(tokens, "wte", CLASSES, 3, 0.5));
    ls_linear_options head = { .features = CLASSES, .rows = true, .no_bias = true };
    if (variant & 1) head.tied_to = "wte";
    ls_minimize(g, ls_cross_entropy(ls_linear_with(x, "head", &head), ls_input(g, "label")), NULL);
}

static void test_embeddings(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) check(text, variant, variant & 1 ? 2 : 3);
}

static void norms(ls_graph *g, void *user)
{
    bool rms = *(const int *)user;
    ls_tensor *x = ls_linear_with(ls_input(g, "x"), "fc",
                                  &(ls_linear_options) { .features = 6, .rows = true });
    x = rms ? ls_rms_norm(x, "norm") : ls_layer_norm(x, "norm");
    ls_init init = { .kind = LS_INIT_UNIFORM, .scale = 1 };
    ls_tensor *p = ls_param(g, "p", &init, 2, (const int64_t[]) { 3, 6 });
    x = ls_mul(x, rms ? ls_rms_norm(p, "own") : ls_layer_norm(p, "own"));
    x = ls_linear_with(ls_reshape(x, 3, (const int64_t[]) { -1, LENGTH, 3 }), "head",
                       &(ls_linear_options) { .features = CLASSES, .rows = true });
    ls_minimize(g, ls_cross_entropy(x, ls_input(g, "label")), NULL);
}

static void test_norms(void **state)
{
    (void)state;
    check(norms, 0, 10);
    check(norms, 1, 8);
}

static void activation(ls_graph *g, void *user)
{
    static ls_tensor *(*const kinds[])(ls_tensor *) = { ls_gelu, ls_gelu_tanh, ls_silu, ls_tanh,
                                                        ls_sigmoid };
    ls_tensor *(*kind)(ls_tensor *) = kinds[*(const int *)user];
    ls_tensor *x = kind(ls_linear(ls_scale(kind(ls_input(g, "x")), 2, 0), "fc", 7));
    x = ls_reshape(ls_linear(x, "head", LENGTH * CLASSES), 3,
                   (const int64_t[]) { -1, LENGTH, CLASSES });
    ls_minimize(g, ls_cross_entropy(x, ls_input(g, "label")), NULL);
}

static void test_activations(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) check(activation, kind, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
