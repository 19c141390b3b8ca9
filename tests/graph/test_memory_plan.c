/* The memory plan: random pieces never overlap while both live, and whole training graphs compute
 * the same in a planned arena as with every tensor by itself. */
#include "testing.h"

#include <lockstep/nn.h>

#include "base/memory.h"
#include "base/random.h"
#include "graph/ops.h"
#include "reference.h"

/* --- random pieces --- */

static size_t check_plan(ls__lifetime *pieces, int n)
{
    size_t total = ls__memory_plan(pieces, n), most = 0;
    for (int i = 0; i < n; i++) {
        const ls__lifetime *a = &pieces[i];
        if (a->nbytes == 0) {
            assert_int_equal(a->offset, -1);
            continue;
        }
        assert_true(a->offset >= 0 && a->offset % 64 == 0);
        assert_true((size_t)a->offset + a->nbytes <= total);
        for (int k = 0; k < i; k++) {
            const ls__lifetime *b = &pieces[k];
            if (b->nbytes == 0 || a->begin > b->end || b->begin > a->end) continue;
            bool apart = a->offset + (int64_t)a->nbytes <= b->offset ||
                         b->offset + (int64_t)b->nbytes <= a->offset;
            if (!apart) fail_msg("pieces %d and %d overlap", k, i);
        }
    }
    for (int t = 0; t < 100; t++) {
        size_t alive = 0;
        for (int i = 0; i < n; i++)
            if (pieces[i].begin <= t && t <= pieces[i].end) alive += pieces[i].nbytes;
        if (alive > most) most = alive;
    }
    assert_true(total >= most);
    return most;
}

static void test_random_pieces(void **state)
{
    (void)state;
    double waste = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        ls__lifetime pieces[120];
        ls_rng rng;
        ls__rng_init(&rng, seed, "pieces", 0, 0);
        int n = (int)ls_rng_below(&rng, 120) + 1;
        for (int i = 0; i < n; i++) {
            int begin = (int)ls_rng_below(&rng, 90);
            size_t nbytes = (size_t)ls_rng_below(&rng, i % 3 ? 5000 : 200000);
            pieces[i] = (ls__lifetime) { .nbytes = ls_rng_below(&rng, 10) ? nbytes : 0,
                                         .begin = begin,
                                         .end = begin + (int)ls_rng_below(&rng, 10) };
        }
        size_t most = check_plan(pieces, n);
        waste += most ? (double)ls__memory_plan(pieces, n) / (double)most / 200 : 1.0 / 200;
    }
    assert_true(waste < 1.25); /* of the bound that no plan can beat */
}

static void test_special_pieces(void **state)
{
    (void)state;
    assert_int_equal(ls__memory_plan(NULL, 0), 0);
    ls__lifetime one = { .nbytes = 1, .begin = 3, .end = 3 };
    assert_int_equal(ls__memory_plan(&one, 1), 64);
    /* a reader's output must not lie in what it reads: both ends are included */
    ls__lifetime chain[] = { { 64, 0, 1, 0 }, { 64, 1, 2, 0 }, { 64, 2, 3, 0 } };
    assert_int_equal(ls__memory_plan(chain, 3), 128);
    assert_int_equal(chain[0].offset, chain[2].offset);
    ls__alloc_fail_at(1);
    assert_true(ls__memory_plan(chain, 3) == SIZE_MAX);
    ls__alloc_fail_at(0);
}

/* --- random networks --- */

static const ls_field fields[] = { { "image", LS_DTYPE_F32, 3, { 3, 8, 8 } },
                                   { "label", LS_DTYPE_U8, 0, { 0 } } };

static ls_tensor *random_layer(ls_graph *g, ls_tensor *x, ls_tensor *skip, ls_rng *rng, int i)
{
    const char *name = ls_name(g, "layer%d", i);
    switch (ls_rng_below(rng, 8)) {
    case 0:
        return ls_conv2d(x, name,
                         &(ls_conv2d_options) { .channels = 3, .kernel = 3, .padding = 1 });
    case 1:
        return ls_relu(x);
    case 2:
        return ls_batch_norm_with(x, name, &(ls_batch_norm_options) { 3 });
    case 3:
        return ls_dropout(x, name, 0.25);
    case 4:
        return ls_add(x, skip);
    case 5:
        return ls_mul(x, ls_scale(skip, 0.5f, 1));
    case 6:
        return ls_reshape(ls_relu(ls_flatten(x)), 4, (int64_t[]) { -1, 3, 8, 8 });
    default:
        return ls_add(x, ls_relu(x));
    }
}

