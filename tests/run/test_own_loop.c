/* Loops of one's own on ls_run and ls_space, on 1 to 4 ranks: bits, resume, evaluation, mistakes. */
#include "helper_loop.h"

#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "record/record.h"

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = loop_folder_make();
    ls__log_set_level(LS__LOG_ERROR);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    loop_folder_remove(folder);
    return 0;
}

static loop_options usual(void)
{
    return (loop_options) { .run = { .batch_size = 12,
                                     .micro_batches = 4,
                                     .max_steps = 20,
                                     .seed = 5,
                                     .runs_dir = folder,
                                     .log_every = LS_STEPS(4),
                                     .optimizer = { .lr = 0.02 } } };
}

static void same_bits(const loop_options *options)
{
    loop_outcome first = loop_run_ok(1, options);
    assert_true(first.values[0] != 0.5f && isfinite(first.values[0]));
    for (int size = 2; size <= 4; size++) {
        loop_outcome other = loop_run_ok(size, options);
        assert_int_equal(other.result.weights_xxh3, first.result.weights_xxh3);
        assert_memory_equal(other.values, first.values, sizeof first.values);
        assert_memory_equal(&other.result.train, &first.result.train, sizeof first.result.train);
    }
}

static void the_number_of_ranks_changes_no_bit(void **state)
{
    (void)state;
    loop_options o = usual();
    same_bits(&o);
    o.run.clip_norm = 0.7;
    same_bits(&o);
    o.run.optimizer.kind = &ls_sgd;
    same_bits(&o);
}

/* The update sees one whole tensor: it divides by its norm, which no slice could. */
static void normed_update(const ls_slice *s)
{
    double sum = 0;
    for (int64_t i = 0; i < s->count; i++) sum += (double)s->grad[i] * s->grad[i];
    for (int64_t i = 0; i < s->count; i++) {
        s->state[0][i] += s->grad[i];
        s->param[i] -= (float)s->lr * s->state[0][i] / (float)(sqrt(sum) + 1);
    }
    if (s->shape[0] != s->count || !s->name) s->param[0] = NAN;
}
static const ls_optimizer normed = { .name = "normed",
                                     .states = (const char *const[]) { "sum", NULL },
                                     .whole_tensors = true,
                                     .update = normed_update };

static void an_optimizer_of_whole_tensors(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.optimizer.kind = &normed;
    same_bits(&o);
}

static void arrays_of_the_callers(void **state)
{
    (void)state;
    loop_options o = usual();
    loop_outcome here = loop_run_ok(2, &o);
    o.own_array = true;
    same_bits(&o);
    o.grads_argument = true;
    loop_outcome there = loop_run_ok(3, &o);
    assert_memory_equal(there.values, here.values, sizeof here.values);
}

static void training_lowers_the_loss_to_the_noise(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.max_steps = 400;
    o.run.optimizer.lr = 0.05;
    o.run.schedule.kind = LS_SCHEDULE_COSINE;
    loop_outcome out = loop_run_ok(2, &o);
    assert_true(ls_values_get(&out.result.train, "loss") < 0.02);
    assert_int_equal(out.result.reason, LS_STOP_MAX_STEPS);
    assert_true(out.result.samples_per_s > 0 &&
                out.result.step_ms_p95 >= out.result.step_ms_median);
}

static void validation_counts_every_sample_once(void **state)
{
    (void)state;
    loop_options o = usual();
    o.val_samples = 1031;
    o.run.max_steps = 6;
    o.run.validate_every = LS_STEPS(3);
    loop_outcome first = loop_run_ok(1, &o);
    assert_int_equal(first.seen, 2 * 1031);
    assert_true(first.val_loss > 0);
    for (int size = 2; size <= 4; size++) {
        loop_outcome other = loop_run_ok(size, &o);
        assert_int_equal(other.seen, 2 * 1031);
        assert_true(other.val_loss == first.val_loss);
    }
}

/* Both runs recorded the same points: metric, step, value. */
static void same_points(const char *one, const char *other)
{
    ls__metrics a, b;
    char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", folder, one);
    assert_ok(ls__metrics_read(path, &a));
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", folder, other);
    assert_ok(ls__metrics_read(path, &b));
    assert_int_equal(a.count, b.count);
    for (int i = 0; i < a.count; i++) {
        const ls__metric_series *x = &a.series[i], *y = ls__metrics_find(&b, x->name);
        assert_non_null(y);
        if (x->count != y->count) fail_msg("%s: %d points, not %d", x->name, y->count, x->count);
        for (int k = 0; k < x->count; k++) {
            assert_int_equal(x->points[k].step, y->points[k].step);
            if (x->points[k].value != y->points[k].value)
                fail_msg("%s at step %d: %.17g, not %.17g", x->name, (int)x->points[k].step,
                         y->points[k].value, x->points[k].value);
        }
    }
    ls__metrics_free(&a);
    ls__metrics_free(&b);
}

