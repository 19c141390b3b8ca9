/* Ranks that a shell script starts, with only the five variables: they find each other, notice each
 * other's deaths, and say who is missing. */
#include "testing.h"

#include <signal.h>
#include <unistd.h>

#include "helper_job.h"

typedef struct crew {
    job ranks[4];
    int size;
} crew;

static int next_port(void)
{
    static int port;
    if (port == 0) port = 20000 + (int)(getpid() % 20000);
    return ++port % 65536;
}

typedef struct start_options {
    const char *act;
    const char *timeout; /* NULL = 20 */
    int told_size;       /* 0 = size */
    const char *more[6];
} start_options;

/* One rank of the job at port; all share the folder and mark of the first. */
static void start_rank(crew *c, int slot, int rank, int local_rank, int port,
                       const start_options *o)
{
    char variables[5][64];
    const char *extra[6], *words[32];
    int size = o->told_size ? o->told_size : c->size, n = 0;
    snprintf(variables[0], 64, "RANK=%d", rank);
    snprintf(variables[1], 64, "LOCAL_RANK=%d", local_rank);
    snprintf(variables[2], 64, "WORLD_SIZE=%d", size);
    snprintf(variables[3], 64, "MASTER_ADDR=localhost");
    snprintf(variables[4], 64, "MASTER_PORT=%d", port);
    for (int i = 0; i < 5; i++) extra[i] = variables[i];
    extra[5] = NULL;
    job *j = &c->ranks[slot];
    const char *fixed[] = { "--act",    o->act,    "--folder",  j->folder,
                            "--report", j->report, "--timeout", o->timeout ? o->timeout : "20" };
    for (int i = 0; i < 8; i++) words[n++] = fixed[i];
    for (int i = 0; i < 6 && o->more[i]; i++) words[n++] = o->more[i];
    words[n] = NULL;
    job_start(j, "prog_world", words, extra);
}

static void begin(crew *c, int size)
{
    c->size = size;
    for (int i = 0; i < 4; i++) job_begin(&c->ranks[i]);
}

static void start_all(crew *c, const start_options *o)
{
    int port = next_port();
    for (int r = c->size - 1; r >= 0; r--) start_rank(c, r, r, r, port, o);
}

static void wait_all(crew *c, double seconds)
{
    for (int r = 0; r < c->size; r++) job_wait(&c->ranks[r], seconds);
}

static void end(crew *c)
{
    for (int i = 0; i < 4; i++) job_end(&c->ranks[i]);
}

static void await_pids(crew *c)
{
    for (int r = 0; r < c->size; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%d", r);
        assert_int_equal(job_number(&c->ranks[r], name), c->ranks[r].pid);
    }
}

static void they_find_each_other(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        crew c;
        begin(&c, size);
        start_all(&c, &(start_options) { .act = "none", .more = { "--steps", "20" } });
        wait_all(&c, 20);
        for (int r = 0; r < size; r++) assert_int_equal(c.ranks[r].code, 0);
        assert_string_equal(job_read(c.ranks[0].out), "done 0\n");
        assert_report(&c.ranks[0], "finished", 0, -1, "finished");
        end(&c);
    }
}

static void a_death_ends_all(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        crew c;
        begin(&c, 3);
        start_all(&c, &(start_options) { .act = "none", .more = { "--steps", "-1" } });
        await_pids(&c);
        kill(c.ranks[victim].pid, SIGKILL);
        wait_all(&c, 3);
        for (int r = 0; r < 3; r++) assert_int_equal(c.ranks[r].code, r == victim ? 137 : 69);
        char text[64];
        snprintf(text, sizeof text, "rank %d (process %d) died at step", victim,
                 (int)c.ranks[victim].pid);
        if (victim != 0) assert_report(&c.ranks[0], "node-lost", 69, victim, text);
        end(&c);
    }
}

/* Ranks that wait for nothing, and so learn nothing, are ended by their watchers. */
static void a_death_ends_the_deaf(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        crew c;
        begin(&c, 2);
        start_all(&c, &(start_options) { .act = "deaf" });
        await_pids(&c);
        kill(c.ranks[victim].pid, SIGKILL);
        wait_all(&c, 2);
        assert_int_equal(c.ranks[1 - victim].code, 69);
        end(&c);
    }
}

