/* Another launcher's side: it tells the first one what happens here and does what that one says. When the
 * first one is gone, nobody can say what has become of the job: the ranks here are ended, so that
 * nothing hangs. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "launch/launcher_nodes_parts.h"

/* Lines that wait to be sent; more are left out rather than hold ranks up. */
enum { LINES_WAITING_MAX = 8 << 20 };

static int64_t on_first(const ls__nodes_job *n, double at)
{
    return ls__spoke_time(n->spoke, (int64_t)(at * 1e9));
}

void ls__nodes_tell_failure(ls__launcher_job *j, const ls__failure *failure)
{
    ls__node_frame frame;
    if (!j->nodes || !j->nodes->spoke) return;
    ls__node_end_frame(LS__NODE_FAILED, &failure->end, failure->host,
                       on_first(j->nodes, failure->began), &frame);
    ls__spoke_send(j->nodes->spoke, &frame);
}

void ls__nodes_tell_traceback(ls__launcher_job *j, int rank, double at)
{
    if (!j->nodes || !j->nodes->spoke) return;
    ls__node_frame frame = { .type = LS__NODE_TRACEBACK,
                             .numbers = { rank, on_first(j->nodes, at) } };
    ls__spoke_send(j->nodes->spoke, &frame);
}

void ls__nodes_tell_line(ls__launcher_job *j, int rank, int which, const char *text, size_t nbytes)
{
    ls__nodes_job *n = j->nodes;
    if (!n || !n->spoke) return;
    if (ls__spoke_waiting(n->spoke) > LINES_WAITING_MAX) {
        n->dropped++;
        return;
    }
    ls__node_frame frame = { .type = LS__NODE_LINE,
                             .numbers = { rank, which, n->dropped },
                             .texts = { { text, nbytes } } };
    n->dropped = 0;
    ls__spoke_send(n->spoke, &frame);
}

static bool tell_text(ls__launcher_job *j, ls__node_frame_type type, const char *text,
                      size_t nbytes)
{
    if (!j->nodes || !j->nodes->spoke) return false;
    ls__node_frame frame = { .type = type, .texts = { { text, nbytes } } };
    if (nbytes <= LS__NODE_LINE_MAX && ls__spoke_waiting(j->nodes->spoke) <= LINES_WAITING_MAX)
        ls__spoke_send(j->nodes->spoke, &frame);
    return true;
}

bool ls__nodes_tell_event(ls__launcher_job *j, const char *line)
{
    return tell_text(j, LS__NODE_EVENT, line, strlen(line));
}

bool ls__nodes_tell_metrics(ls__launcher_job *j, const char *line, size_t nbytes)
{
    return tell_text(j, LS__NODE_METRICS, line, nbytes);
}

void ls__nodes_tell_ended(ls__launcher_job *j)
{
    ls__node_frame frame = { .type = LS__NODE_ENDED,
                             .numbers = { j->restarts, j->stop_code, j->best_step } };
    ls__spoke_send(j->nodes->spoke, &frame);
}

bool ls__nodes_over(const ls__launcher_job *j)
{
    return j->nodes->over;
}

void ls__other_pulse(void *user, int64_t numbers[2])
{
    const ls__launcher_job *j = user;
    double at = ls__lives_last_sign(j);
    numbers[0] = at > 0 ? (int64_t)((ls__now() - at) * 1000) : -1;
    numbers[1] = j->best_step;
}

/* --- what the first one says --- */

static bool kills(const ls__end *end)
{
    return end->kind == LS__END_HUNG || end->kind == LS__END_SECOND ||
           end->kind == LS__END_GRACE_OVER;
}

static void take_verdict(ls__launcher_job *j, const ls__node_frame *frame)
{
    int64_t began;
    if (ls__node_end_read(frame, &j->end, j->end_host, &began) != LS_OK) return;
    j->failed = true;
    if (j->phase == LS__JOB_WAITING || j->phase == LS__JOB_KILLED) return;
    if (kills(&j->end))
        ls__job_kill(j);
    else if (j->phase != LS__JOB_FAILING)
        ls__job_end_ranks(j);
}