static void a_run_goes_on_where_it_was_left(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.max_steps = 30;
    o.run.clip_norm = 1;
    o.val_samples = 300;
    o.run.validate_every = LS_STEPS(10);
    o.run.name = "whole";
    loop_outcome whole = loop_run_ok(1, &o);
    assert_int_equal(whole.kept, 30);
    assert_int_equal(whole.called, 3); /* 360 of 100 samples */
    o.run.name = "parts";
    const struct {
        int ranks;
        int64_t leave_at, leave_behind, begins_at;
        bool own_array;
    } parts[] = {
        { 2, 7, 0, 0, false }, { 4, 0, 16, 7, true }, { 1, 20, 0, 16, false }, { 3, 0, 0, 20, true }
    };
    loop_outcome part;
    for (int i = 0; i < 4; i++) {
        o.leave_at = parts[i].leave_at;
        o.leave_behind = parts[i].leave_behind;
        o.own_array = parts[i].own_array;
        part = loop_run_ok(parts[i].ranks, &o);
        assert_int_equal(part.began_at, parts[i].begins_at);
    }
    assert_int_equal(part.kept, 30);
    assert_int_equal(part.called, 3);
    assert_int_equal(part.result.weights_xxh3, whole.result.weights_xxh3);
    assert_memory_equal(&part.result.train, &whole.result.train, sizeof whole.result.train);
    assert_true(part.val_loss == whole.val_loss);
    same_points("whole", "parts");
}

static void a_finished_run_is_left_alone_until_asked_to_go_further(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.name = "finished";
    loop_outcome first = loop_run_ok(2, &o);
    loop_outcome again = loop_run_ok(1, &o);
    assert_int_equal(again.result.reason, LS_STOP_FINISHED_BEFORE);
    assert_int_equal(again.result.weights_xxh3, first.result.weights_xxh3);
    assert_int_equal(again.began_at, -1);
    o.run.max_steps = 24;
    loop_outcome further = loop_run_ok(2, &o);
    assert_int_equal(further.began_at, 20);
    assert_int_equal(further.result.steps, 24);
    o.run.max_steps = 10; /* less than it has done */
    loop_outcome less = loop_run_ok(1, &o);
    assert_int_equal(less.result.reason, LS_STOP_FINISHED_BEFORE);
    assert_int_equal(less.result.steps, 24);
    o.run.name = "half";
    o.run.max_steps = 20;
    o.leave_at = 12;
    loop_run_ok(1, &o);
    o.leave_at = 0;
    o.run.max_steps = 10;
    less = loop_run_ok(1, &o);
    assert_int_equal(less.result.reason, LS_STOP_FINISHED_BEFORE);
    assert_int_equal(less.result.steps, 12);
    o.run.name = "finished";
    o.run.resume = "none";
    loop_outcome out[2];
    loop_run(2, &o, out);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(out[r].status, LS_ERR_CONFIG);
        assert_non_null(strstr(out[r].text, "taken"));
    }
}

static void a_run_begins_from_another_ones_checkpoint(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.name = "source";
    o.run.checkpoint.keep_last = LS_NONE;
    o.run.save_every = LS_STEPS(5);
    loop_outcome source = loop_run_ok(1, &o);
    o.run.name = "copy";
    o.run.resume = "source@10";
    loop_outcome copy = loop_run_ok(2, &o);
    assert_int_equal(copy.began_at, 10);
    assert_string_equal(copy.result.name, "copy");
    assert_int_equal(copy.result.weights_xxh3, source.result.weights_xxh3);
    o.run.name = NULL; /* back in the source's own folder */
    o.run.resume = "source@5";
    loop_outcome rewound = loop_run_ok(1, &o);
    assert_int_equal(rewound.began_at, 5);
    assert_string_equal(rewound.result.name, "source");
    assert_int_equal(rewound.result.weights_xxh3, source.result.weights_xxh3);
}

/* Micro-batches of 3, 2, 3 and 2 samples: each counts by its weight. */
static void means_are_weighted(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.batch_size = 10;
    o.run.optimizer.kind = &ls_sgd;
    loop_outcome cut = loop_run_ok(2, &o);
    o.run.micro_batches = 1;
    loop_outcome whole = loop_run_ok(1, &o);
    for (int i = 0; i < LOOP_VALUES; i++)
        assert_true(fabs((double)cut.values[i] - (double)whole.values[i]) < 1e-5);
}

/* Shows what an update is told. */
static void telling_update(const ls_slice *s)
{
    for (int64_t i = 0; i < s->count; i++)
        s->param[i] = (float)s->step + (float)(s->weight_decay * 100 + s->lr);
}
static const ls_optimizer telling = { .name = "telling", .update = telling_update };

