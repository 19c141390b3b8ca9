#include "helper_loop.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "world/world_internal.h"

typedef struct loop_rank {
    const loop_options *options;
    loop_outcome *outcome;
    ls_world *world;
    pthread_t thread;
} loop_rank;

/* --- data --- */

typedef struct points {
    const loop_options *options;
    int64_t length;
    float shift;
} points;

static int64_t points_length(void *self)
{
    return ((points *)self)->length;
}

static ls_status points_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    const points *p = self;
    float *x = out[0], *y = out[1];
    if (rng && index && index == p->options->bad_read)
        return ls_fail(LS_ERR_IO, "broken at %lld", (long long)index);
    *y = p->shift;
    for (int j = 0; j < LOOP_FEATURES; j++) {
        x[j] = sinf((float)(index * 31 + j * 7) * 0.37f);
        *y += x[j] * (float)(j - 3) * 0.25f;
    }
    if (rng) x[0] += 0.01f * (float)ls_rng_uniform(rng);
    return LS_OK;
}

static ls_dataset *points_create(points *p)
{
    static const ls_dataset_ops ops = { .length = points_length, .read = points_read };
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { LOOP_FEATURES } },
                                       { "y", LS_DTYPE_F32, 0, { 0 } } };
    ls_dataset *out = NULL;
    return ls_dataset_create(&ops, p, fields, 2, &out) == LS_OK ? out : NULL;
}

/* --- the loop --- */

static double sample_loss(const float *w, const ls_batch *b, int64_t i, float *error)
{
    const float *x = (const float *)b->fields[0] + i * LOOP_FEATURES, *y = b->fields[1];
    float e = w[LOOP_FEATURES] - y[i];
    for (int j = 0; j < LOOP_FEATURES; j++) e += w[j] * x[j];
    *error = e;
    return (double)e * e;
}

static double gradients(const float *w, const ls_batch *b, float *grad)
{
    double loss = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const float *x = (const float *)b->fields[0] + i * LOOP_FEATURES;
        float e;
        loss += sample_loss(w, b, i, &e) / (double)b->count;
        for (int j = 0; j < LOOP_FEATURES; j++) grad[j] += 2 * e * x[j] / (float)b->count;
        grad[LOOP_FEATURES] += 2 * e / (float)b->count;
    }
    return loss;
}

/* Logged outside every micro-batch, by one rank. */
static void log_step(ls_run *run, void *user)
{
    if (ls_world_rank(user) == 0) ls_run_log(run, "outside", (double)ls_run_step(run), 1);
}

static void count_epoch(ls_run *run, void *user)
{
    (void)run;
    ++*(int64_t *)user;
}

static void compute(loop_rank *r, ls_run *run, ls_space *space, const ls_batch *b)
{
    const loop_options *o = r->options;
    int64_t step = ls_run_step(run) + 1;
    float own[LOOP_VALUES] = { 0 };
    float *grad = o->grads_argument ? own : ls_space_grads(space);
    double weight = step == o->zero_weight_at ? 0 : (double)b->count;
    double loss = gradients(ls_space_values(space), b, grad);
    if (step == o->nan_at) loss = NAN;
    if (o->slow_ms && ls_world_rank(r->world) == 1) ls__sleep_ms(o->slow_ms);
    ls_space_add(space, o->grads_argument ? own : NULL, weight);
    if (o->two_adds) ls_space_add(space, NULL, weight);
    ls_run_log(run, "loss", loss, weight);
}

static void validate(loop_rank *r, ls_run *run, ls_space *space, ls_dataset *val)
{
    ls_batch b;
    while (ls_run_evaluate(run, val, "val", &b)) {
        for (int64_t i = 0; i < b.count; i++) {
            float e;
            ls_run_log(run, "loss", sample_loss(ls_space_values(space), &b, i, &e), 1);
        }
        r->outcome->seen += b.count;
    }
    r->outcome->val_loss = ls_run_metric(run, "val/loss");
}

