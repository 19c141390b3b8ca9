/* Real jobs that end badly, or are asked to end: what the exit code and the report say, and that no
 * process is left. */
#include "testing.h"

#include <signal.h>
#include <unistd.h>

#include "helper_job.h"

static const char *const no_extra[] = { NULL };

/* prog_world on devices with an act, notes and report in the job's folder. */
static void start(job *j, const char *devices, const char *act, const char *const *more)
{
    const char *words[32] = { "--devices", devices,   "--act",    act,
                              "--folder",  j->folder, "--report", j->report };
    int n = 8;
    bool counted = false;
    for (int i = 0; more && more[i]; i++) {
        counted = counted || strcmp(more[i], "--steps") == 0;
        words[n++] = more[i];
    }
    if (!counted) {
        words[n++] = "--steps";
        words[n++] = "-1";
    }
    job_start(j, "prog_world", words, no_extra);
}

static void await_ranks(const job *j, int size, pid_t *pids)
{
    for (int r = 0; r < size; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%d", r);
        pids[r] = (pid_t)job_number(j, name);
    }
}

static int integer(json_t *report, const char *key)
{
    return (int)json_integer_value(json_object_get(report, key));
}

static void sigkill_of_a_rank(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        job j;
        pid_t pids[3];
        job_begin(&j);
        start(&j, "cpu:3", "none", NULL);
        await_ranks(&j, 3, pids);
        test_sleep(0.1);
        double killed = test_now();
        kill(pids[victim], SIGKILL);
        job_wait(&j, 5);
        assert_true(test_now() - killed < 2);
        assert_int_equal(j.code, 137);
        assert_report(&j, "signalled", 137, victim, "was killed by SIGKILL (signal 9) at step");
        json_t *report = job_report(&j);
        assert_int_equal(integer(report, "signal"), 9);
        assert_int_equal(integer(report, "world_size"), 3);
        assert_true(integer(report, "step") > 0);
        assert_non_null(strstr(json_string_value(json_object_get(report, "checkpoint")), "step-"));
        assert_string_equal(json_string_value(json_object_get(report, "source")), "program");
        json_decref(report);
        assert_non_null(strstr(job_read(j.err), "was killed by SIGKILL"));
        job_end(&j);
    }
}

static void sigkill_of_the_supervisor(void **state)
{
    (void)state;
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "none", NULL);
    await_ranks(&j, 2, pids);
    kill(pids[1], SIGSTOP); /* it cannot notice by itself */
    kill(j.pid, SIGKILL);
    job_wait(&j, 5);
    assert_int_equal(j.code, 137);
    job_end(&j);
}

static void sigkill_of_both_at_once(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        job j;
        pid_t pids[2];
        job_begin(&j);
        start(&j, "cpu:2", "none", NULL);
        await_ranks(&j, 2, pids);
        kill(pids[victim], SIGKILL);
        kill(j.pid, SIGKILL);
        job_wait(&j, 5);
        job_end(&j);
    }
}

static void a_stopped_rank_does_not_hold_the_job(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    start(&j, "cpu:2", "stop", (const char *[]) { "--timeout", "1", NULL });
    job_wait(&j, 8);
    assert_int_equal(j.code, 69);
    assert_report(&j, "hung", 69, 0, "rank 1");
    job_end(&j);
}

static void a_stalled_rank_does_not_hold_the_job(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    start(&j, "cpu:2", "spin", (const char *[]) { "--timeout", "1", NULL });
    job_wait(&j, 8);
    assert_int_equal(j.code, 69);
    assert_report(&j, "hung", 69, 0, "rank 1");
    job_end(&j);
}

static void grandchildren_are_found(void **state)
{
    (void)state;
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "grandchild", NULL);
    await_ranks(&j, 2, pids);
    pid_t grandchild = (pid_t)job_number(&j, "grandchild");
    assert_int_equal(kill(grandchild, 0), 0);
    kill(pids[0], SIGKILL);
    job_wait(&j, 5);
    assert_int_equal(kill(grandchild, 0), -1);
    assert_report(&j, "signalled", 137, 0, "SIGKILL");
    job_end(&j);
    /* also after success */
    job_begin(&j);
    start(&j, "cpu:2", "grandchild", (const char *[]) { "--steps", "20", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 0);
    job_end(&j);
}

