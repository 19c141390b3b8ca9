/* Two machines, played by two groups of processes on this one: they meet by TCP, share a store, and end
 * together whatever ends first. */
#include "testing.h"

#include <signal.h>
#include <unistd.h>

#include "comm/link.h"
#include "helper_job.h"

enum { RANKS = 3 };

/* Ranks 0 and 1 are on node 0, rank 2 is on node 1. */
typedef struct pair {
    job ranks[RANKS];
    int port;
} pair;

typedef struct start_options {
    const char *act, *timeout;
    int who;
    const char *secrets[2]; /* of the nodes */
    bool exchanges;         /* a program that does, which needs an engine */
    int without;            /* this many ranks, from the last, do not come */
} start_options;

static int next_port(void)
{
    static int port;
    if (port == 0) port = 20000 + (int)(getpid() % 12000);
    return ++port;
}

static void start(pair *p, int r, const start_options *o)
{
    char variables[9][64], who[16];
    const char *extra[11];
    int node = r / 2, n = 0;
    snprintf(variables[0], 64, "RANK=%d", r);
    snprintf(variables[1], 64, "LOCAL_RANK=%d", r % 2);
    snprintf(variables[2], 64, "WORLD_SIZE=%d", RANKS);
    snprintf(variables[3], 64, "LOCAL_WORLD_SIZE=%d", node == 0 ? 2 : 1);
    snprintf(variables[4], 64, "GROUP_RANK=%d", node);
    snprintf(variables[5], 64, "GROUP_WORLD_SIZE=2");
    snprintf(variables[6], 64, "MASTER_ADDR=localhost");
    snprintf(variables[7], 64, "MASTER_PORT=%d", p->port);
    for (n = 0; n < 8; n++) extra[n] = variables[n];
    if (o->secrets[node]) {
        snprintf(variables[8], 64, "LOCKSTEP_SECRET=%s", o->secrets[node]);
        extra[n++] = variables[8];
    }
    extra[n] = NULL;
    snprintf(who, sizeof who, "%d", o->who);
    job *j = &p->ranks[r];
    const char *words[] = { "--act",    o->act,    "--folder",  j->folder,
                            "--report", j->report, "--timeout", o->timeout ? o->timeout : "20",
                            "--who",    who,       NULL };
    job_start(j, o->exchanges ? "prog_world" : "prog_nodes", words, extra);
}

static void begin(pair *p, const start_options *o)
{
    p->port = next_port();
    for (int r = 0; r < RANKS; r++) job_begin(&p->ranks[r]);
    for (int r = RANKS - 1; r >= 0; r--)
        if (r < RANKS - o->without) start(p, r, o);
}

static void await_all(pair *p)
{
    for (int r = 0; r < RANKS; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%d", r);
        assert_int_equal(job_number(&p->ranks[r], name), p->ranks[r].pid);
    }
}

static void end(pair *p)
{
    for (int r = 0; r < RANKS; r++) job_end(&p->ranks[r]);
}

static void host_text(char out[80])
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(out, 80, "(host %s", host);
}

static void they_meet(void **state)
{
    (void)state;
    static const char *const lines[RANKS] = { "rank 0 of 3, node 0 of 2, local 0 of 2\n",
                                              "rank 1 of 3, node 0 of 2, local 1 of 2\n",
                                              "rank 2 of 3, node 1 of 2, local 0 of 1\n" };
    for (int secret = 0; secret < 2; secret++) {
        pair p;
        const char *s = secret ? "fee fie foe" : NULL;
        begin(&p, &(start_options) { .act = "none", .secrets = { s, s } });
        for (int r = 0; r < RANKS; r++) {
            job_wait(&p.ranks[r], 20);
            if (p.ranks[r].code != 0) fail_msg("%d: %s", r, job_read(p.ranks[r].err));
            assert_string_equal(job_read(p.ranks[r].out), lines[r]);
        }
        assert_report(&p.ranks[0], "finished", 0, -1, "finished");
        assert_int_equal(strstr(job_read(p.ranks[0].err), "has no secret") == NULL, secret);
        end(&p);
    }
}