static void loop(loop_rank *r, ls_run *run, ls_space *space, ls_dataset *val)
{
    const loop_options *o = r->options;
    ls_batch b;
    r->outcome->began_at = -1;
    while (ls_run_next(run)) {
        if (r->outcome->began_at < 0) r->outcome->began_at = ls_run_step(run);
        if (o->leave_at && ls_run_step(run) == o->leave_at) break;
        while (!o->skip_micro_batch && ls_run_micro_batch(run, &b)) compute(r, run, space, &b);
        r->outcome->kept++;
        if (!o->no_step) ls_space_step(space);
        if (val && ls_run_due_validation(run)) validate(r, run, space, val);
        if (o->leave_behind && ls_run_step(run) == o->leave_behind) break;
    }
}

static ls_status run_rank(loop_rank *r)
{
    const loop_options *o = r->options;
    loop_outcome *out = r->outcome;
    points train_points = { o, o->samples ? o->samples : 100, 1 };
    points val_points = { o, o->val_samples, 1 };
    ls_dataset *train = points_create(&train_points), *val = points_create(&val_points);
    const ls_callback counter = { .name = "counter",
                                  .user = &out->called,
                                  .state = &out->called,
                                  .state_size = sizeof out->called,
                                  .epoch_end = count_epoch };
    const ls_callback logger = { .user = r->world, .step_end = log_step };
    ls_run_options options = o->run;
    options.callbacks = (const ls_callback *const[]) { &counter, &logger, NULL };
    float array[LOOP_VALUES] = { 0.5f };
    ls_run *run = NULL;
    ls_space *space = NULL;
    if (o->fail_allocation) ls__alloc_fail_at(o->fail_allocation);
    ls_status status = ls_run_create(r->world, train, &options, &run);
    if (status == LS_OK) {
        ls_run_keep(run, "count", &out->kept, sizeof out->kept);
        const ls_param_spec specs[] = { { "w", LOOP_FEATURES }, { "bias", 1 } };
        ls_space_options space_options = { .params = specs,
                                           .nparams = 2,
                                           .values = o->own_array ? array : NULL };
        if (!o->no_space) status = ls_space_create(run, &space_options, &space);
        if (space && ls_world_rank(r->world) == 0) ls_space_values(space)[0] = 0.5f;
        if (status == LS_OK) loop(r, run, space, o->val_samples ? val : NULL);
        if (space) memcpy(out->values, ls_space_values(space), sizeof out->values);
        ls_status finished = ls_run_finish(run, &out->result);
        if (status == LS_OK) status = finished;
    }
    if (o->fail_allocation) ls__alloc_fail_at(0);
    ls_dataset_destroy(train);
    ls_dataset_destroy(val);
    return status;
}

static void *thread_main(void *user)
{
    loop_rank *r = user;
    r->outcome->status = run_rank(r);
    if (r->outcome->status != LS_OK)
        snprintf(r->outcome->text, sizeof r->outcome->text, "%s", ls_error_text());
    ls_world_finish(r->world);
    return NULL;
}

void loop_run(int size, const loop_options *options, loop_outcome *outcomes)
{
    ls_world *worlds[LOOP_RANKS_MAX];
    loop_rank ranks[LOOP_RANKS_MAX];
    assert_true(size <= LOOP_RANKS_MAX);
    assert_ok(ls__world_create_threads(size, worlds));
    memset(outcomes, 0, (size_t)size * sizeof *outcomes);
    for (int r = 0; r < size; r++) {
        ranks[r] = (loop_rank) { options, &outcomes[r], worlds[r], 0 };
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(ranks[r].thread, NULL);
}

loop_outcome loop_run_ok(int size, const loop_options *options)
{
    loop_outcome out[LOOP_RANKS_MAX];
    loop_run(size, options, out);
    for (int r = 0; r < size; r++) {
        if (out[r].status != LS_OK) fail_msg("rank %d of %d: %s", r, size, out[r].text);
        assert_int_equal(out[r].result.weights_xxh3, out[0].result.weights_xxh3);
        assert_memory_equal(out[r].values, out[0].values, sizeof out[r].values);
        assert_memory_equal(&out[r].result.train, &out[0].result.train, sizeof out[r].result.train);
        if (r > 0) out[0].seen += out[r].seen;
    }
    return out[0];
}

char *loop_folder_make(void)
{
    char *folder = strdup("/tmp/lockstep-loop-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

void loop_folder_remove(char *folder)
{
    assert_ok(ls__folder_remove(&ls__fs_posix, folder));
    free(folder);
}