static void exit_codes_pass(void **state)
{
    (void)state;
    static const struct {
        const char *act, *verdict, *text;
        int code, rank;
    } cases[] = {
        { "exit7", "failed", "rank 1 exited with code 7 at step 10", 7, 1 },
        { "exit0", "failed", "rank 1 exited with code 0 at step 10, but without ls_world_finish", 1,
          1 },
        { "segv", "signalled", "rank 1 was killed by SIGSEGV (signal 11) at step 10", 139, 1 },
        { "abort", "failed", "rank 1 ended the job at step 10: no more coffee", 1, 1 },
        { "check", "usage", "rank 1 failed at step 10: x.idx: it is ?é empty", 2, 1 },
        { "diverge", "diverged", "rank 1 failed at step 10: loss is nan", 3, 1 },
        { "mismatch", "mismatch", "all_reduce", 76, -2 },
        { "finish5", "failed", "rank 1 exited with code 5 at step 10", 5, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        job j;
        job_begin(&j);
        start(&j, "cpu:2", cases[i].act, NULL);
        job_wait(&j, 5);
        assert_int_equal(j.code, cases[i].code);
        if (cases[i].rank < -1) { /* either side may say it first */
            json_t *report = job_report(&j);
            assert_string_equal(json_string_value(json_object_get(report, "verdict")),
                                cases[i].verdict);
            assert_non_null(
                strstr(json_string_value(json_object_get(report, "text")), cases[i].text));
            json_decref(report);
        } else {
            assert_report(&j, cases[i].verdict, cases[i].code, cases[i].rank, cases[i].text);
            assert_non_null(strstr(job_read(j.err), "lockstep: error: rank 1"));
        }
        job_end(&j);
    }
}

/* Every rank finds the same fault: it is told once. */
static void one_text_for_all_ranks(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    start(&j, "cpu:3", "check", (const char *[]) { "--who", "-1", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 2);
    const char *first = strstr(job_read(j.err), "x.idx");
    assert_non_null(first);
    assert_null(strstr(first + 1, "x.idx"));
    job_end(&j);
}

static void with_json_the_last_line_is_the_report(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    start(&j, "cpu:2", "exit7", (const char *[]) { "--json", NULL });
    job_wait(&j, 5);
    json_t *document = json_loads(job_read(j.out), 0, NULL);
    assert_non_null(document);
    assert_string_equal(json_string_value(json_object_get(document, "verdict")), "failed");
    json_decref(document);
    job_end(&j);
}

/* to: 0 = the supervisor, 1 = its process group, 2 = rank 1. */
static void ask_to_stop(int number, int to, int code, const char *verdict)
{
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "none", NULL);
    await_ranks(&j, 2, pids);
    kill(to == 0 ? j.pid : to == 1 ? -j.pid : pids[1], number);
    job_wait(&j, 5);
    assert_int_equal(j.code, code);
    assert_report(&j, verdict, code, -1, "stopped by SIG");
    char done[16];
    snprintf(done, sizeof done, "done %d\n", number);
    assert_string_equal(job_read(j.out), done);
    job_end(&j);
}

static void stop_requests_are_agreed_on(void **state)
{
    (void)state;
    for (int to = 0; to < 3; to++) {
        ask_to_stop(SIGTERM, to, 75, "stopped");
        ask_to_stop(SIGINT, to, 130, "stopped");
    }
    ask_to_stop(SIGUSR1, 0, 75, "preempted");
}

static void two_signals_at_once_are_one(void **state)
{
    (void)state;
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "none", (const char *[]) { "--pause-us", "200000", NULL });
    await_ranks(&j, 2, pids);
    kill(j.pid, SIGTERM);
    kill(pids[0], SIGTERM);
    test_sleep(0.05);
    kill(j.pid, SIGINT);
    job_wait(&j, 5);
    assert_int_equal(j.code, 75);
    job_end(&j);
}

static void a_second_signal_stops_now(void **state)
{
    (void)state;
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "deaf", NULL);
    await_ranks(&j, 2, pids);
    kill(j.pid, SIGTERM);
    test_sleep(1.2);
    assert_int_equal(kill(pids[0], 0), 0);
    kill(j.pid, SIGTERM);
    job_wait(&j, 1);
    assert_int_equal(j.code, 143);
    assert_report(&j, "signalled", 143, -1, "a second SIGTERM ended the job");
    job_end(&j);
}

static void grace_ends(void **state)
{
    (void)state;
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "deaf", (const char *[]) { "--grace-period", "0.3", NULL });
    await_ranks(&j, 2, pids);
    kill(j.pid, SIGINT);
    job_wait(&j, 2);
    assert_int_equal(j.code, 130);
    assert_report(&j, "signalled", 130, -1, "had not stopped 0.3 s later");
    job_end(&j);
}

