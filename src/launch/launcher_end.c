/* What the end of a job is called. The first failure counts, is told once, and its code is the job's;
 * what fails after we have begun to end the others is our doing.
 *
 * Which failure was first is not always the one that is seen first: a rank that throws needs a while
 * to leave, and its peers, which only lose a connection, may be gone before it. So the first end is
 * followed by a moment in which others may claim to be the cause, by how they ended and by when they
 * began to say so. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/launcher_job.h"
#include "world/oom.h"

static const double settle_seconds = 0.05;  /* for who is gone already */
static const double crash_seconds = 0.004;  /* after what only another crash could have caused */
static const double patience_seconds = 2.0; /* for a rank that is printing a traceback, or when all
                                                that has ended looks like a victim */
static const double failure_grace = 5.0;    /* for the others, after SIGTERM */
static const double kill_wait = 5.0;        /* for a killed process to go */
static const double one_request = 1.0;      /* signals within so many seconds are one request */

void ls__job_kill(ls__launcher_job *j)
{
    ls__crew_signal(&j->crew, SIGKILL);
    j->phase = LS__JOB_KILLED;
    j->deadline = ls__now() + kill_wait;
}

static double deadline_in(double seconds)
{
    return seconds < 0 ? -1 : ls__now() + seconds;
}

static json_t *end_fields(const ls__end *end)
{
    char name[32];
    json_t *fields = json_pack("{s:i,s:i}", "rank", end->rank, "pid", end->pid);
    if (end->signal)
        json_object_set_new(fields, "signal", json_string(ls__signal_name(end->signal, name)));
    else
        json_object_set_new(fields, "code", json_integer(end->exit_code));
    return fields;
}

int ls__job_rank(const ls__launcher_job *j, int local)
{
    return local < 0 ? local : j->plan->place.first_rank + local;
}

int ls__job_local(const ls__launcher_job *j, int rank)
{
    int local = rank - j->plan->place.first_rank;
    return rank >= 0 && local >= 0 && local < j->plan->size ? local : -1;
}

void ls__launched_fail(ls__launcher_job *j, const ls__end *end, const char *host)
{
    if (j->failed) return;
    j->failed = true;
    j->end = *end;
    snprintf(j->end_host, sizeof j->end_host, "%s", host);
    ls__nodes_tell_end(j);
}

void ls__job_ended_by(ls__launcher_job *j, const ls__end *end)
{
    ls__launched_fail(j, end, j->plan->host);
}

/* The others get a chance to leave; what they do with it is no failure of theirs. */
void ls__job_end_ranks(ls__launcher_job *j)
{
    double grace = j->plan->grace;
    ls__rank_stacks_copy(j);
    ls__crew_signal(&j->crew, SIGTERM);
    ls__crew_signal(&j->crew, SIGCONT); /* a stopped process would never hear of it */
    j->phase = LS__JOB_FAILING;
    j->deadline = deadline_in(grace >= 0 && grace < failure_grace ? grace : failure_grace);
    ls__rank_stacks_name(j);
}

/* --- who was first --- */

/* How much an end looks like a cause: a crash more than an error, an error more than what a program
 * does whose peer is gone (EX_UNAVAILABLE is our own code for that). */
static int weight_of(const ls__end *end)
{
    if (end->rank < 0) return 2; /* a machine that is gone */
    switch (end->signal) {
    case 0:
        return end->exit_code == 69 ? 0 : 1;
    case SIGPIPE:
    case SIGHUP:
    case SIGTERM:
        return 0;
    case SIGABRT: /* a watchdog's way to end a rank that waits in vain, too */
        return 1;
    default:
        return 2;
    }
}

static const ls__failure *find_cause(const ls__launcher_job *j)
{
    const ls__failure *best = &j->failures[0];
    for (int i = 1; i < j->nfailures; i++) {
        const ls__failure *f = &j->failures[i];
        int a = weight_of(&f->end), b = weight_of(&best->end);
        if (a > b || (a == b && f->began < best->began)) best = f;
    }
    return best;
}

/* A rank that still runs, and may turn out to be the cause; or a machine that says nothing. */
static bool is_expected(const ls__launcher_job *j, const ls__failure *cause)
{
    if (weight_of(&cause->end) == 0) return true;
    for (int r = 0; r < j->plan->size; r++) {
        const ls__rank_life *life = &j->ranks[r];
        bool runs = !j->crew.children[r].ended;
        if (runs && life->traceback_at > 0 && life->traceback_at < cause->began) return true;
    }
    return ls__nodes_expects(j, cause->began);
}

/* The moment is over. */
static void settle(ls__launcher_job *j)
{
    const ls__failure *cause = find_cause(j);
    double since = ls__now() - j->stop_at;
    bool alive = j->crew.alive > 0 || ls__nodes_busy(j);
    if (is_expected(j, cause) && since < ls__nodes_patience(j, patience_seconds) && alive) {
        j->deadline = ls__now() + settle_seconds;
        return;
    }
    ls__launched_fail(j, &cause->end, cause->host);
    ls__events_write(j, "failure", end_fields(&j->end));
    if (alive) ls__job_end_ranks(j);
}