static void secrets_must_agree(void **state)
{
    (void)state;
    static const struct {
        const char *secrets[2], *text;
    } cases[] = {
        { { "right", "wrong" }, "does not know the job's secret" },
        { { "right", NULL }, "set LOCKSTEP_SECRET to it" },
        { { NULL, "right" }, "but not where rank 0 is" },
    };
    pair all[3]; /* at once: each waits for its time to be over */
    for (int i = 0; i < 3; i++)
        begin(&all[i],
              &(start_options) { .act = "none",
                                 .timeout = "1",
                                 .secrets = { cases[i].secrets[0], cases[i].secrets[1] } });
    for (int i = 0; i < 3; i++) {
        pair p = all[i];
        for (int r = RANKS - 1; r >= 0; r--) {
            job_wait(&p.ranks[r], 10);
            assert_int_equal(p.ranks[r].code, r == 2 ? 2 : 69);
        }
        const char *said = job_read(p.ranks[2].err);
        if (!strstr(said, cases[i].text)) fail_msg("\"%s\"", said);
        assert_report(&p.ranks[0], "rendezvous-timeout", 69, -1, "rank 2 did not");
        end(&p);
    }
}

/* A rank of node 0 that is no root, node 1 as a whole, node 0's root, node 0 as a whole. */
static void a_death_ends_all_machines(void **state)
{
    (void)state;
    static const struct {
        bool dies[RANKS];
        int named;
    } cases[] = { { { false, true, false }, 1 },
                  { { false, false, true }, 2 },
                  { { true, false, false }, 0 },
                  { { true, true, false }, 0 } };
    char host[80];
    host_text(host);
    pair all[4];
    for (int i = 0; i < 4; i++) begin(&all[i], &(start_options) { .act = "wait" });
    for (int i = 0; i < 4; i++) await_all(&all[i]);
    for (int i = 0; i < 4; i++) {
        for (int r = RANKS - 1; r >= 0; r--)
            if (cases[i].dies[r]) kill(all[i].ranks[r].pid, SIGKILL);
    }
    for (int i = 0; i < 4; i++) {
        pair p = all[i];
        for (int r = 0; r < RANKS; r++) {
            job_wait(&p.ranks[r], 4);
            assert_int_equal(p.ranks[r].code, cases[i].dies[r] ? 137 : 69);
        }
        for (int r = 0; r < RANKS; r += 2) { /* the roots that are left have a report */
            if (cases[i].dies[r]) continue;
            char text[80];
            snprintf(text, sizeof text, "rank %d (host ", cases[i].named);
            if (i < 3) assert_report(&p.ranks[r], "node-lost", 69, cases[i].named, text);
            const char *said = job_read(p.ranks[r].report);
            if (i < 2 && !strstr(said, host)) fail_msg("%s is not in %s", host, said);
        }
        end(&p);
    }
}

static void failures_cross_machines(void **state)
{
    (void)state;
    static const struct {
        const char *act, *verdict, *text;
        int code, exit_code;
    } cases[] = { { "check", "usage", "failed at step 7: x.idx is empty", 2, 2 },
                  { "abort", "failed", "ended the job at step 7: no more coffee", 1, 1 } };
    pair all[4];
    for (int i = 0; i < 4; i++)
        begin(&all[i], &(start_options) { .act = cases[i % 2].act, .who = i / 2 + 1 });
    for (int i = 0; i < 4; i++) {
        int c = i % 2, who = i / 2 + 1;
        pair p = all[i];
        for (int r = 0; r < RANKS; r++) {
            job_wait(&p.ranks[r], 10);
            assert_int_equal(p.ranks[r].code, r == who ? cases[c].code : 69);
        }
        assert_report(&p.ranks[0], cases[c].verdict, cases[c].exit_code, who, cases[c].text);
        assert_report(&p.ranks[2], cases[c].verdict, cases[c].exit_code, who, cases[c].text);
        end(&p);
    }
}

