/* The first launcher's side: what the others say, and what it says to them. Failures from everywhere go
 * into the one list that launcher_end.c judges, with times of this machine's clock. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/first_node.h"
#include "launch/launcher_nodes_parts.h"

static const double quiet_seconds = 1.6; /* a beat is missing: perhaps this one is gone */
static const double finish_seconds = 2.0;
static const double longest_trip = 0.2; /* that is waited for */

/* "node 1 (host b, ranks 4-7)" */
static void name_of(const ls__launcher_job *j, int launcher, char out[400])
{
    const ls__node_join *join = ls__hub_join_of(j->nodes->hub, launcher);
    int first = ls__hub_first_rank(j->nodes->hub, launcher);
    if (!j->nodes->started)
        snprintf(out, 400, "node %d (host %.255s)", launcher, join->host);
    else if (join->size == 1)
        snprintf(out, 400, "node %d (host %.255s, rank %d)", launcher, join->host, first);
    else
        snprintf(out, 400, "node %d (host %.255s, ranks %d-%d)", launcher, join->host, first,
                 first + join->size - 1);
}

void ls__first_come(void *user, int launcher)
{
    ls__launcher_job *j = user;
    const ls__node_join *join = ls__hub_join_of(j->nodes->hub, launcher);
    int all = ls__hub_launchers(j->nodes->hub);
    if (all <= 32 || ls__hub_here(j->nodes->hub) == all)
        ls__log(LS__LOG_INFO, "node %d is here: host %s, %d rank%s; %d of %d nodes", launcher,
                join->host, join->size, join->size == 1 ? "" : "s", ls__hub_here(j->nodes->hub),
                all);
    ls__events_write(
        j, "node",
        json_pack("{s:i,s:s,s:i}", "node", launcher, "host", join->host, "ranks", join->size));
}

static void forget_tracebacks(ls__nodes_job *n, int first, int size)
{
    int kept = 0;
    for (int i = 0; i < n->ntracebacks; i++)
        if (n->tracebacks[i].rank < first || n->tracebacks[i].rank >= first + size)
            n->tracebacks[kept++] = n->tracebacks[i];
    n->ntracebacks = kept;
}

void ls__first_lost(void *user, int launcher, const char *why)
{
    ls__launcher_job *j = user;
    ls__nodes_job *n = j->nodes;
    const ls__node_join *join = ls__hub_join_of(n->hub, launcher);
    ls__failure failure = { .end = { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_PEER },
                            .began = ls__now() };
    char name[400];
    name_of(j, launcher, name);
    bool ran = n->started && n->remotes[launcher].runs;
    n->remotes[launcher].runs = false;
    snprintf(failure.end.said, sizeof failure.end.said, "%s was lost: %s", name, why);
    snprintf(failure.host, sizeof failure.host, "%s", join->host);
    ls__events_write(j, "node-lost",
                     json_pack("{s:i,s:s,s:s}", "node", launcher, "host", join->host, "why", why));
    if (ran) forget_tracebacks(n, ls__hub_first_rank(n->hub, launcher), join->size);
    bool matters =
        j->phase == LS__JOB_RUNNING || j->phase == LS__JOB_SETTLING || j->phase == LS__JOB_STOPPING;
    if (ran && matters)
        ls__job_add_failure(j, &failure);
    else
        ls__log(LS__LOG_WARN, "%s", failure.end.said);
}

/* --- what they say --- */

/* Of more than a rank: which node says so. */
static void name_end(const ls__launcher_job *j, int launcher, ls__end *end)
{
    char name[400], said[sizeof end->said];
    name_of(j, launcher, name);
    snprintf(said, sizeof said, "%s: %.1600s", name, end->said);
    snprintf(end->said, sizeof end->said, "%s", said);
}