/* A child of the dead rank keeps its socket open; the death is seen all the same. */
static void a_death_with_a_child_left_ends_all(void **state)
{
    (void)state;
    crew c;
    begin(&c, 2);
    start_all(&c, &(start_options) { .act = "grandchild", .more = { "--steps", "-1" } });
    await_pids(&c);
    pid_t grandchild = (pid_t)job_number(&c.ranks[1], "grandchild");
    kill(c.ranks[1].pid, SIGKILL);
    wait_all(&c, 3);
    assert_int_equal(c.ranks[0].code, 69);
    kill(grandchild, SIGKILL); /* it is nobody's here: the docs say so */
    end(&c);
}

static void failures_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *act, *verdict, *text;
        int code, code_of_root;
    } cases[] = {
        { "exit7", "node-lost", "died at step 10, or left without ls_world_finish", 7, 69 },
        { "check", "usage", "rank 1 failed at step 10: x.idx", 2, 69 },
        { "abort", "failed", "rank 1 ended the job at step 10: no more coffee", 1, 69 },
        { "spin", "hung", "rank 1", 69, 69 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        crew c;
        begin(&c, 2);
        bool spin = strcmp(cases[i].act, "spin") == 0;
        start_all(&c, &(start_options) { .act = cases[i].act,
                                         .timeout = spin ? "2" : NULL,
                                         .more = { "--steps", "-1" } });
        wait_all(&c, 10);
        assert_int_equal(c.ranks[1].code, cases[i].code);
        assert_int_equal(c.ranks[0].code, cases[i].code_of_root);
        json_t *report = job_report(&c.ranks[0]);
        assert_string_equal(json_string_value(json_object_get(report, "verdict")),
                            cases[i].verdict);
        const char *text = json_string_value(json_object_get(report, "text"));
        if (!strstr(text, cases[i].text)) fail_msg("\"%s\"", text);
        json_decref(report);
        end(&c);
    }
}

static void a_request_to_one_stops_all(void **state)
{
    (void)state;
    for (int to = 0; to < 2; to++) {
        crew c;
        begin(&c, 2);
        start_all(&c, &(start_options) { .act = "none", .more = { "--steps", "-1" } });
        await_pids(&c);
        kill(c.ranks[to].pid, SIGTERM);
        wait_all(&c, 5);
        for (int r = 0; r < 2; r++) assert_int_equal(c.ranks[r].code, 75);
        assert_report(&c.ranks[0], "stopped", 75, -1, "stopped by SIGTERM");
        end(&c);
    }
}

static void a_second_request_ends_all(void **state)
{
    (void)state;
    crew c;
    begin(&c, 2);
    start_all(&c, &(start_options) { .act = "deaf" });
    await_pids(&c);
    for (int r = 0; r < 2; r++) kill(c.ranks[r].pid, SIGINT); /* as a terminal does */
    test_sleep(1.2);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(c.ranks[r].pid, 0), 0);
    for (int r = 0; r < 2; r++) kill(c.ranks[r].pid, SIGINT);
    wait_all(&c, 1);
    for (int r = 0; r < 2; r++) assert_int_equal(c.ranks[r].code, 130);
    assert_report(&c.ranks[0], "signalled", 130, -1, "a second SIGINT");
    end(&c);
    begin(&c, 2);
    start_all(&c, &(start_options) { .act = "deaf", .more = { "--grace-period", "0.3" } });
    await_pids(&c);
    kill(c.ranks[1].pid, SIGTERM);
    wait_all(&c, 2);
    for (int r = 0; r < 2; r++) assert_int_equal(c.ranks[r].code, 143);
    end(&c);
}