static void take_finish(ls__launcher_job *j, const ls__node_frame *frame)
{
    int64_t began;
    if (ls__node_end_read(frame, &j->end, j->end_host, &began) != LS_OK) return;
    j->nodes->over = true;
    if (j->crew.alive > 0) ls__job_kill(j);
}

void ls__other_message(void *user, const ls__node_frame *frame)
{
    ls__launcher_job *j = user;
    switch (frame->type) {
    case LS__NODE_PLACE:
        j->nodes->placed = true;
        break;
    case LS__NODE_LOOK:
        ls__other_tell_figures(j);
        break;
    case LS__NODE_VERDICT:
        take_verdict(j, frame);
        break;
    case LS__NODE_FINISH:
        take_finish(j, frame);
        break;
    case LS__NODE_SIGNAL:
        ls__job_take_signal(j, (int)frame->numbers[0]);
        break;
    default:
        break;
    }
}

/* --- the first one is gone --- */

static void give_up(ls__launcher_job *j, const char *why)
{
    size_t used = strlen(j->end.said);
    snprintf(j->end.said + used, sizeof j->end.said - used, "; %.600s", why);
    j->nodes->over = true;
}

/* Who was killed or cut off comes back when restarts were asked for. */
static bool is_waited_for(const ls__launcher_job *j, ls__spoke_state state)
{
    return state == LS__SPOKE_LOST && j->restarts < j->plan->max_restarts && !j->stop_signal &&
           !j->orphaned;
}

static void tell_lost(const ls__launcher_job *j)
{
    const ls__nodes_plan *nodes = &j->plan->nodes;
    char limit[64] = "";
    if (nodes->timeout >= 0)
        snprintf(limit, sizeof limit, ", up to %g s (--timeout),", nodes->timeout);
    if (j->nodes->lost)
        ls__log(LS__LOG_ERROR,
                "%s; the ranks here are ended. Waiting%s at %s:%d for it to come back: the same "
                "command line there takes the run up again",
                j->end.said, limit, nodes->host, nodes->port);
    else
        ls__log(LS__LOG_ERROR, "%s; the ranks here are ended", j->end.said);
}

void ls__other_check(ls__launcher_job *j)
{
    ls__nodes_job *n = j->nodes;
    ls__spoke_state state = ls__spoke_state_of(n->spoke);
    const char *host = j->plan->place.host[0] ? j->plan->place.host : j->plan->nodes.host;
    if (n->over || n->lost || !n->ran || (state != LS__SPOKE_LOST && state != LS__SPOKE_REFUSED))
        return;
    n->lost = is_waited_for(j, state);
    n->over = !n->lost;
    j->failed = true;
    j->end = (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_PEER };
    snprintf(j->end.said, sizeof j->end.said, "the first node (host %.255s) was lost: %.1000s",
             host, ls__spoke_why(n->spoke));
    snprintf(j->end_host, sizeof j->end_host, "%s", host);
    tell_lost(j);
    if (j->phase != LS__JOB_WAITING && j->phase != LS__JOB_KILLED) ls__job_end_ranks(j);
}

void ls__nodes_await_first(ls__launcher_job *j)
{
    ls__nodes_job *n = j->nodes;
    ls__node_join join;
    char why[700];
    double limit = j->plan->nodes.timeout;
    if (!n->lost) return;
    if (!n->rejoins) {
        ls__nodes_own_join(j, &join);
        ls__spoke_again(n->spoke, &join);
        n->rejoins = true;
        j->deadline = limit < 0 ? -1 : ls__now() + limit;
        ls__nodes_wait_told(j);
    }
    if (ls__spoke_state_of(n->spoke) == LS__SPOKE_REFUSED) {
        snprintf(why, sizeof why, "it has not let this one in again: %.600s",
                 ls__spoke_why(n->spoke));
        give_up(j, why);
    } else if (j->stop_signal) {
        give_up(j, "a signal ended the wait for it");
    } else if (j->deadline >= 0 && ls__now() >= j->deadline) {
        snprintf(why, sizeof why, "it did not come back within %g s (--timeout): %.500s", limit,
                 ls__spoke_why(n->spoke));
        give_up(j, why);
    }
}