static void one_device_counts_itself(void **state)
{
    (void)state;
    job j;
    pid_t pid;
    static const int numbers[] = { SIGTERM, SIGINT };
    for (int i = 0; i < 2; i++) {
        job_begin(&j);
        start(&j, "1", "none", NULL);
        await_ranks(&j, 1, &pid);
        assert_int_equal(pid, j.pid);
        kill(j.pid, numbers[i]);
        job_wait(&j, 5);
        assert_int_equal(j.code, i == 0 ? 75 : 130);
        assert_report(&j, "stopped", j.code, -1, "stopped by SIG");
        job_end(&j);
    }
    job_begin(&j);
    start(&j, "1", "deaf", NULL);
    await_ranks(&j, 1, &pid);
    kill(j.pid, SIGTERM);
    test_sleep(0.1);
    kill(j.pid, SIGTERM);
    test_sleep(1.2);
    assert_int_equal(kill(pid, 0), 0);
    kill(j.pid, SIGINT);
    job_wait(&j, 1);
    assert_int_equal(j.code, 130);
    assert_report(&j, "signalled", 130, -1, "a second SIGINT ended the job at once");
    job_end(&j);
    job_begin(&j);
    start(&j, "1", "deaf",
          (const char *[]) { "--grace-period", "0.3", "--at", "12", "--who", "0", NULL });
    await_ranks(&j, 1, &pid);
    kill(j.pid, SIGTERM);
    job_wait(&j, 2);
    assert_int_equal(j.code, 143);
    assert_report(&j, "signalled", 143, -1, "had not stopped 0.3 s later");
    json_t *report = job_report(&j);
    assert_int_equal(integer(report, "step"), 12);
    json_decref(report);
    job_end(&j);
}

static void one_device_reports(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    start(&j, "1", "check", (const char *[]) { "--who", "0", "--json", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 2);
    assert_report(&j, "usage", 2, 0, "at step 10: x.idx");
    assert_non_null(strstr(job_read(j.out), "\"verdict\":\"usage\""));
    job_end(&j);
    job_begin(&j);
    start(&j, "1", "abort", (const char *[]) { "--who", "0", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 1);
    assert_report(&j, "failed", 1, 0, "no more coffee");
    job_end(&j);
}

static void restarts(void **state)
{
    (void)state;
    job j;
    job_begin(&j); /* once is bad luck */
    start(&j, "cpu:2", "kill-once",
          (const char *[]) { "--max-restarts", "2", "--steps", "30", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 0);
    json_t *report = job_report(&j);
    assert_int_equal(integer(report, "restarts"), 1);
    json_decref(report);
    assert_report(&j, "finished", 0, -1, "finished");
    job_end(&j);

    job_begin(&j); /* twice the same is not */
    start(&j, "cpu:2", "kill", (const char *[]) { "--max-restarts", "5", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 137);
    report = job_report(&j);
    assert_int_equal(integer(report, "restarts"), 1);
    json_decref(report);
    job_end(&j);

    job_begin(&j); /* what a person must mend is not tried again */
    start(&j, "cpu:2", "check", (const char *[]) { "--max-restarts", "5", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 2);
    report = job_report(&j);
    assert_int_equal(integer(report, "restarts"), 0);
    json_decref(report);
    job_end(&j);

    job_begin(&j); /* one device, supervised for the restart's sake */
    start(&j, "1", "kill-once",
          (const char *[]) { "--max-restarts", "2", "--who", "0", "--steps", "30", NULL });
    job_wait(&j, 5);
    assert_int_equal(j.code, 0);
    job_end(&j);
}

static void stop_and_continue_are_relayed(void **state)
{
    (void)state;
    job j;
    pid_t pids[2];
    job_begin(&j);
    start(&j, "cpu:2", "none", NULL);
    await_ranks(&j, 2, pids);
    kill(j.pid, SIGTSTP);
    double deadline = test_now() + 5;
    char path[64], name[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pids[1]);
    snprintf(name, sizeof name, ") T");
    while (!strstr(job_read(path), name) && test_now() < deadline) test_sleep(0.01);
    assert_non_null(strstr(job_read(path), name));
    kill(j.pid, SIGCONT);
    while (strstr(job_read(path), name) && test_now() < deadline) test_sleep(0.01);
    assert_null(strstr(job_read(path), name));
    kill(j.pid, SIGTERM);
    job_wait(&j, 5);
    assert_int_equal(j.code, 75);
    job_end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigkill_of_a_rank),
        cmocka_unit_test(sigkill_of_the_supervisor),
        cmocka_unit_test(sigkill_of_both_at_once),
        cmocka_unit_test(a_stopped_rank_does_not_hold_the_job),
        cmocka_unit_test(a_stalled_rank_does_not_hold_the_job),
        cmocka_unit_test(grandchildren_are_found),
        cmocka_unit_test(exit_codes_pass),
        cmocka_unit_test(one_text_for_all_ranks),
        cmocka_unit_test(with_json_the_last_line_is_the_report),
        cmocka_unit_test(stop_requests_are_agreed_on),
        cmocka_unit_test(two_signals_at_once_are_one),
        cmocka_unit_test(a_second_signal_stops_now),
        cmocka_unit_test(grace_ends),
        cmocka_unit_test(one_device_counts_itself),
        cmocka_unit_test(one_device_reports),
        cmocka_unit_test(restarts),
        cmocka_unit_test(stop_and_continue_are_relayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
