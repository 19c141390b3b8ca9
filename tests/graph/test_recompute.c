/* ls_recompute_begin and _end on graphs: what is computed again, what stays, the memory that is
 * planned, and mistakes. Values: tests/backend/test_cpu_recompute.c. */
#include "testing.h"

#include <lockstep/nn.h>

#include "base/memory.h"
#include "graph/ops.h"
#include "reference.h"

static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 12, 8 } },
                                   { "label", LS_DTYPE_I32, 0, { 0 } } };

typedef struct net {
    int blocks;
    bool recompute, leak, report;
    ls_stage stage;
} net;

static ls_graph *build(ls_step_fn *step, const net *n)
{
    ls__graph_options options = {
        .stage = n->stage, .batch = 3, .fields = fields, .nfields = 2, .input_gradients = true
    };
    ls_graph *g;
    assert_ok(ls__graph_build(step, (void *)n, &options, &g));
    return g;
}

static int count_of(const ls_graph *g, const ls_op *op, bool backward)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(g, &nodes), count = 0;
    for (int i = 0; i < n; i++) count += nodes[i].op == op && nodes[i].backward == backward;
    return count;
}

/* Several tensors of a size per block; its output is one of them. */
static ls_tensor *block(ls_graph *g, ls_tensor *x, int i, const net *n)
{
    if (n->recompute) ls_recompute_begin(g);
    int64_t b = ls_tensor_dim(x, 0);
    ls_tensor *rows = ls_reshape(x, 2, (const int64_t[]) { b * 12, 8 });
    ls_tensor *h = ls_relu(ls_linear(rows, ls_name(g, "block%d.fc1", i), 16));
    h = ls_mul(h, ls_relu(ls_linear(rows, ls_name(g, "block%d.gate", i), 16)));
    h = ls_reshape(ls_linear(h, ls_name(g, "block%d.fc2", i), 8), 3,
                   (const int64_t[]) { b, 12, 8 });
    h = ls_dropout(h, ls_name(g, "block%d.drop", i), 0.25);
    if (n->report) ls_report(g, ls_name(g, "block%d", i), ls_mean(ls_mul(h, h), 2));
    ls_tensor *y = ls_add(x, h);
    if (n->recompute) y = ls_recompute_end(y);
    return n->leak ? ls_mul(y, ls_relu(h)) : y;
}

static void net_step(ls_graph *g, void *user)
{
    const net *n = user;
    ls_tensor *x = ls_input(g, "x");
    for (int i = 0; i < n->blocks; i++) x = block(g, x, i, n);
    ls_output(g, "y", x);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 4), ls_input(g, "label")), NULL);
}

static void test_what_is_computed_again(void **state)
{
    (void)state;
    net n = { .blocks = 3 };
    ls_graph *plain = build(net_step, &n);
    n.recompute = true;
    ls_graph *again = build(net_step, &n);
    assert_int_equal(count_of(plain, &ls__op_linear, true), 0);
    /* fc1 and gate, whose outputs gradients need; not fc2, the dropout and the sum */
    assert_int_equal(count_of(again, &ls__op_linear, true), 6);
    assert_int_equal(count_of(again, &ls__op_dropout, true),
                     count_of(plain, &ls__op_dropout, true));
    assert_int_equal(count_of(again, &ls__op_linear, false),
                     count_of(plain, &ls__op_linear, false));
    ls__graph_destroy(plain);
    ls__graph_destroy(again);
}

/* No forward value of a block is read by the backward pass but those that it hands on. */
static void test_originals_die(void **state)
{
    (void)state;
    net n = { .blocks = 2, .recompute = true };
    ls_graph *g = build(net_step, &n);
    const ls__node *nodes;
    int count = ls__graph_nodes(g, &nodes), kept = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; nodes[i].backward && k < nodes[i].nin; k++) {
            const ls_tensor *x = nodes[i].in[k];
            const ls__node *from = x->role == LS__ROLE_VALUE ? &nodes[x->node] : NULL;
            if (!from || from->backward || !from->segment) continue;
            assert_true(from->op == &ls__op_add);
            kept++;
        }
    assert_true(kept > 0);
    ls__graph_destroy(g);
}

static size_t planned(const ls_graph *g)
{
    int n = ls__graph_tensors(g, NULL);
    int *root = malloc((size_t)n * sizeof *root);
    ls__lifetime *pieces = malloc((size_t)n * sizeof *pieces);
    ls__graph_liveness(g, NULL, NULL, root, pieces);
    size_t nbytes = ls__memory_plan(pieces, n);
    free(root);
    free(pieces);
    return nbytes;
}

static void test_memory_shrinks(void **state)
{
    (void)state;
    net n = { .blocks = 8 };
    ls_graph *plain = build(net_step, &n);
    n.recompute = true;
    ls_graph *again = build(net_step, &n);
    assert_true(planned(again) * 2 < planned(plain));
    ls__graph_destroy(plain);
    ls__graph_destroy(again);
}