static void take_failure(ls__launcher_job *j, int launcher, const ls__node_frame *frame)
{
    ls__failure failure;
    int64_t began;
    char host[LS__NODE_NAME_MAX + 1];
    if (ls__node_end_read(frame, &failure.end, host, &began) != LS_OK) return;
    failure.began = (double)began / 1e9;
    snprintf(failure.host, sizeof failure.host, "%s",
             ls__hub_join_of(j->nodes->hub, launcher)->host);
    if (failure.end.rank >= j->plan->place.world_size) return;
    if (failure.end.rank >= 0) {
        forget_tracebacks(j->nodes, failure.end.rank, 1);
        if (j->phase == LS__JOB_RUNNING || j->phase == LS__JOB_SETTLING ||
            j->phase == LS__JOB_STOPPING)
            ls__job_add_failure(j, &failure);
        return;
    }
    if (j->phase == LS__JOB_FAILING || j->phase == LS__JOB_KILLED) return;
    if (failure.end.kind == LS__END_STATUS) name_end(j, launcher, &failure.end);
    ls__launched_fail(j, &failure.end, failure.host);
    ls__job_end_ranks(j);
}

static void take_traceback(ls__launcher_job *j, const ls__node_frame *frame)
{
    ls__nodes_job *n = j->nodes;
    if (n->ntracebacks == LS__TRACEBACKS_MAX) return;
    n->tracebacks[n->ntracebacks].rank = (int)frame->numbers[0];
    n->tracebacks[n->ntracebacks++].at = (double)frame->numbers[1] / 1e9;
}

static void take_line(ls__launcher_job *j, int launcher, const ls__node_frame *frame)
{
    int64_t rank = frame->numbers[0], which = frame->numbers[1], dropped = frame->numbers[2];
    char name[400];
    if (!j->output || rank < 0 || rank >= j->plan->place.world_size || which < 0 || which > 1)
        return;
    if (dropped > 0) {
        name_of(j, launcher, name);
        ls__log(LS__LOG_WARN, "%s left out %lld lines: the connection is slow", name,
                (long long)dropped);
    }
    ls__output_put(j->output, (int)rank, (int)which, frame->texts[0].data, frame->texts[0].nbytes);
}

