/* Mistakes of people and faults of data: a clear error with its exit code, on all ranks at once. */
#include "helper_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

static void refused(int code, const char *text, const char *format, ...) LS_PRINTF(3, 4);
static void refused(int code, const char *text, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    command c;
    double began = ls__now();
    command_run(&c, code, "prog_fit", "--runs-dir %s --timeout 20s %s", runs_folder, line);
    if (!strstr(c.err, text)) fail_msg("%s: \"%s\" does not say \"%s\"", line, c.err, text);
    assert_true(ls__now() - began < 15);
    command_free(&c);
}

static void command_lines(void **state)
{
    (void)state;
    refused(2, "--batch-size", "--batch-size 0");
    refused(2, "did you mean --batch-size", "--batch-sise 64");
    refused(2, "10000", "--devices 10000");
    refused(2, "use --devices 2, or --micro-batches 3", "--devices cpu:3 --micro-batches 2");
    refused(2, "there are train/loss, train/accuracy, val/loss, val/accuracy",
            "--devices cpu:2 --early-stop val/f1");
    refused(2, "there are train/loss", "--val-samples 0 --monitor val/accuracy");
    refused(2, "cosine", "--schedule cosine --max-epochs none");
    refused(2, "name", "--name a/b --devices cpu:2");
}

static void a_label_out_of_range_names_its_sample(void **state)
{
    (void)state;
    refused(2, "117", "--devices cpu:3 --bad-label 117 --max-epochs 1");
    refused(2, "117", "--devices cpu:1 --bad-label 117 --max-epochs 1");
}

static void a_sample_that_cannot_be_read_names_itself(void **state)
{
    (void)state;
    refused(2, "the disk is broken", "--devices cpu:2 --bad-read 423 --max-epochs 1");
    refused(2, "423", "--devices cpu:2 --bad-read 423 --max-epochs 1");
}

static void divergence_names_step_and_metric(void **state)
{
    (void)state;
    refused(3, "train/loss", "--devices cpu:2 --diverge-at 99 --max-epochs 1");
    refused(3, "step ", "--devices cpu:1 --diverge-at 99 --max-epochs 1 --gradient-clip-val 1");
}

static void what_a_resume_must_not_change(void **state)
{
    (void)state;
    command c;
    command_run(&c, 0, "prog_fit", "--runs-dir %s --name kept --max-steps 4 --devices cpu:1",
                runs_folder);
    command_free(&c);
    refused(2, "begun with", "--name kept --max-steps 8 --batch-size 24 --devices cpu:1");
    refused(2, "seed", "--name kept --max-steps 8 --seed 5 --devices cpu:2");
    refused(2, "600", "--name kept --max-steps 8 --samples 601 --devices cpu:2");
    refused(2, "taken", "--name kept --resume none --devices cpu:1");
    refused(2, "keeps other state", "--name kept --max-steps 8 --optimizer sgd --devices cpu:1");
    refused(2, "no tensor \"conv1.weight\"",
            "--name kept --max-steps 8 --model cnn --devices cpu:1");
}

/* Nothing is wrong, but what happens is not what was typed. */
static void what_a_resume_tells(void **state)
{
    (void)state;
    command c;
    command_run(&c, 0, "prog_fit",
                "--runs-dir %s --name four --max-steps 4 --micro-batches 4 --devices cpu:1",
                runs_folder);
    command_free(&c);
    command_run(&c, 0, "prog_fit",
                "--runs-dir %s --name four --max-steps 6 --micro-batches 2 --devices cpu:1",
                runs_folder);
    assert_non_null(
        strstr(c.err, "--micro-batches 2: the run keeps its 4, since fewer would change its bits"));
    command_free(&c);
    command_run(&c, 0, "prog_fit",
                "--runs-dir %s --name five --resume four --max-steps 6 --devices cpu:1",
                runs_folder);
    assert_non_null(strstr(c.err, "run five has nothing to do: what it resumes is at its end after "
                                  "6 steps"));
    assert_non_null(strstr(c.err, "four/checkpoints/step-00000006"));
    assert_null(strstr(c.err, "run five is finished"));
    command_free(&c);
}

static void a_folder_that_cannot_be_written(void **state)
{
    (void)state;
    if (geteuid() == 0) { /* root writes everywhere; a file is no folder for anybody */
        char path[LS_PATH_MAX];
        snprintf(path, sizeof path, "%s/file", runs_folder);
        close(open(path, O_CREAT | O_WRONLY, 0600));
        command c;
        command_run(&c, 74, "prog_fit", "--runs-dir %s --devices cpu:2", path);
        assert_non_null(strstr(c.err, path));
        command_free(&c);
        return;
    }
    assert_int_equal(chmod(runs_folder, 0500), 0);
    refused(74, runs_folder, "--devices cpu:2 --name new");
    assert_int_equal(chmod(runs_folder, 0700), 0);
}

static void a_request_stops_all_ranks_after_the_same_step(void **state)
{
    (void)state;
    command c;
    command_run(&c, 0, "prog_fit",
                "--json --runs-dir %s --devices cpu:3 --stop-at 6 --max-epochs 3", runs_folder);
    json_t *d = command_document(&c);
    assert_string_equal(text_at(d, "stop_reason"), "requested");
    assert_int_equal((int)number_at(d, "steps", NULL), 7);
    assert_non_null(strstr(c.err, "the test wants it"));
    json_decref(d);
    command_free(&c);
}

static void a_rank_that_stalls_is_named(void **state)
{
    (void)state;
    command c;
    double began = ls__now();
    command_run(
        &c, 69, "prog_fit",
        "--runs-dir %s --devices cpu:3 --timeout 2s --fail-rank 1 --stall-at 4 --max-epochs 3",
        runs_folder);
    assert_non_null(strstr(c.err, "rank 1"));
    assert_true(ls__now() - began < 15);
    command_free(&c);
}

static void early_stop(void **state)
{
    (void)state;
    command c;
    command_run(
        &c, 0, "prog_fit",
        "--json --runs-dir %s --devices cpu:2 --name early --max-epochs 50 --early-stop val/loss "
        "--patience 2 --min-delta 10 --monitor val/accuracy",
        runs_folder);
    json_t *d = command_document(&c);
    assert_string_equal(text_at(d, "stop_reason"), "early_stop");
    /* The first validation is the best by so much; two more are no better. */
    assert_int_equal((int)number_at(d, "epochs", NULL), 3);
    assert_non_null(strstr(text_at(d, "best_checkpoint"), "checkpoints/step-"));
    json_decref(d);
    command_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines),
        cmocka_unit_test(a_label_out_of_range_names_its_sample),
        cmocka_unit_test(a_sample_that_cannot_be_read_names_itself),
        cmocka_unit_test(divergence_names_step_and_metric),
        cmocka_unit_test(what_a_resume_must_not_change),
        cmocka_unit_test(what_a_resume_tells),
        cmocka_unit_test(a_folder_that_cannot_be_written),
        cmocka_unit_test(a_request_stops_all_ranks_after_the_same_step),
        cmocka_unit_test(a_rank_that_stalls_is_named),
        cmocka_unit_test(early_stop),
    };
    return cmocka_run_group_tests(tests, make_runs_folder, remove_runs_folder);
}