/* Everything that the two graphs compute is the same, whatever leaves a block. */
static void compare_values(const net *how)
{
    net n = *how;
    reference *r[2];
    for (int k = 0; k < 2; k++) {
        n.recompute = k == 1;
        ls_graph *g = build(net_step, &n);
        r[k] = reference_create(g);
        const ls__graph_param *params;
        int nparams = ls__graph_params(g, &params);
        for (int i = 0; i < nparams; i++)
            reference_fill(reference_of(r[k], params[i].tensor), reference_count(params[i].tensor),
                           (uint64_t)i + 1, 0.5);
        reference_fill(reference_of(r[k], reference_input(g, "x")), 3 * 12 * 8, 100, 1);
        r[k]->grad_seed = 1;
        r[k]->seed = 7;
        assert_ok(reference_run(r[k]));
    }
    const ls__graph_param *first, *second;
    int nparams = ls__graph_params(r[0]->graph, &first);
    assert_int_equal(ls__graph_params(r[1]->graph, &second), nparams);
    for (int i = 0; i < nparams && n.stage == LS_STAGE_TRAIN; i++) {
        assert_string_equal(first[i].name, second[i].name);
        assert_int_equal(first[i].depth, second[i].depth);
        assert_memory_equal(reference_of(r[0], first[i].grad), reference_of(r[1], second[i].grad),
                            (size_t)reference_count(first[i].tensor) * sizeof(double));
    }
    const ls__graph_result *one, *two;
    int nresults = ls__graph_results(r[0]->graph, &one);
    assert_int_equal(ls__graph_results(r[1]->graph, &two), nresults);
    for (int i = 0; i < nresults; i++)
        assert_memory_equal(reference_of(r[0], one[i].values[0]),
                            reference_of(r[1], two[i].values[0]),
                            (size_t)reference_count(one[i].values[0]) * sizeof(double));
    for (int k = 0; k < 2; k++) {
        ls_graph *g = (ls_graph *)r[k]->graph;
        reference_destroy(r[k]);
        ls__graph_destroy(g);
    }
}

static void test_same_values(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        net n = { .blocks = 3, .leak = how & 1, .report = how & 2 };
        compare_values(&n);
        n.stage = LS_STAGE_EVALUATE;
        compare_values(&n);
        n.stage = LS_STAGE_PREDICT;
        compare_values(&n);
    }
}

/* --- mistakes --- */

static void head(ls_graph *g, ls_tensor *x)
{
    ls_output(g, "y", x);
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", 4), ls_input(g, "label")), NULL);
}

static void end_only(ls_graph *g, void *user)
{
    (void)user;
    head(g, ls_recompute_end(ls_input(g, "x")));
}

static void nested(ls_graph *g, void *user)
{
    (void)user;
    ls_recompute_begin(g);
    ls_tensor *x = ls_relu(ls_input(g, "x"));
    ls_recompute_begin(g);
    head(g, ls_recompute_end(ls_relu(x)));
}

static void begin_only(ls_graph *g, void *user)
{
    (void)user;
    ls_recompute_begin(g);
    head(g, ls_relu(ls_input(g, "x")));
}

static void wrong_tensor(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_relu(ls_input(g, "x"));
    ls_recompute_begin(g);
    ls_tensor *y = ls_relu(x);
    ls_recompute_end(x);
    head(g, y);
}

/* A block that does nothing, as dropout with p = 0. */
static void empty(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_relu(ls_input(g, "x"));
    ls_recompute_begin(g);
    head(g, ls_recompute_end(ls_dropout(x, "drop", 0)));
}

static void unknown_field(ls_graph *g, void *user)
{
    (void)user;
    ls_output(g, "y", ls_input(g, "x"));
    ls_recompute_begin(g);
    ls_tensor *target = ls_relu(ls_input(g, "target"));
    ls_minimize(g, ls_recompute_end(target), NULL);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        ls_step_fn *step;
        const char *text;
    } cases[] = {
        { end_only, "ls_recompute_end without ls_recompute_begin" },
        { nested, "ls_recompute_begin: the one before it has no ls_recompute_end yet" },
        { begin_only, "ls_recompute_begin without ls_recompute_end" },
        { wrong_tensor, "ls_recompute_end: (B,12,8) was not computed since ls_recompute_begin" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stage = LS_STAGE_TRAIN; stage <= LS_STAGE_PREDICT; stage++) {
            ls__graph_options options = {
                .stage = (ls_stage)stage, .batch = 3, .fields = fields, .nfields = 2
            };
            ls_graph *g;
            assert_fails(ls__graph_build(cases[i].step, NULL, &options, &g), LS_ERR_ARG,
                         cases[i].text);
        }
    assert_null(ls_recompute_end(NULL));
    net n = { 0 };
    ls__graph_destroy(build(empty, &n));
    n.stage = LS_STAGE_PREDICT;
    ls__graph_destroy(build(unknown_field, &n));
}

static void test_failed_allocations(void **state)
{
    (void)state;
    net n = { .blocks = 2, .recompute = true, .leak = true };
    ls__graph_options options = {
        .stage = LS_STAGE_TRAIN, .batch = 3, .fields = fields, .nfields = 2
    };
    for (long k = 1;; k++) {
        ls_graph *g;
        ls__alloc_fail_at(k);
        ls_status status = ls__graph_build(net_step, &n, &options, &g);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            ls__graph_destroy(g);
            assert_true(k > 100);
            return;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_computed_again),
        cmocka_unit_test(test_originals_die),
        cmocka_unit_test(test_memory_shrinks),
        cmocka_unit_test(test_same_values),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
