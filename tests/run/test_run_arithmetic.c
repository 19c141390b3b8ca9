/* The pure parts of a run: micro-batches, periods, spans, chunks, sums, judges, buckets. */
#include "testing.h"

#include <math.h>

#include "metric/metric_internal.h"
#include "run/chunks.h"
#include "run/judge.h"
#include "run/micro_batches.h"
#include "run/period.h"
#include "run/space_state.h"
#include "run/sums.h"

/* --- micro-batches --- */

static int choose(int requested, int recorded, int world, bool *changed)
{
    int out = 0;
    ls__micro_batches_request r = { requested, "--micro-batches", recorded, world };
    assert_ok(ls__micro_batches_choose(&r, &out, changed));
    return out;
}

static void a_first_start_takes_the_world_size(void **state)
{
    (void)state;
    bool changed;
    assert_int_equal(choose(0, 0, 3, &changed), 3);
    assert_int_equal(choose(8, 0, 3, &changed), 8);
    assert_false(changed);
    int out;
    ls__micro_batches_request r = { 2, "--micro-batches 2", 0, 4 };
    assert_fails(ls__micro_batches_choose(&r, &out, &changed), LS_ERR_CONFIG,
                 "use --devices 2, or --micro-batches 4");
}

static void a_resume_keeps_the_recorded_number_while_it_can(void **state)
{
    (void)state;
    bool changed;
    assert_int_equal(choose(0, 4, 2, &changed), 4);
    assert_false(changed);
    assert_int_equal(choose(0, 4, 4, &changed), 4);
    assert_false(changed);
    assert_int_equal(choose(0, 1, 2, &changed), 2);
    assert_true(changed);
    /* the first command line repeated after a start on more devices */
    assert_int_equal(choose(4, 8, 2, &changed), 8);
    assert_false(changed);
    assert_int_equal(choose(4, 4, 8, &changed), 8);
    assert_true(changed);
    assert_int_equal(choose(8, 4, 2, &changed), 8);
    assert_true(changed);
}

static void even_shares_are_the_divisors(void **state)
{
    (void)state;
    char text[128];
    ls__micro_batches_even(6, text);
    assert_string_equal(text, "1, 2, 3 and 6");
    ls__micro_batches_even(1, text);
    assert_string_equal(text, "1");
    ls__micro_batches_even(720720 % 1024, text); /* whatever it is, it ends */
}

/* --- periods and spans --- */

static void periods_in_steps_and_epochs(void **state)
{
    (void)state;
    ls_every steps = LS_STEPS(3), half = LS_EPOCHS(0.5), never = { .steps = LS_NONE };
    ls_every wall = LS_MINUTES(1);
    int64_t length = 100, batch = 30, position = 0;
    char due[12] = "", halves[12] = "", epochs[12] = "";
    for (int64_t step = 1; step <= 10; step++, position += batch) {
        ls__tick t = { step, position, position + batch, length };
        strcat(due, ls__period_due(&steps, &t) ? "x" : "-");
        strcat(halves, ls__period_due(&half, &t) ? "x" : "-");
        strcat(epochs, ls__tick_ends_epoch(&t) ? "x" : "-");
        assert_false(ls__period_due(&never, &t));
        assert_false(ls__period_due(&wall, &t));
    }
    assert_string_equal(due, "--x--x--x-");
    assert_string_equal(halves, "-x-xx-x-xx"); /* 50 100 150 200 250 300 lie behind them */
    assert_string_equal(epochs, "---x--x--x");
}

static void spans(void **state)
{
    (void)state;
    ls__span s = ls__run_span(2, LS_NONE, 100, 30, 0, 0);
    assert_int_equal(s.samples, 200);
    assert_int_equal(s.steps, 7);
    s = ls__run_span(2, 5, 100, 30, 0, 0);
    assert_int_equal(s.steps, 5);
    s = ls__run_span(LS_NONE, 5, 100, 30, 0, 0);
    assert_int_equal(s.samples, INT64_MAX);
    assert_int_equal(s.steps, 5);
    s = ls__run_span(LS_NONE, LS_NONE, 100, 30, 0, 0);
    assert_int_equal(s.steps, INT64_MAX);
    s = ls__run_span(4, LS_NONE, 100, 30, 7, 200); /* a run of two epochs goes on to four */
    assert_int_equal(s.steps, 14);
    s = ls__run_span(1, LS_NONE, 100, 30, 7, 200); /* asked for less than it has done */
    assert_int_equal(s.steps, 7);
    s = ls__run_span(INT64_MAX / 2, LS_NONE, 100, 30, 0, 0);
    assert_int_equal(s.samples, INT64_MAX);
}

/* --- chunks --- */

static void chunks_cover_every_sample_once(void **state)
{
    (void)state;
    const int64_t lengths[] = { 1, 255, 256, 257, 1000, 2600 };
    for (size_t l = 0; l < 6; l++) {
        for (int world = 1; world <= 5; world++) {
            int64_t next = 0;
            for (int rank = 0; rank < world; rank++) {
                ls__chunks c = ls__chunks_of(lengths[l], rank, world);
                int64_t begin, count, k = 0;
                while (ls__chunks_plan(&c, k++, &begin, &count)) {
                    assert_int_equal(begin, next);
                    assert_true(count >= 1 && count <= LS__EVALUATION_CHUNK);
                    next += count;
                }
            }
            assert_int_equal(next, lengths[l]);
        }
    }
}

/* --- sums --- */

