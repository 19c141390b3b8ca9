/* Killed at any moment, resumed on any number of devices: the bits of the run that was left
 * alone. */
#include "helper_command.h"

#include <glob.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

static const char line[] = "--micro-batches 4 --max-steps 40 --save-every 4 --validate-every 10 "
                           "--seed 3 --samples 205 --model dropout";

/* Waits until a run has a checkpoint or its process is gone. */
static void wait_for_checkpoint(const char *name)
{
    char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/checkpoints/last", runs_folder, name);
    double until = ls__now() + 30;
    while (!ls__path_exists(path) && ls__now() < until) ls__sleep_ms(5);
    assert_true(ls__path_exists(path));
}

static void killed_supervisor_and_other_devices(void **state)
{
    (void)state;
    char undisturbed[256], resumed[256];
    fit_signature(undisturbed, "--runs-dir %s --name alone --devices cpu:1 %s", runs_folder, line);
    const int devices[] = { 2, 1, 4, 3 };
    for (int i = 0; i < 3; i++) {
        command c;
        command_init(
            &c, "prog_fit",
            "--json --threads-per-device 1 --log-level warn --runs-dir %s --name killed --devices "
            "cpu:%d --slow-ms 20 %s",
            runs_folder, devices[i], line);
        command_start(&c);
        wait_for_checkpoint("killed");
        ls__sleep_ms(60 + 77 * i);
        kill(c.pid, SIGKILL); /* of one device this is the run itself */
        command_wait(&c);
        assert_int_equal(c.code, 128 + SIGKILL);
        command_free(&c);
    }
    fit_signature(resumed, "--runs-dir %s --name killed --devices cpu:%d %s", runs_folder,
                  devices[3], line);
    assert_string_equal(resumed, undisturbed);
}

static void a_rank_that_exits_ends_the_job_with_its_code(void **state)
{
    (void)state;
    char undisturbed[256], resumed[256];
    fit_signature(undisturbed, "--runs-dir %s --name whole --devices cpu:2 %s", runs_folder, line);
    command c;
    command_run(&c, 7, "prog_fit",
                "--log-level warn --runs-dir %s --name failed --devices cpu:2 --fail-rank 1 "
                "--fail-at 17 %s",
                runs_folder, line);
    assert_non_null(strstr(c.err, "rank 1"));
    command_free(&c);
    fit_signature(resumed, "--runs-dir %s --name failed --devices cpu:3 %s", runs_folder, line);
    assert_string_equal(resumed, undisturbed);
}

/* A process that this one has started, the n-th; 0 = there are not so many. */
static pid_t find_child(pid_t parent, int n)
{
    char path[64];
    long pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i <= n; i++)
        if (fscanf(file, "%ld", &pid) != 1) pid = 0;
    fclose(file);
    return (pid_t)pid;
}

static pid_t child_of(pid_t parent, int n)
{
    pid_t child = find_child(parent, n);
    assert_true(child > 0);
    return child;
}

