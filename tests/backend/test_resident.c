/* Training state on a simulated GPU beside the exchange on the host: the same gradients, the same
 * rules. Sums and norms agree in every bit, updates to rounding. Under the thread sanitizer a missing
 * event between the two streams is a race. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/shm.h"
#include "graph/backend.h"
#include "optim/optim.h"
#include "testing.h"

enum { SEGMENTS = 5, SPACE = 21024, STEPS = 2, STATISTIC = 3, FROZEN = 4 };

/* A short one, several blocks, a block and one element, a statistic, a frozen one; with gaps. */
static const ls__segment segments[SEGMENTS] = {
    { .offset = 0, .count = 7, .bucket = 0, .in_norm = true },
    { .offset = 16, .count = 12300, .bucket = 0, .in_norm = true },
    { .offset = 12320, .count = 4097, .bucket = 1, .in_norm = true },
    { .offset = 16432, .count = 33, .bucket = 1 },
    { .offset = 16480, .count = 4544, .bucket = 1 },
};

typedef struct fixture {
    const ls_optimizer *kind;
    int micro_batches, step;
    ls_comm *comm;
    ls__exchange *exchange;
    const ls__resident_table *table;
    ls__resident *resident;
    int nstates;
    float *states[2]; /* the host's: (SPACE) by place */
    bool present[16];
} fixture;

static float number(int step, int leaf, int64_t i)
{
    uint64_t x =
        (uint64_t)i * 0x9e3779b97f4a7c15 + (uint64_t)(step * 131 + leaf) * 0xbf58476d1ce4e5b9;
    x ^= x >> 31;
    x *= 0x94d049bb133111eb;
    return (float)((double)(x >> 40) / (1 << 23) - 1);
}

static void step_of(const fixture *f, int segment, float scale, ls__rule_step *out)
{
    ls_slice slice = { .grad_scale = scale,
                       .step = f->step + 1,
                       .lr = 0.01,
                       .weight_decay = segment == 0 ? 0 : 0.1,
                       .momentum = 0.9,
                       .beta1 = 0.9,
                       .beta2 = 0.95 };
    if (segment == STATISTIC)
        *out = (ls__rule_step) { .rule = LS__RULE_AVERAGE, .scale = scale, .momentum = 0.1f };
    else if (segment == FROZEN)
        *out = (ls__rule_step) { .rule = LS__RULE_NONE };
    else
        assert_true(ls__rule_step_of(f->kind, &slice, out));
}

static void update(void *user, int segment, int64_t offset, int64_t count, float *param,
                   const float *grad, float scale)
{
    const fixture *f = user;
    float *states[] = { f->states[0] + offset, f->states[1] + offset };
    if (segment == STATISTIC)
        for (int64_t i = 0; i < count; i++) param[i] += 0.1f * (grad[i] * scale - param[i]);
    if (segment == STATISTIC || segment == FROZEN) return;
    f->kind->update(&(ls_slice) { .param = param,
                                  .grad = grad,
                                  .grad_scale = scale,
                                  .state = states,
                                  .count = count,
                                  .step = f->step + 1,
                                  .lr = 0.01,
                                  .weight_decay = segment == 0 ? 0 : 0.1,
                                  .momentum = 0.9,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95 });
}

static void make(fixture *f, const ls_optimizer *kind, int micro_batches)
{
    const ls__backend *backend;
    const ls__range *ranges;
    *f = (fixture) { .kind = kind, .micro_batches = micro_batches };
    f->nstates = ls__optimizer_states(kind);
    assert_ok(ls__backend_open("sim", 1, &backend));
    f->table = backend->resident;
    ls__comm_shm_options alone = { .size = 1 };
    assert_ok(ls__comm_shm_create(NULL, &alone, &f->comm));
    assert_true(f->table->available(f->comm));
    ls__exchange_options x = { .segments = segments,
                               .nsegments = SEGMENTS,
                               .count = SPACE,
                               .micro_batches = micro_batches,
                               .norms = true,
                               .halves = true,
                               .update = update,
                               .user = f };
    assert_ok(ls__exchange_create(f->comm, &x, &f->exchange));
    for (int i = 0; i < 2; i++) f->states[i] = calloc(SPACE, sizeof(float));
    ls__resident_options r = { .comm = f->comm,
                               .segments = segments,
                               .nsegments = SEGMENTS,
                               .count = SPACE,
                               .micro_batches = micro_batches,
                               .nstates = f->nstates,
                               .norms = true,
                               .halves = true,
                               .timeout_ms = -1 };
    r.nranges = ls__exchange_owned(f->exchange, &ranges);
    r.ranges = ranges;
    assert_ok(f->table->create(&r, &f->resident));
    float *params = ls__exchange_params(f->exchange);
    for (int64_t i = 0; i < SPACE; i++) params[i] = number(-1, 0, i);
    ls__exchange_round(f->exchange);
    assert_ok(f->table->put(f->resident, params, NULL));
}

static void unmake(fixture *f)
{
    f->table->destroy(f->resident);
    ls__exchange_destroy(f->exchange);
    ls__comm_destroy(f->comm);
    for (int i = 0; i < 2; i++) free(f->states[i]);
}

