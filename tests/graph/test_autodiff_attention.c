/* Gradients of attention, rotary positions and softmax against central differences, in double
 * precision by the reference executor. */
#include "testing.h"

#include <lockstep/nn.h>

#include "differences.h"
#include "graph/ops.h"

static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 5, 6 } },
                                   { "label", LS_DTYPE_I32, 1, { 5 } } };

typedef struct attention_case {
    ls_attention_options options;
    int64_t width;
    bool rotary;
} attention_case;

static ls_tensor *rows(ls_tensor *x, const char *name, int64_t features)
{
    return ls_linear_with(x, name, &(ls_linear_options) { .features = features, .rows = true });
}

static void classify(ls_graph *g, ls_tensor *x)
{
    ls_minimize(g, ls_cross_entropy(rows(x, "head", 5), ls_input(g, "label")), NULL);
}

static void attend(ls_graph *g, void *user)
{
    const attention_case *c = user;
    int64_t kv_heads = c->options.kv_heads ? c->options.kv_heads : c->options.heads;
    ls_tensor *x = rows(ls_input(g, "x"), "qkv", (c->options.heads + 2 * kv_heads) * c->width);
    if (c->rotary) x = ls_rotary(x, &c->options, 30);
    classify(g, ls_attention(x, "attention", &c->options));
}

static void test_attention(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        { .options = { .heads = 1 }, .width = 3 },
        { .options = { .heads = 2, .full = true }, .width = 2 },
        { .options = { .heads = 6, .kv_heads = 2 }, .width = 2 },
        { .options = { .heads = 5, .kv_heads = 1, .full = true, .scale = 1.5 }, .width = 1 },
        { .options = { .heads = 2, .kv_heads = 1 }, .width = 4, .rotary = true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        differences_check(attend, (void *)(uintptr_t)&cases[i], 3, fields, 2, 5);
}

static void weigh(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_softmax(rows(ls_input(g, "x"), "scores", 7));
    ls_init init = { .kind = LS_INIT_NORMAL, .scale = 1 };
    ls_tensor *row = ls_softmax(ls_param(g, "row", &init, 1, (const int64_t[]) { 7 }));
    classify(g, ls_mul(x, row));
}

static void test_softmax(void **state)
{
    (void)state;
    differences_check(weigh, NULL, 3, fields, 2, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_attention),
                                        cmocka_unit_test(test_softmax) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