static void random_network(ls_graph *g, void *user)
{
    ls_rng rng;
    ls__rng_init(&rng, *(uint64_t *)user, "network", 0, 0);
    ls_tensor *x = ls_input(g, "image"), *before = x;
    int layers = 3 + (int)ls_rng_below(&rng, 12);
    for (int i = 0; i < layers; i++) {
        ls_tensor *next = random_layer(g, x, before, &rng, i);
        if (ls_rng_below(&rng, 2)) before = x;
        x = next;
    }
    ls_tensor *z = ls_linear(ls_max_pool2d(x, 3), "head", 4), *y = ls_input(g, "label");
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

static bool in_place(void *user, const ls__node *node, int input)
{
    const ls_op *op = node->op;
    int *used = user;
    bool yes = op == &ls__op_relu || op == &ls__op_relu_grad || op == &ls__op_add ||
               op == &ls__op_mul || op == &ls__op_scale || op == &ls__op_dropout ||
               (op == &ls__op_cross_entropy_grad && input == 1);
    *used += yes;
    return yes;
}

static void fill(reference *r)
{
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(r->graph, &tensors);
    for (int i = 0; i < n; i++) {
        if (tensors[i]->role == LS__ROLE_VALUE) continue;
        double *values = reference_of(r, tensors[i]);
        reference_fill(values, reference_count(tensors[i]), (uint64_t)i, 1);
        for (int64_t k = 0; k < reference_count(tensors[i]) && tensors[i]->type == LS_DTYPE_U8; k++)
            values[k] = (double)(k % 4);
    }
    assert_ok(reference_run(r));
}

static void same_values(reference *a, reference *b, const ls_tensor *x)
{
    if (x)
        assert_memory_equal(reference_of(a, x), reference_of(b, x),
                            (size_t)reference_count(x) * sizeof(double));
}

static void compare(reference *a, reference *b)
{
    const ls__graph_param *params;
    const ls__graph_result *results;
    int nparams = ls__graph_params(a->graph, &params);
    int nresults = ls__graph_results(a->graph, &results);
    for (int i = 0; i < nparams; i++) same_values(a, b, params[i].grad);
    for (int i = 0; i < nresults; i++) {
        same_values(a, b, results[i].values[0]);
        same_values(a, b, results[i].weights);
    }
}

/* Runs g in an arena as small as its plan and compares all results; returns the arena's bytes. */
static size_t run_planned(const ls_graph *g, ls__alias_fn *alias, void *user)
{
    ls_tensor *const *tensors;
    int n = ls__graph_tensors(g, &tensors);
    int *root = calloc((size_t)n, sizeof *root);
    ls__lifetime *pieces = calloc((size_t)n, sizeof *pieces);
    ls__graph_liveness(g, alias, user, root, pieces);
    for (int i = 0; i < n; i++) /* the arena holds doubles at twice the offsets: 4 bytes each */
        if (pieces[i].nbytes) pieces[i].nbytes = (size_t)reference_count(tensors[i]) * 4;
    size_t nbytes = ls__memory_plan(pieces, n);
    double *arena = malloc(2 * nbytes);
    memset(arena, 0xff, 2 * nbytes); /* NaN: nothing may be read before it is written */
    reference *alone = reference_create(g), *planned = reference_create(g);
    reference_use_arena(planned, root, pieces, arena);
    fill(alone);
    fill(planned);
    compare(alone, planned);
    reference_destroy(alone);
    reference_destroy(planned);
    free(arena);
    free(pieces);
    free(root);
    return nbytes;
}

static void test_networks_in_an_arena(void **state)
{
    (void)state;
    int aliases = 0, smaller = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        ls_graph *g;
        ls__graph_options options = { .stage = seed % 3 == 2 ? LS_STAGE_EVALUATE : LS_STAGE_TRAIN,
                                      .batch = 5,
                                      .fields = fields,
                                      .nfields = 2 };
        assert_ok(ls__graph_build(random_network, &seed, &options, &g));
        size_t plain = run_planned(g, NULL, NULL),
               in_place_bytes = run_planned(g, in_place, &aliases);
        smaller += in_place_bytes < plain;
        ls__graph_destroy(g);
    }
    assert_true(aliases > 60);
    assert_true(smaller > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pieces),
        cmocka_unit_test(test_special_pieces),
        cmocka_unit_test(test_networks_in_an_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