/* Both get the gradients of all leaves that are present. */
static void compute(fixture *f)
{
    f->table->begin(f->resident, f->present);
    for (int leaf = 0; leaf < f->micro_batches; leaf++) {
        float *grads = ls__exchange_leaf(f->exchange);
        for (int64_t i = 0; i < SPACE; i++) grads[i] = number(f->step, leaf, i);
        if (f->present[leaf]) assert_ok(f->table->set(f->resident, grads, 1));
        ls__exchange_leaf_done(f->exchange, f->present[leaf], 1);
        assert_ok(f->table->leaf_done(f->resident, true));
    }
}

static double total(const double *norms)
{
    double sum = 0;
    for (int s = 0, block = 0; s < SEGMENTS; s++)
        for (int64_t at = 0; at < segments[s].count; at += LS__BLOCK, block++)
            if (segments[s].in_norm) sum += norms[block];
    return sum;
}

static void compare(const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_float_equal(a[i], b[i], 2e-6 * fmaxf(1, fabsf(a[i])));
}

static void check_copies(fixture *f)
{
    const float *params = ls__exchange_params(f->exchange);
    float *copy = calloc(SPACE, sizeof *copy), *states[2];
    for (int i = 0; i < 2; i++) states[i] = calloc(SPACE, sizeof(float));
    assert_ok(f->table->get(f->resident, copy, states, false));
    for (int s = 0; s < SEGMENTS; s++)
        compare(params + segments[s].offset, copy + segments[s].offset, segments[s].count);
    int64_t at = 0; /* of states, side by side */
    for (int s = 0; s < SEGMENTS; s++) {
        for (int i = 0; i < f->nstates; i++)
            compare(f->states[i] + segments[s].offset, states[i] + at, segments[s].count);
        at += segments[s].count;
    }
    memset(copy, 0, SPACE * sizeof *copy);
    assert_ok(f->table->get(f->resident, copy, NULL, true));
    compare(params, copy, segments[0].count);
    compare(params + segments[4].offset, copy + segments[4].offset, segments[4].count);
    free(copy);
    for (int i = 0; i < 2; i++) free(states[i]);
}

static void train(const ls_optimizer *kind, int micro_batches, unsigned absent)
{
    fixture f;
    double norms[16] = { 0 };
    ls__agreement a;
    make(&f, kind, micro_batches);
    for (f.step = 0; f.step < STEPS; f.step++) {
        for (int i = 0; i < micro_batches; i++) f.present[i] = !(absent >> i & 1);
        ls__rule_step steps[SEGMENTS];
        float scale = 0.25f;
        for (int s = 0; s < SEGMENTS; s++) step_of(&f, s, scale, &steps[s]);
        compute(&f);
        assert_ok(ls__exchange_agree(f.exchange, 0, 0, &a));
        if (f.step != 1) { /* once without: then the sum is made by the commit */
            assert_ok(f.table->norms(f.resident, norms));
            assert_true(total(norms) == a.norm2);
        }
        assert_ok(f.table->commit(f.resident, steps));
        ls__exchange_commit(f.exchange, scale, false);
        assert_ok(ls__exchange_wait(f.exchange));
    }
    check_copies(&f);
    unmake(&f);
}

static void test_rules(void **state)
{
    (void)state;
    train(&ls_adamw, 1, 0);
    train(&ls_sgd, 2, 0);
    train(&ls_nesterov, 4, 0);
}

static void test_trees(void **state)
{
    (void)state;
    train(&ls_adamw, 3, 0);
    train(&ls_adamw, 7, 0);
    train(&ls_adamw, 6, 1 << 1 | 1 << 4);
    train(&ls_adamw, 4, 1 << 3);
}

/* Given up, then gone on with: nothing has changed. */
static void test_dropped_step(void **state)
{
    (void)state;
    fixture f;
    double norms[16] = { 0 };
    make(&f, &ls_adamw, 2);
    f.present[0] = f.present[1] = true;
    ls__agreement a;
    compute(&f);
    assert_ok(ls__exchange_agree(f.exchange, 0, 0, &a));
    assert_ok(f.table->norms(f.resident, norms));
    f.table->drop(f.resident, false);
    ls__exchange_commit(f.exchange, 0, true);
    assert_ok(ls__exchange_wait(f.exchange));
    check_copies(&f);
    unmake(&f);
}

/* What a checkpoint held: states come back as they were. */
static void test_states_return(void **state)
{
    (void)state;
    fixture f;
    make(&f, &ls_adamw, 1);
    float *states[2], *back[2], *params = ls__exchange_params(f.exchange);
    for (int i = 0; i < 2; i++) {
        states[i] = calloc(SPACE, sizeof(float));
        back[i] = calloc(SPACE, sizeof(float));
        for (int64_t k = 0; k < SPACE; k++) states[i][k] = number(i, 5, k);
    }
    int64_t count = 0;
    for (int s = 0; s < SEGMENTS; s++) count += segments[s].count;
    assert_ok(f.table->put(f.resident, params, states));
    assert_ok(f.table->get(f.resident, params, back, false));
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(states[i], back[i], (size_t)count * sizeof(float));
        free(states[i]);
        free(back[i]);
    }
    unmake(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_dropped_step),
        cmocka_unit_test(test_states_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