void ls__job_add_failure(ls__launcher_job *j, const ls__failure *failure)
{
    bool crash = weight_of(&failure->end) == 2;
    double at = ls__now() + (crash ? crash_seconds + ls__nodes_trip(j) : settle_seconds);
    if (j->nfailures < LS__FAILURES_MAX) j->failures[j->nfailures++] = *failure;
    if (j->phase != LS__JOB_SETTLING) {
        j->phase = LS__JOB_SETTLING;
        j->stop_at = ls__now();
        j->deadline = -1;
    }
    if (!ls__nodes_decides(j)) return;
    if (j->deadline < 0 || at < j->deadline) j->deadline = at;
}

/* --- what happens --- */

/* How a rank ended, seen by itself. */
static ls__end end_of(ls__launcher_job *j, int rank)
{
    const ls__child *child = &j->crew.children[rank];
    ls__end end = { .kind = child->signal ? LS__END_SIGNAL : LS__END_EXIT,
                    .rank = ls__job_rank(j, rank),
                    .pid = (int)child->pid,
                    .exit_code = child->exit_code,
                    .signal = child->signal,
                    .foreign = true };
    end.out_of_memory = child->signal == SIGKILL && j->phase != LS__JOB_KILLED &&
                        j->oom_kills >= 0 && ls__oom_kills("") > j->oom_kills;
    if (!child->signal) ls__rank_error_read(j->folder, rank, end.said, sizeof end.said);
    return end;
}

static bool asked_for(const ls__launcher_job *j, int signal)
{
    return signal == j->stop_signal || signal == SIGTERM;
}

void ls__job_rank_ended(ls__launcher_job *j, int rank)
{
    ls__rank_life *life = &j->ranks[rank];
    ls__end end = end_of(j, rank);
    int code = end.signal ? 128 + end.signal : end.exit_code;
    life->ended_at = ls__now();
    ls__events_write(j, "exit", end_fields(&end));
    if (code == 0) ls__lives_ended_well(j);
    if (code == 0 || j->phase == LS__JOB_FAILING || j->phase == LS__JOB_KILLED) return;
    if (j->phase == LS__JOB_STOPPING && (!end.signal || asked_for(j, end.signal))) {
        if (j->stop_code == 0) j->stop_code = code;
        return;
    }
    ls__failure failure = { .end = end,
                            .began = life->traceback_at > 0 ? life->traceback_at : life->ended_at };
    snprintf(failure.host, sizeof failure.host, "%s", j->plan->host);
    ls__nodes_tell_failure(j, &failure);
    ls__job_add_failure(j, &failure);
}

/* SIGTERM and its like: relayed to every rank's group, and a time limit. */
void ls__job_request_end(ls__launcher_job *j, int number)
{
    double now = ls__now();
    char name[32];
    ls__signal_name(number, name);
    if (j->phase == LS__JOB_RUNNING || j->phase == LS__JOB_WAITING) {
        bool runs = j->phase == LS__JOB_RUNNING;
        j->stop_signal = number;
        j->stop_at = now;
        ls__events_write(j, "signal", json_pack("{s:s}", "signal", name));
        if (!runs) return; /* nothing runs, and nothing will */
        j->phase = LS__JOB_STOPPING;
        j->deadline = deadline_in(j->plan->grace);
        ls__crew_signal(&j->crew, number);
        ls__log(LS__LOG_INFO, "%s was passed on to every rank%s", name,
                number == SIGINT ? "; once more, a second later, to end them now" : "");
    } else if (j->phase == LS__JOB_STOPPING && now - j->stop_at > one_request) {
        ls__job_ended_by(j, &(ls__end) { .kind = LS__END_SECOND, .rank = -1, .signal = number });
        ls__job_kill(j);
    } else if (j->phase != LS__JOB_STOPPING) {
        j->stop_signal = number; /* the job is failing: it shall not start again */
    }
}

void ls__job_guardian_died(ls__launcher_job *j)
{
    ls__end end = { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_PEER };
    bool first = j->nodes && ls__nodes_decides(j);
    snprintf(end.said, sizeof end.said,
             "%s%s%sthe process that was started as lockstep run was killed",
             first ? "the first node (host " : "", first ? j->plan->host : "", first ? "): " : "");
    j->orphaned = true;
    ls__job_ended_by(j, &end);
    ls__job_kill(j);
}

void ls__job_deadline_passed(ls__launcher_job *j)
{
    if (j->phase == LS__JOB_SETTLING) {
        settle(j);
        return;
    }
    if (j->phase == LS__JOB_STOPPING)
        ls__job_ended_by(j, &(ls__end) { .kind = LS__END_GRACE_OVER,
                                         .rank = -1,
                                         .signal = j->stop_signal,
                                         .grace = j->plan->grace });
    ls__job_kill(j);
}

void ls__job_close(ls__launcher_job *j)
{
    if (!ls__nodes_decides(j)) return;
    if (!j->failed && j->nfailures > 0 && j->phase == LS__JOB_SETTLING) {
        const ls__failure *cause = find_cause(j);
        ls__launched_fail(j, &cause->end, cause->host);
        ls__events_write(j, "failure", end_fields(&j->end));
    }
    if (j->failed) return;
    j->end = (ls__end) { .kind = LS__END_FINISHED, .rank = -1, .foreign = true };
    if (j->stop_code == 0) return;
    j->end.kind = LS__END_STOPPED;
    j->end.signal = j->stop_signal;
    j->end.exit_code = j->stop_code;
}