static void the_missing_are_named(void **state)
{
    (void)state;
    crew c;
    begin(&c, 2);
    start_all(&c, &(start_options) { .act = "none", .timeout = "0.5", .told_size = 4 });
    wait_all(&c, 5);
    for (int r = 0; r < 2; r++) assert_int_equal(c.ranks[r].code, 69);
    assert_report(&c.ranks[0], "rendezvous-timeout", 69, -1,
                  "2 of 4 ranks came; ranks 2 and 3 did not");
    assert_non_null(strstr(job_read(c.ranks[0].err), "set LOCAL_WORLD_SIZE"));
    end(&c);
    begin(&c, 1); /* the local root does not come */
    start_rank(&c, 0, 1, 1, next_port(),
               &(start_options) { .act = "none", .timeout = "0.5", .told_size = 2 });
    job_wait(&c.ranks[0], 5);
    assert_int_equal(c.ranks[0].code, 69);
    assert_report(&c.ranks[0], "rendezvous-timeout", 69, -1, "LOCAL_RANK=0");
    end(&c);
}

static void a_second_claimant_is_refused(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        crew c;
        begin(&c, 3);
        int port = next_port();
        start_options o = { .act = "none", .told_size = 2, .more = { "--steps", "-1" } };
        for (int r = 0; r < 2; r++) start_rank(&c, r, r, r, port, &o);
        char name[32];
        snprintf(name, sizeof name, "rank-%d", 0);
        job_number(&c.ranks[0], name);
        job_number(&c.ranks[1], "rank-1");
        start_rank(&c, 2, rank, rank, port, &o);
        job_wait(&c.ranks[2], 5);
        assert_int_equal(c.ranks[2].code, 2);
        char text[64];
        snprintf(text, sizeof text, "rank %d is taken already, by process %d", rank,
                 (int)c.ranks[rank].pid);
        if (!strstr(job_read(c.ranks[2].err), text)) fail_msg("%s", job_read(c.ranks[2].err));
        assert_int_equal(kill(c.ranks[0].pid, SIGTERM), 0); /* the job is not disturbed */
        for (int r = 0; r < 2; r++) {
            job_wait(&c.ranks[r], 5);
            assert_int_equal(c.ranks[r].code, 75);
        }
        end(&c);
    }
}

static void sizes_must_agree(void **state)
{
    (void)state;
    crew c;
    begin(&c, 2);
    int port = next_port();
    start_options o = { .act = "none", .told_size = 2, .timeout = "2" };
    start_rank(&c, 0, 0, 0, port, &o);
    o.told_size = 3;
    start_rank(&c, 1, 1, 1, port, &o);
    job_wait(&c.ranks[1], 5);
    assert_int_equal(c.ranks[1].code, 2);
    assert_non_null(strstr(job_read(c.ranks[1].err), "there are 3 ranks, others that there are 2"));
    job_wait(&c.ranks[0], 5);
    assert_int_equal(c.ranks[0].code, 69);
    end(&c);
}

/* Two jobs at once differ by port; the same port again right after is another job, too. */
static void jobs_do_not_mix(void **state)
{
    (void)state;
    crew a, b;
    begin(&a, 2);
    begin(&b, 2);
    start_options o = { .act = "none", .more = { "--steps", "100" } };
    start_all(&a, &o);
    start_all(&b, &o);
    wait_all(&a, 10);
    wait_all(&b, 10);
    for (int r = 0; r < 2; r++) assert_int_equal(a.ranks[r].code | b.ranks[r].code, 0);
    end(&a);
    end(&b);
    int port = next_port();
    for (int round = 0; round < 5; round++) {
        begin(&a, 2);
        o.more[1] = "3";
        for (int r = 0; r < 2; r++) start_rank(&a, r, r, r, port, &o);
        wait_all(&a, 10);
        for (int r = 0; r < 2; r++) assert_int_equal(a.ranks[r].code, 0);
        end(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_find_each_other),
        cmocka_unit_test(a_death_ends_all),
        cmocka_unit_test(a_death_ends_the_deaf),
        cmocka_unit_test(a_death_with_a_child_left_ends_all),
        cmocka_unit_test(failures_are_told),
        cmocka_unit_test(a_request_to_one_stops_all),
        cmocka_unit_test(a_second_request_ends_all),
        cmocka_unit_test(the_missing_are_named),
        cmocka_unit_test(a_second_claimant_is_refused),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(jobs_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