static void an_update_is_told_its_step_and_its_rule(void **state)
{
    (void)state;
    const ls_param_rule rules[] = { { .match = "w", .lr_scale = 0.5, .weight_decay = 0.04 },
                                    { 0 } };
    const ls_param_rule frozen[] = { { .match = "w", .freeze = true }, { 0 } };
    loop_options o = usual();
    o.run.max_steps = 3;
    o.run.optimizer.kind = &telling;
    o.run.optimizer.lr = 0.5;
    o.run.optimizer.weight_decay = 0.02;
    o.run.optimizer.rules = rules;
    loop_outcome out = loop_run_ok(2, &o);
    assert_true(out.values[1] == 3 + 4 + 0.25f);        /* w */
    assert_true(out.values[LOOP_FEATURES] == 3 + 0.5f); /* a bias does not decay */
    o.zero_weight_at = 2; /* a step that changes nothing is not counted */
    out = loop_run_ok(2, &o);
    assert_true(out.values[1] == 2 + 4 + 0.25f);
    o.run.optimizer.rules = frozen;
    out = loop_run_ok(2, &o);
    assert_true(out.values[0] == 0.5f && out.values[1] == 0);
}

static void steps_without_weight_change_nothing(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.max_steps = 1;
    o.zero_weight_at = 1;
    loop_outcome out = loop_run_ok(2, &o);
    assert_true(out.values[0] == 0.5f && out.values[1] == 0);
}

static void what_is_logged_behind_the_last_step_counts(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.max_steps = 2;
    o.run.log_every = LS_STEPS(50);
    loop_outcome out = loop_run_ok(2, &o);
    assert_true(ls_values_get(&out.result.train, "outside") == 1.5);
}

/* Every rank fails alike, with a text that says part; within the test's time. */
static void all_fail(int size, const loop_options *o, ls_status status, const char *part)
{
    loop_outcome out[LOOP_RANKS_MAX];
    loop_run(size, o, out);
    for (int r = 0; r < size; r++) {
        if (out[r].status != status || !strstr(out[r].text, part))
            fail_msg("rank %d: status %d: \"%s\" does not say \"%s\"", r, out[r].status,
                     out[r].text, part);
    }
}

static void failures_reach_all_ranks(void **state)
{
    (void)state;
    loop_options o = usual();
    o.bad_read = 42;
    all_fail(1, &o, LS_ERR_IO, "broken at 42");
    all_fail(4, &o, LS_ERR_IO, "broken at 42");
    o = usual();
    o.nan_at = 3;
    all_fail(1, &o, LS_ERR_DIVERGED, "step 3: train/loss is nan");
    all_fail(3, &o, LS_ERR_DIVERGED, "step 3: train/loss is nan");
}

static void nothing_of_a_diverged_step_is_kept(void **state)
{
    (void)state;
    loop_options o = usual();
    loop_outcome out[1];
    o.nan_at = 1;
    o.run.name = "diverged";
    loop_run(1, &o, out);
    assert_int_equal(out[0].status, LS_ERR_DIVERGED);
    assert_true(out[0].values[0] == 0.5f);
    o.nan_at = 0;
    loop_outcome again = loop_run_ok(2, &o);
    assert_int_equal(again.began_at, 0); /* there was nothing to go on from */
}

/* Spoils a parameter behind the loss's back. */
static void spoiling_update(const ls_slice *s)
{
    for (int64_t i = 0; i < s->count; i++) s->param[i] = s->step == 3 ? NAN : 0.25f;
}
static const ls_optimizer spoiling = { .name = "spoiling", .update = spoiling_update };

static void what_is_not_finite_is_not_saved(void **state)
{
    (void)state;
    loop_options o = usual();
    o.run.name = "spoiled";
    o.run.max_steps = 3;
    o.run.save_every = LS_STEPS(1);
    o.run.optimizer.kind = &spoiling;
    all_fail(2, &o, LS_ERR_DIVERGED, "is not finite");
    o.run.max_steps = 2;
    loop_outcome again = loop_run_ok(1, &o);
    assert_int_equal(again.result.reason, LS_STOP_FINISHED_BEFORE);
    assert_int_equal(again.result.steps, 2);
    assert_true(again.values[3] == 0.25f);
}

static void mistakes_of_a_loop_are_named(void **state)
{
    (void)state;
    for (int size = 1; size <= 2; size++) {
        loop_options o = usual();
        o.no_space = true;
        all_fail(size, &o, LS_ERR_ARG, "ls_space_create");
        o = usual();
        o.no_step = true;
        all_fail(size, &o, LS_ERR_ARG, "ls_space_step has not been called");
        o = usual();
        o.two_adds = true;
        all_fail(size, &o, LS_ERR_ARG, "added already");
        o = usual();
        o.skip_micro_batch = true;
        all_fail(size, &o, LS_ERR_ARG, "micro-batches left");
    }
}