static void a_request_to_one_stops_all(void **state)
{
    (void)state;
    pair all[RANKS];
    for (int to = 0; to < RANKS; to++) begin(&all[to], &(start_options) { .act = "wait" });
    for (int to = 0; to < RANKS; to++) await_all(&all[to]);
    for (int to = 0; to < RANKS; to++) {
        pair p = all[to];
        kill(p.ranks[to].pid, SIGTERM);
        for (int r = 0; r < RANKS; r++) {
            job_wait(&p.ranks[r], 5);
            assert_int_equal(p.ranks[r].code, 75);
        }
        assert_report(&p.ranks[0], "stopped", 75, -1, "stopped by SIGTERM");
        end(&p);
    }
}

static void the_missing_are_named(void **state)
{
    (void)state;
    pair p, late;
    begin(&p, &(start_options) { .act = "none", .timeout = "0.5", .without = 1 });
    begin(&late, &(start_options) { .act = "late", .who = 2 });
    for (int r = 0; r < 2; r++) {
        job_wait(&p.ranks[r], 5);
        assert_int_equal(p.ranks[r].code, 69);
    }
    assert_report(&p.ranks[0], "rendezvous-timeout", 69, -1, "2 of 3 ranks came; rank 2 did not");
    end(&p);
    p = late;
    char host[80], text[120];
    host_text(host);
    for (int r = 0; r < RANKS; r++) {
        job_wait(&p.ranks[r], 10);
        assert_int_equal(p.ranks[r].code, 69);
    }
    snprintf(text, sizeof text, "2 of 3 ranks came; rank 2 %s) did not", host);
    if (!strstr(job_read(p.ranks[0].report), text)) fail_msg("%s", job_read(p.ranks[0].report));
    end(&p);
}

/* With a communicator: to the end; and a rank that is killed while the others wait for its numbers. */
static void they_exchange(void **state)
{
    (void)state;
    if (!ls__link_there("gloo")) skip();
    pair p, broken;
    begin(&p, &(start_options) { .act = "none", .exchanges = true });
    begin(&broken, &(start_options) { .act = "kill", .who = 2, .exchanges = true });
    for (int r = 0; r < RANKS; r++) {
        job_wait(&p.ranks[r], 20);
        if (p.ranks[r].code != 0) fail_msg("%d: %s", r, job_read(p.ranks[r].err));
    }
    assert_string_equal(job_read(p.ranks[0].out), "done 0\n");
    for (int r = 0; r < RANKS; r++) {
        job_wait(&broken.ranks[r], 10);
        assert_int_equal(broken.ranks[r].code, r == 2 ? 137 : 69);
    }
    assert_report(&broken.ranks[0], "node-lost", 69, 2, "rank 2 (host ");
    end(&p);
    end(&broken);
}

/* A machine that says nothing more, but whose connections stay: a cut network, a stopped root. */
static void silence_is_death(void **state)
{
    (void)state;
    if (!getenv("LS_LONG")) skip();
    pair all[RANKS];
    for (int who = 0; who < RANKS; who += 2) {
        begin(&all[who], &(start_options) { .act = "wait", .timeout = "2" });
        await_all(&all[who]);
        kill(all[who].ranks[who].pid, SIGSTOP);
    }
    for (int who = 0; who < RANKS; who += 2) {
        pair p = all[who];
        for (int r = 0; r < RANKS; r++) {
            if (r == who || (who == 0 && r == 1)) continue; /* 1 waits with its own root */
            job_wait(&p.ranks[r], 8);
            assert_int_equal(p.ranks[r].code, 69);
        }
        assert_report(&p.ranks[2 - who], "node-lost", 69, who, "nothing has been heard of rank");
        kill(p.ranks[who].pid, SIGKILL);
        for (int r = 0; r < RANKS; r++)
            if (r == who || (who == 0 && r == 1)) job_wait(&p.ranks[r], 5);
        end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_meet),
        cmocka_unit_test(secrets_must_agree),
        cmocka_unit_test(a_death_ends_all_machines),
        cmocka_unit_test(failures_cross_machines),
        cmocka_unit_test(a_request_to_one_stops_all),
        cmocka_unit_test(the_missing_are_named),
        cmocka_unit_test(they_exchange),
        cmocka_unit_test(silence_is_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