static void sums_add_by_name_and_survive_json(void **state)
{
    (void)state;
    ls__sums sums = { 0 }, next = { 0 }, read;
    assert_true(ls__sums_add(&sums, "train/loss", 0.1, 3));
    assert_true(ls__sums_add(&sums, "train/accuracy", 2, 3));
    assert_true(ls__sums_add(&next, "train/accuracy", 1, 3));
    assert_true(ls__sums_add(&next, "train/loss", 0.2, 3));
    ls__sums_merge(&sums, &next);
    assert_int_equal(sums.count, 2);
    assert_true(sums.items[0].sum == 0.1 + 0.2 && sums.items[0].weight == 6);
    assert_true(sums.items[1].sum == 3);
    json_t *json = ls__sums_json(&sums);
    char *text = json_dumps(json, JSON_COMPACT);
    json_t *again = json_loads(text, 0, NULL);
    assert_true(ls__sums_parse(again, &read));
    assert_memory_equal(&read, &sums, sizeof sums);
    free(text);
    json_decref(json);
    json_decref(again);
}

static void sums_are_bounded(void **state)
{
    (void)state;
    ls__sums sums = { 0 };
    char name[16];
    for (int i = 0; i < LS__RECORDS_MAX; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_true(ls__sums_add(&sums, name, 1, 1));
    }
    assert_false(ls__sums_add(&sums, "one more", 1, 1));
    assert_true(ls__sums_add(&sums, "n7", 1, 1));
    char full[LS__RECORD_NAME_MAX], longest[80];
    memset(longest, 'a', sizeof longest);
    longest[79] = '\0';
    assert_false(ls__metric_name("train", longest, full));
    assert_true(ls__metric_name("train", "loss", full));
    assert_string_equal(full, "train/loss");
    assert_true(ls__metric_name("train", "val/loss", full));
    assert_string_equal(full, "val/loss");
    json_t *wrong = json_pack("[[s, s, i]]", "a", "b", 1);
    assert_false(ls__sums_parse(wrong, &sums));
    json_decref(wrong);
}

/* --- judges --- */

static void a_judge_counts_what_is_no_improvement(void **state)
{
    (void)state;
    ls__judge j = { .monitor = "val/loss", .mode = LS_MODE_MIN, .min_delta = 0.1, .best = NAN };
    assert_true(ls__judge_see(&j, 1.0, 10));
    assert_false(ls__judge_see(&j, 0.95, 20)); /* less than min_delta */
    assert_false(ls__judge_see(&j, NAN, 30));
    assert_int_equal(j.waited, 2);
    assert_true(ls__judge_see(&j, 0.5, 40));
    assert_int_equal(j.waited, 0);
    assert_int_equal(j.best_step, 40);
    ls__judge up = { .monitor = "val/accuracy", .mode = LS_MODE_MAX, .best = NAN };
    assert_true(ls__judge_see(&up, 0.5, 1));
    assert_false(ls__judge_see(&up, 0.5, 2));
    assert_true(ls__judge_see(&up, 0.6, 3));
}

static void a_judge_is_restored_for_the_same_question_only(void **state)
{
    (void)state;
    ls__judge j = { .monitor = "val/loss", .mode = LS_MODE_MIN, .best = NAN };
    ls__judge_see(&j, 0.1 + 0.2, 10);
    ls__judge_see(&j, 1, 20);
    json_t *json = ls__judge_json(&j);
    ls__judge same = { .monitor = "val/loss", .mode = LS_MODE_MIN };
    ls__judge_restore(&same, json);
    assert_true(same.best == 0.1 + 0.2 && same.best_step == 10 && same.waited == 1);
    ls__judge other = { .monitor = "val/accuracy", .mode = LS_MODE_MAX };
    ls__judge_restore(&other, json);
    assert_true(isnan(other.best) && other.waited == 0);
    json_decref(json);
}

static void which_way_is_better(void **state)
{
    (void)state;
    assert_int_equal(ls__judge_mode(LS_MODE_AUTO, LS_MODE_AUTO, "val/loss"), LS_MODE_MIN);
    assert_int_equal(ls__judge_mode(LS_MODE_AUTO, LS_MODE_AUTO, "val/accuracy"), LS_MODE_MAX);
    assert_int_equal(ls__judge_mode(LS_MODE_AUTO, LS_MODE_MIN, "val/accuracy"), LS_MODE_MIN);
    assert_int_equal(ls__judge_mode(LS_MODE_MAX, LS_MODE_MIN, "val/loss"), LS_MODE_MAX);
}

/* --- buckets --- */

static void buckets_end_between_layers(void **state)
{
    (void)state;
    /* three layers of a weight and a bias each, then a small one */
    ls__space_tensor t[8];
    const int64_t counts[] = { 300000, 10, 100000, 10, 500000, 10, 20000, 10 };
    int buckets[8];
    for (int i = 0; i < 8; i++)
        t[i] = (ls__space_tensor) { .rank = 1, .shape = { counts[i] }, .depth = i / 2 };
    ls__space_buckets(t, 8, false, buckets);
    const int expected[] = { 0, 0, 0, 0, 1, 1, 2, 2 };
    for (int i = 0; i < 8; i++) assert_int_equal(buckets[i], expected[i]);
    ls__space_buckets(t, 1, false, buckets);
    assert_int_equal(buckets[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_start_takes_the_world_size),
        cmocka_unit_test(a_resume_keeps_the_recorded_number_while_it_can),
        cmocka_unit_test(even_shares_are_the_divisors),
        cmocka_unit_test(periods_in_steps_and_epochs),
        cmocka_unit_test(spans),
        cmocka_unit_test(chunks_cover_every_sample_once),
        cmocka_unit_test(sums_add_by_name_and_survive_json),
        cmocka_unit_test(sums_are_bounded),
        cmocka_unit_test(a_judge_counts_what_is_no_improvement),
        cmocka_unit_test(a_judge_is_restored_for_the_same_question_only),
        cmocka_unit_test(which_way_is_better),
        cmocka_unit_test(buckets_end_between_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