static void take_event(ls__launcher_job *j, int launcher, const ls__node_frame *frame)
{
    if (j->events_fd < 0) return;
    json_t *event =
        json_loadb(frame->texts[0].data, frame->texts[0].nbytes, JSON_REJECT_DUPLICATES, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    char *kept = name ? ls__strdup(name) : NULL;
    if (kept) {
        json_object_del(event, "event");
        json_object_set(event, "node_time", json_object_get(event, "time"));
        json_object_del(event, "time");
        json_object_set_new(event, "node", json_integer(launcher));
        json_object_set_new(event, "host",
                            json_string(ls__hub_join_of(j->nodes->hub, launcher)->host));
        ls__events_write(j, kept, json_incref(event)); /* which steals one */
    }
    ls__free(kept);
    json_decref(event);
}

static void take_beat(ls__launcher_job *j, int launcher, const ls__node_frame *frame)
{
    ls__remote *r = &j->nodes->remotes[launcher];
    double at = ls__now() - (double)frame->numbers[1] / 1e3;
    r->trip = (double)frame->numbers[3] / 1e9;
    if (!j->nodes->started) return;
    if (frame->numbers[1] >= 0 && at > r->sign_at) r->sign_at = at;
    if (frame->numbers[2] > j->best_step) j->best_step = frame->numbers[2];
}

static void take_ended(ls__launcher_job *j, int launcher, const ls__node_frame *frame)
{
    if (frame->numbers[0] != j->restarts) return; /* of a start before */
    j->nodes->remotes[launcher].runs = false;
    if (j->stop_code == 0 && frame->numbers[1] > 0 && frame->numbers[1] < 256)
        j->stop_code = (int)frame->numbers[1];
    if (frame->numbers[2] > j->best_step) j->best_step = frame->numbers[2];
}

void ls__first_message(void *user, int launcher, const ls__node_frame *frame)
{
    ls__launcher_job *j = user;
    if (!j->nodes->started && frame->type != LS__NODE_PING) return;
    switch (frame->type) {
    case LS__NODE_FAILED:
        take_failure(j, launcher, frame);
        break;
    case LS__NODE_TRACEBACK:
        take_traceback(j, frame);
        break;
    case LS__NODE_LINE:
        take_line(j, launcher, frame);
        break;
    case LS__NODE_EVENT:
        take_event(j, launcher, frame);
        break;
    case LS__NODE_METRICS:
        ls__foreign_metrics_line(j, frame->texts[0].data, frame->texts[0].nbytes);
        break;
    case LS__NODE_PING:
        take_beat(j, launcher, frame);
        break;
    case LS__NODE_FIGURES:
        ls__first_take_figures(j, launcher, frame);
        break;
    case LS__NODE_ENDED:
        take_ended(j, launcher, frame);
        break;
    case LS__NODE_SIGNAL:
        ls__job_take_signal(j, (int)frame->numbers[0]);
        break;
    default:
        break;
    }
}

/* --- what is known of them --- */

bool ls__nodes_busy(const ls__launcher_job *j)
{
    const ls__nodes_job *n = j->nodes;
    if (!n || !n->hub || !n->started) return false;
    for (int i = 0; i < ls__hub_launchers(n->hub); i++)
        if (n->remotes[i].runs) return true;
    return false;
}

int ls__nodes_alive(const ls__launcher_job *j)
{
    const ls__nodes_job *n = j->nodes;
    int alive = j->crew.alive;
    for (int i = 0; n && n->hub && i < ls__hub_launchers(n->hub); i++)
        if (n->remotes[i].runs) alive += ls__hub_join_of(n->hub, i)->size;
    return alive;
}

static bool is_quiet(const ls__nodes_job *n)
{
    for (int i = 0; i < ls__hub_launchers(n->hub); i++)
        if (n->remotes[i].runs && ls__hub_silence_of(n->hub, i) > quiet_seconds) return true;
    return false;
}

bool ls__nodes_expects(const ls__launcher_job *j, double began)
{
    const ls__nodes_job *n = j->nodes;
    if (!n || !n->hub) return false;
    for (int i = 0; i < n->ntracebacks; i++)
        if (n->tracebacks[i].at < began) return true;
    return is_quiet(n);
}

/* Until a machine that says nothing counts as lost. */
double ls__nodes_patience(const ls__launcher_job *j, double seconds)
{
    const ls__nodes_job *n = j->nodes;
    return n && n->hub && is_quiet(n) ? 6.0 : seconds;
}

double ls__nodes_trip(const ls__launcher_job *j)
{
    const ls__nodes_job *n = j->nodes;
    double longest = 0;
    for (int i = 0; n && n->hub && i < ls__hub_launchers(n->hub); i++)
        if (n->remotes[i].runs && n->remotes[i].trip > longest) longest = n->remotes[i].trip;
    return longest < longest_trip ? longest : longest_trip;
}

double ls__nodes_last_sign(const ls__launcher_job *j)
{
    const ls__nodes_job *n = j->nodes;
    double at = 0;
    for (int i = 0; n && n->hub && i < ls__hub_launchers(n->hub); i++)
        if (n->remotes[i].runs && n->remotes[i].sign_at > at) at = n->remotes[i].sign_at;
    return at;
}

/* --- what is said to them --- */

void ls__nodes_tell_end(ls__launcher_job *j)
{
    ls__node_frame frame;
    ls__nodes_job *n = j->nodes;
    if (!n) return;
    if (n->hub && n->started) {
        ls__node_end_frame(LS__NODE_VERDICT, &j->end, j->end_host, 0, &frame);
        ls__hub_broadcast(n->hub, &frame);
    } else if (n->spoke && j->end.kind != LS__END_SECOND) {
        ls__node_end_frame(LS__NODE_FAILED, &j->end, j->end_host,
                           ls__spoke_time(n->spoke, ls__now_ns()), &frame);
        ls__spoke_send(n->spoke, &frame);
    }
}

void ls__nodes_finish(ls__launcher_job *j)
{
    ls__nodes_job *n = j->nodes;
    ls__node_frame frame;
    if (!n || !n->hub) return;
    /* Killed here, and restarts are left: the others wait, for the job's end was not its own. */
    if (j->orphaned && j->restarts < j->plan->max_restarts && !j->stop_signal) return;
    ls__first_node_forget(j);
    if (n->started) {
        ls__node_end_frame(LS__NODE_FINISH, &j->end, j->end_host, 0, &frame);
        ls__hub_broadcast(n->hub, &frame);
    } else {
        ls__hub_refuse_all(n->hub, "the first node has given up waiting");
    }
    ls__hub_drain(n->hub, finish_seconds);
}