/* Whichever allocation fails, the run ends with that status, and another start is well. */
static void memory_runs_out(void **state)
{
    (void)state;
    int failed = 0, well = 0; /* in a row: there are no more allocations */
    loop_options o = usual();
    o.val_samples = 300;
    o.run.max_steps = 2;
    for (long n = 1; well < 30; n++) {
        char name[32];
        loop_outcome out[1];
        snprintf(name, sizeof name, "memory%ld", n);
        o.run.name = name;
        o.fail_allocation = n;
        loop_run(1, &o, out);
        if (out[0].status != LS_OK && !strstr(out[0].text, "memory"))
            fail_msg("allocation %ld: status %d: %s", n, out[0].status, out[0].text);
        well = out[0].status == LS_OK ? well + 1 : 0;
        failed += out[0].status != LS_OK;
    }
    assert_true(failed > 30);
    o.fail_allocation = 0;
    o.run.name = "memory1";
    loop_run_ok(1, &o);
}

static void the_monitored_metric_makes_the_best_checkpoint(void **state)
{
    (void)state;
    loop_options o = usual();
    o.val_samples = 50;
    o.run.name = "monitored";
    o.run.save_every = (ls_every) { .steps = LS_NONE };
    o.run.validate_every = LS_STEPS(5);
    loop_outcome out = loop_run_ok(2, &o);
    assert_true(out.result.best == out.val_loss);
    assert_non_null(strstr(out.result.best_checkpoint, "step-00000020"));
    o.run.name = "unknown";
    o.run.checkpoint.monitor = "val/f1";
    all_fail(2, &o, LS_ERR_CONFIG, "there are");
}

static void early_stop_is_remembered_over_a_resume(void **state)
{
    (void)state;
    loop_options o = usual();
    o.val_samples = 50;
    o.run.name = "patient";
    o.run.max_steps = 100;
    o.run.validate_every = LS_STEPS(5);
    o.run.early_stop.monitor = "val/loss";
    o.run.early_stop.patience = 3;
    o.run.early_stop.min_delta = 1e9; /* only the first value is an improvement */
    o.leave_at = 12;
    loop_run_ok(1, &o);
    o.leave_at = 0;
    loop_outcome out = loop_run_ok(2, &o);
    assert_int_equal(out.began_at, 12);
    assert_int_equal(out.result.reason, LS_STOP_EARLY_STOP);
    assert_int_equal(out.result.steps, 20);
}

/* What is printed goes into a file meanwhile. */
static void a_slow_rank_is_named(void **state)
{
    (void)state;
    loop_options o = usual();
    cpu_set_t cpus;
    o.run.max_steps = 55;
    o.slow_ms = 10;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) < 2) skip();
    FILE *printed = tmpfile();
    int own = dup(2);
    char text[4096];
    dup2(fileno(printed), 2);
    ls__log_set_level(LS__LOG_WARN);
    loop_run_ok(2, &o);
    ls__log_set_level(LS__LOG_ERROR);
    dup2(own, 2);
    close(own);
    rewind(printed);
    text[fread(text, 1, sizeof text - 1, printed)] = '\0';
    fclose(printed);
    assert_non_null(strstr(text, "warning: rank 1 is slow: in "));
    assert_null(strstr(text, "rank 0 is slow"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_ranks_changes_no_bit),
        cmocka_unit_test(an_optimizer_of_whole_tensors),
        cmocka_unit_test(arrays_of_the_callers),
        cmocka_unit_test(training_lowers_the_loss_to_the_noise),
        cmocka_unit_test(validation_counts_every_sample_once),
        cmocka_unit_test(a_run_goes_on_where_it_was_left),
        cmocka_unit_test(a_finished_run_is_left_alone_until_asked_to_go_further),
        cmocka_unit_test(a_run_begins_from_another_ones_checkpoint),
        cmocka_unit_test(means_are_weighted),
        cmocka_unit_test(an_update_is_told_its_step_and_its_rule),
        cmocka_unit_test(steps_without_weight_change_nothing),
        cmocka_unit_test(what_is_logged_behind_the_last_step_counts),
        cmocka_unit_test(failures_reach_all_ranks),
        cmocka_unit_test(what_is_not_finite_is_not_saved),
        cmocka_unit_test(nothing_of_a_diverged_step_is_kept),
        cmocka_unit_test(mistakes_of_a_loop_are_named),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(the_monitored_metric_makes_the_best_checkpoint),
        cmocka_unit_test(early_stop_is_remembered_over_a_resume),
        cmocka_unit_test(a_slow_rank_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