/* The name of the only run of a folder that has a checkpoint. */
static void wait_for_only_run(const char *runs, char name[256])
{
    char pattern[LS_PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%.3000s/*/checkpoints/last", runs);
    double until = ls__now() + 30;
    int status;
    while ((status = glob(pattern, 0, NULL, &found)) != 0 && ls__now() < until) ls__sleep_ms(5);
    assert_int_equal(status, 0);
    assert_int_equal(found.gl_pathc, 1);
    const char *begin = found.gl_pathv[0] + strlen(runs) + 1;
    snprintf(name, 256, "%.*s", (int)strcspn(begin, "/"), begin);
    globfree(&found);
}

static void a_restarted_job_goes_on_with_the_name_it_made_up(void **state)
{
    (void)state;
    char undisturbed[256], runs[LS_PATH_MAX], name[256], restarted[256];
    fit_signature(undisturbed, "--runs-dir %s --name calm --devices cpu:2 %s", runs_folder, line);
    snprintf(runs, sizeof runs, "%s/restarts", runs_folder);
    command c;
    command_init(&c, "prog_fit",
                 "--json --threads-per-device 1 --runs-dir %s --devices cpu:2 --max-restarts 1 "
                 "--slow-ms 20 %s",
                 runs, line);
    command_start(&c);
    wait_for_only_run(runs, name);
    kill(child_of(c.pid, 1), SIGKILL);
    command_wait(&c);
    if (c.code != 0) fail_msg("exit code %d: %s", c.code, c.err);
    assert_non_null(strstr(c.err, "starting again"));
    json_t *d = command_document(&c);
    assert_string_equal(text_at(d, "run"), name);
    snprintf(restarted, sizeof restarted, "%s loss %.17g val %.17g %.17g",
             text_at(d, "weights_xxh3"), number_at(d, "train", "loss"), number_at(d, "val", "loss"),
             number_at(d, "val", "accuracy"));
    assert_string_equal(restarted, undisturbed);
    json_decref(d);
    command_free(&c);
}

/* --- signals --- */

enum target { SUPERVISOR, GROUP, RANK };

static void stop(int signal, enum target target, int code)
{
    char undisturbed[256], resumed[256], name[32];
    snprintf(name, sizeof name, "stopped%d-%d", signal, (int)target);
    fit_signature(undisturbed, "--runs-dir %s --name undisturbed-%s --devices cpu:2 %s",
                  runs_folder, name, line);
    command c;
    command_init(
        &c, "prog_fit",
        "--json --threads-per-device 1 --log-level warn --runs-dir %s --name %s --devices cpu:2 "
        "--slow-ms 20 %s",
        runs_folder, name, line);
    command_start(&c);
    wait_for_checkpoint(name);
    kill(target == GROUP ? -c.pid : target == RANK ? child_of(c.pid, 1) : c.pid, signal);
    command_wait(&c);
    if (c.code != code) fail_msg("exit code %d, not %d: %s%s", c.code, code, c.out, c.err);
    json_t *d = command_document(&c);
    assert_string_equal(text_at(d, "stop_reason"), "signal");
    double steps = number_at(d, "steps", NULL);
    assert_true(steps > 0 && steps < 40);
    json_decref(d);
    command_free(&c);
    fit_signature(resumed, "--runs-dir %s --name %s --devices cpu:1 %s", runs_folder, name, line);
    assert_string_equal(resumed, undisturbed);
}

static void signals_save_and_stop(void **state)
{
    (void)state;
    stop(SIGTERM, SUPERVISOR, 75);
    stop(SIGINT, GROUP, 130);
    stop(SIGTERM, RANK, 75);
}

static void a_stop_is_saved_even_when_nothing_else_is(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    command c;
    command_init(&c, "prog_fit",
                 "--log-level warn --runs-dir %s --name unsaved --devices cpu:2 --slow-ms 20 "
                 "--save-every none --validate-every none --max-steps 500 --max-epochs 500",
                 runs_folder);
    command_start(&c);
    snprintf(path, sizeof path, "%s/unsaved/metrics.jsonl", runs_folder);
    double until = ls__now() + 30;
    while (!ls__path_exists(path) && ls__now() < until) ls__sleep_ms(5);
    ls__sleep_ms(100);
    kill(c.pid, SIGTERM);
    command_wait(&c);
    if (c.code != 75) fail_msg("exit code %d: %s", c.code, c.err);
    command_free(&c);
    snprintf(path, sizeof path, "%s/unsaved/checkpoints/last", runs_folder);
    assert_true(ls__path_exists(path));
}

/* --- many kills --- */

/* Whether a process has the folder in its command line. */
static bool somebody_works_in(const char *path)
{
    glob_t found;
    bool any = false;
    assert_int_equal(glob("/proc/[0-9]*/cmdline", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc && !any; i++) {
        char text[4096];
        FILE *file = fopen(found.gl_pathv[i], "r");
        size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        any = memmem(text, n, path, strlen(path)) != NULL;
    }
    globfree(&found);
    return any;
}

static void kill_victims(const command *c, int victim)
{
    if (victim == 0) kill(c->pid, SIGKILL);
    pid_t rank = victim == 1 ? find_child(c->pid, 1) : 0;
    if (rank > 0) kill(rank, SIGKILL); /* else the job has not begun, or has ended */
    if (victim == 2) kill(-c->pid, SIGKILL);
}

static void check_weights(const command *c, const char *signature)
{
    json_t *d = command_document(c);
    const char *weights = text_at(d, "weights_xxh3");
    if (strncmp(weights, signature, strlen(weights)) != 0)
        fail_msg("%s is not the weights of %s", weights, signature);
    json_decref(d);
}

/* A few kills here; LS_TEST_KILLS=50 for the long version. Every step is saved, so most kills
 * meet a save. */
static void killed_again_and_again(void **state)
{
    (void)state;
    static const char same[] =
        "--micro-batches 4 --max-steps 120 --save-every 1 --validate-every 30 "
        "--seed 3 --samples 205 --model dropout";
    const char *asked = getenv("LS_TEST_KILLS");
    int kills = asked ? atoi(asked) : 5;
    char undisturbed[256], resumed[256], runs[LS_PATH_MAX];
    fit_signature(undisturbed, "--runs-dir %s --name steady --devices cpu:1 %s", runs_folder, same);
    snprintf(runs, sizeof runs, "%s/battered", runs_folder);
    int round = 0; /* of a run that is killed until it comes to its end */
    for (int i = 0, killed = 0; killed < kills; i++) {
        command c;
        command_init(&c, "prog_fit",
                     "--json --threads-per-device 1 --log-level warn --runs-dir %s --name run%d "
                     "--devices cpu:%d --slow-ms 5 %s",
                     runs, round, 2 + i % 3, same);
        command_start(&c);
        ls__sleep_ms(120 + (i * 73) % 190);
        kill_victims(&c, i % 3);
        command_wait(&c);
        if (c.code != 0 && c.code != 128 + SIGKILL) fail_msg("exit code %d: %s", c.code, c.err);
        if (i % 3 == 1 && c.code != 0) assert_non_null(strstr(c.err, "SIGKILL"));
        if (c.code == 0) /* it was quicker */
            check_weights(&c, undisturbed);
        round += c.code == 0;
        killed += c.code != 0;
        double until = ls__now() + 2;
        while (somebody_works_in(runs) && ls__now() < until) ls__sleep_ms(10);
        assert_false(somebody_works_in(runs));
        command_free(&c);
    }
    fit_signature(resumed, "--runs-dir %s --name run%d --devices cpu:2 %s", runs, round, same);
    assert_string_equal(resumed, undisturbed);
}

/* --- other ends --- */

static void a_run_of_one_device_goes_on_with_two(void **state)
{
    (void)state;
    command c;
    const char *common = "--samples 205 --model mlp --seed 1 --save-every 5";
    command_run(&c, 0, "prog_fit", "--runs-dir %s --name grows --devices cpu:1 --max-steps 10 %s",
                runs_folder, common);
    command_free(&c);
    command_run(&c, 0, "prog_fit",
                "--json --runs-dir %s --name grows --devices cpu:2 --max-steps 20 %s", runs_folder,
                common);
    assert_non_null(strstr(c.err, "resumes from step 10"));
    assert_non_null(strstr(c.err, "2 micro-batches instead of 1 from here on, so the bits differ"));
    assert_non_null(strstr(c.err, "max_steps 10 -> 20"));
    json_t *d = command_document(&c);
    assert_int_equal((int)number_at(d, "steps", NULL), 20);
    assert_int_equal((int)number_at(d, "micro_batches", NULL), 2);
    json_decref(d);
    command_free(&c);
}

static void a_finished_run_is_left_alone(void **state)
{
    (void)state;
    command c;
    const char *same = "--samples 205 --max-epochs 2 --val-samples 77 --test";
    command_run(&c, 0, "prog_fit", "--json --runs-dir %s --name done --devices cpu:2 %s",
                runs_folder, same);
    json_t *first = command_document(&c);
    command_free(&c);
    command_run(&c, 0, "prog_fit", "--json --runs-dir %s --name done --devices cpu:1 %s",
                runs_folder, same);
    json_t *second = command_document(&c);
    assert_non_null(strstr(c.err, "is finished after"));
    assert_string_equal(text_at(second, "stop_reason"), "finished_before");
    assert_string_equal(text_at(second, "weights_xxh3"), text_at(first, "weights_xxh3"));
    assert_true(json_equal(json_object_get(second, "val"), json_object_get(first, "val")));
    assert_true(json_equal(json_object_get(second, "test"), json_object_get(first, "test")));
    assert_true(json_equal(json_object_get(first, "val"), json_object_get(first, "test")));
    json_decref(first);
    json_decref(second);
    command_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_supervisor_and_other_devices),
        cmocka_unit_test(a_rank_that_exits_ends_the_job_with_its_code),
        cmocka_unit_test(a_restarted_job_goes_on_with_the_name_it_made_up),
        cmocka_unit_test(signals_save_and_stop),
        cmocka_unit_test(a_stop_is_saved_even_when_nothing_else_is),
        cmocka_unit_test(killed_again_and_again),
        cmocka_unit_test(a_run_of_one_device_goes_on_with_two),
        cmocka_unit_test(a_finished_run_is_left_alone),
    };
    return cmocka_run_group_tests(tests, make_runs_folder, remove_runs_folder);
}
