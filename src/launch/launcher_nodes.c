/* Several machines: what a launcher does whichever of them it is. The connections live in the job's one
 * epoll set, so that nothing here waits; what is said is in launcher_nodes_first.c and _other.c.
 * Expected: 2 to 1,000 launchers that say little while ranks run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mac.h"
#include "base/memory.h"
#include "launch/first_node.h"
#include "launch/launcher_nodes_parts.h"
#include "launch/nodes_plan.h"

static const double one_relay = 1.0; /* srun sends a signal to every task: that is one */
static const double told_after = 10.0, other_told_after = 3.0;

bool ls__nodes_decides(const ls__launcher_job *j)
{
    return !j->nodes || j->nodes->hub;
}

/* --- who may join without a secret --- */

static bool lets_in(void *user, const struct sockaddr *peer)
{
    const ls__launcher_job *j = user;
    return ls__nodes_names(&j->plan->nodes, peer);
}

/* --- opening --- */

void ls__nodes_own_join(const ls__launcher_job *j, ls__node_join *out)
{
    const ls__launcher_plan *plan = j->plan;
    *out = (ls__node_join) { .node_rank = plan->nodes.node_rank,
                             .size = plan->size,
                             .port = j->nodes->own_port,
                             .restarts = j->restarts,
                             .pid = plan->pid };
    snprintf(out->host, sizeof out->host, "%.255s", plan->host);
    snprintf(out->machine, sizeof out->machine, "%s", plan->nodes.machine);
    if (!j->nodes->ran || j->nodes->hub) return;
    out->node_rank = plan->place.launcher; /* the place that it had */
    snprintf(out->run_id, sizeof out->run_id, "%s", plan->run_id);
}

static ls_status open_first(ls__launcher_job *j)
{
    const ls__nodes_plan *nodes = &j->plan->nodes;
    const ls__first_before *before = nodes->before;
    ls__node_join own;
    ls__nodes_own_join(j, &own);
    snprintf(own.address, sizeof own.address, "%s", nodes->host);
    j->nodes->remotes = ls__alloc((size_t)nodes->launchers, sizeof *j->nodes->remotes);
    if (!j->nodes->remotes) return LS_ERR_MEMORY;
    LS_TRY(ls__hub_create(&(ls__hub_options) { .launchers = nodes->launchers,
                                               .own = j->plan->size > 0 ? &own : NULL,
                                               .secret = nodes->secret,
                                               .run_id = j->plan->run_id,
                                               .before = before ? before->joins : NULL,
                                               .lets_in = lets_in,
                                               .port = nodes->port,
                                               .loopback = nodes->loopback,
                                               .come = ls__first_come,
                                               .lost = ls__first_lost,
                                               .message = ls__first_message,
                                               .user = j },
                          &j->nodes->hub));
    ls__first_node_keep(j);
    ls__nodes_tell_line_to_join(j->plan, ls__hub_port(j->nodes->hub));
    if (!nodes->hosts) return LS_OK;
    LS_TRY(ls__agents_create(j->plan, &j->crew, ls__hub_port(j->nodes->hub), &j->nodes->agents));
    return ls__agents_start_all(j->nodes->agents);
}

static ls_status open_other(ls__launcher_job *j)
{
    const ls__nodes_plan *nodes = &j->plan->nodes;
    ls__spoke_options options = { .host = nodes->host,
                                  .secret = nodes->secret,
                                  .port = nodes->port,
                                  .message = ls__other_message,
                                  .pulse = ls__other_pulse,
                                  .user = j };
    ls__nodes_own_join(j, &options.join);
    return ls__spoke_create(&options, &j->nodes->spoke);
}

ls_status ls__nodes_open(ls__launcher_job *j)
{
    ls__nodes_role role = j->plan->nodes.role;
    if (role == LS__NODES_NONE) return LS_OK;
    j->nodes = ls__alloc(1, sizeof *j->nodes);
    if (!j->nodes) return LS_ERR_MEMORY;
    j->nodes->own_port = j->port;
    ls__nodes_wait_told(j);
    return role == LS__NODES_FIRST ? open_first(j) : open_other(j);
}

void ls__nodes_wait_told(ls__launcher_job *j)
{
    if (!j->nodes) return;
    j->nodes->told_pause = j->plan->nodes.role == LS__NODES_OTHER ? other_told_after : told_after;
    j->nodes->told_at = ls__now() + j->nodes->told_pause;
}

void ls__nodes_close(ls__launcher_job *j)
{
    if (!j->nodes) return;
    ls__agents_destroy(j->nodes->agents);
    if (j->nodes->hub) ls__first_free_figures(j->nodes);
    ls__hub_destroy(j->nodes->hub);
    ls__spoke_destroy(j->nodes->spoke);
    ls__free(j->nodes->remotes);
    ls__free(j->nodes);
    j->nodes = NULL;
}

/* --- meeting --- */

void ls__nodes_serve(ls__launcher_job *j)
{
    if (!j->nodes) return;
    if (j->nodes->hub) {
        ls__hub_serve(j->nodes->hub);
        ls__first_check_figures(j);
        ls__first_node_touch(j);
    }
    if (j->nodes->spoke) {
        ls__spoke_serve(j->nodes->spoke);
        ls__other_check(j);
    }
}

double ls__nodes_due(const ls__launcher_job *j)
{
    if (!j->nodes) return -1;
    double at = j->nodes->hub ? ls__hub_due(j->nodes->hub) : ls__spoke_due(j->nodes->spoke);
    double look = ls__agents_due(j->nodes->agents), figures = ls__first_figures_due(j->nodes);
    if (figures >= 0 && (at < 0 || figures < at)) at = figures;
    return j->phase == LS__JOB_WAITING && look >= 0 && look < at ? look : at;
}

/* Rarely, and ever more so. */
static bool is_time_to_tell(ls__nodes_job *n)
{
    if (ls__now() < n->told_at) return false;
    n->told_pause *= 6;
    n->told_at = ls__now() + n->told_pause;
    return true;
}

/* To the one who waits here: for whom, why, for how long, and what to look at. */
static void tell_unreached(ls__launcher_job *j)
{
    const ls__nodes_plan *nodes = &j->plan->nodes;
    char left[48] = "without limit";
    ls__spoke_state state = ls__spoke_state_of(j->nodes->spoke);
    bool joined = state == LS__SPOKE_JOINED;
    if ((!joined && state != LS__SPOKE_TRYING) || !is_time_to_tell(j->nodes)) return;
    if (j->deadline >= 0)
        snprintf(left, sizeof left, "for %.0f s more (--timeout)", j->deadline - ls__now());
    if (joined)
        ls__log(LS__LOG_INFO, "the first node (%s) has let this one in; waiting for others, %s",
                nodes->host, left);
    else
        ls__log(LS__LOG_WARN,
                "waiting for the first node at %s:%d: %s; trying %s. Does its lockstep run still "
                "run, is this the address and port it has printed, does a firewall close the port?",
                nodes->host, nodes->port, ls__spoke_why(j->nodes->spoke), left);
}

static void tell_missing(ls__nodes_job *n)
{
    char missing[200];
    if (!is_time_to_tell(n)) return;
    ls__hub_missing_text(n->hub, missing, sizeof missing);
    ls__log(LS__LOG_INFO, "%d of %d nodes are here; waiting for %s", ls__hub_here(n->hub),
            ls__hub_launchers(n->hub), missing);
}

ls_status ls__nodes_ready(ls__launcher_job *j, bool *ready)
{
    ls__nodes_job *n = j->nodes;
    *ready = false;
    if (!n->hub) {
        *ready = n->placed;
        if (!*ready && j->phase == LS__JOB_WAITING) tell_unreached(j);
        if (ls__spoke_state_of(n->spoke) != LS__SPOKE_REFUSED) return LS_OK;
        return ls_fail(LS_ERR_PEER, "the first node (%.200s, port %d) has not let this one in: %s",
                       j->plan->nodes.host, j->plan->nodes.port, ls__spoke_why(n->spoke));
    }
    if (n->agents)
        LS_TRY(ls__agents_check(n->agents, n->hub, n->started || j->plan->nodes.before != NULL));
    *ready = ls__hub_here(n->hub) == ls__hub_launchers(n->hub);
    if (!*ready) tell_missing(n);
    return LS_OK;
}

ls_status ls__nodes_late(ls__launcher_job *j)
{
    const ls__nodes_job *n = j->nodes;
    char missing[200];
    double limit = j->plan->nodes.timeout;
    if (n->hub) {
        ls__hub_missing_text(n->hub, missing, sizeof missing);
        int here = ls__hub_here(n->hub), all = ls__hub_launchers(n->hub);
        return ls_fail(LS_ERR_TIMEOUT, "%d of %d nodes came within %g s (--timeout); %s %s missing",
                       here, all, limit, missing, all - here == 1 ? "is" : "are");
    }
    if (ls__spoke_state_of(n->spoke) == LS__SPOKE_JOINED)
        return ls_fail(LS_ERR_TIMEOUT, "not all nodes came within %g s (--timeout)", limit);
    return ls_fail(LS_ERR_TIMEOUT,
                   "the first node (%.200s, port %d) could not be reached within %g s (--timeout): "
                   "%.200s",
                   j->plan->nodes.host, j->plan->nodes.port, limit, ls__spoke_why(n->spoke));
}

/* What only launchers know does not go over the wire. */
static void secret_of_ranks(ls__launcher_job *j, ls__node_place *place)
{
    char text[LS__SECRET_TEXT];
    if (!j->plan->nodes.secret[0]) return;
    ls__secret_derive(j->plan->nodes.secret, "ranks", text);
    snprintf(place->secret, sizeof place->secret, "%s", text);
}

/* A first node that is back goes on counting where it, and those who waited for it, had been. */
static ls_status count_returns(ls__launcher_job *j)
{
    const ls__first_before *before = j->plan->nodes.before;
    const ls__nodes_job *n = j->nodes;
    int count = j->restarts;
    if (before && before->started && !n->started && before->restarts + 1 > count)
        count = before->restarts + 1;
    for (int i = 0; i < ls__hub_launchers(n->hub); i++) {
        const ls__node_join *join = ls__hub_join_of(n->hub, i);
        if (join->run_id[0] && join->restarts + 1 > count) count = join->restarts + 1;
    }
    if (count == j->restarts) return LS_OK;
    if (count > j->plan->max_restarts)
        return ls_fail(LS_ERR_PEER,
                       "the first node is back, and all restarts are used up "
                       "(--max-restarts %d)",
                       j->plan->max_restarts);
    j->restarts = count;
    ls__log(LS__LOG_INFO, "starting again (%d of %d): the first node is back", count,
            j->plan->max_restarts);
    ls__events_write(j, "restart",
                     json_pack("{s:i,s:f,s:s}", "count", count, "delay", 0.0, "why",
                               "the first node was lost and is back"));
    return LS_OK;
}

static ls_status start_first(ls__launcher_job *j)
{
    ls__launcher_plan *plan = j->plan;
    ls__nodes_job *n = j->nodes;
    LS_TRY(count_returns(j));
    ls__node_place common = { .restarts = j->restarts,
                              .max_restarts = plan->max_restarts,
                              .grace_ms = plan->grace < 0 ? -1 : (int)(plan->grace * 1000) };
    snprintf(common.run_id, sizeof common.run_id, "%s", plan->run_id);
    snprintf(common.role, sizeof common.role, "%s", plan->role);
    snprintf(common.host, sizeof common.host, "%.255s", plan->host);
    snprintf(common.run_name, sizeof common.run_name, "%s", plan->name);
    if (!plan->nodes.secret[0]) {
        if (!n->secret_of_ranks[0]) LS_TRY(ls__secret_make(n->secret_of_ranks));
        snprintf(common.secret, sizeof common.secret, "%s", n->secret_of_ranks);
    }
    LS_TRY(ls__hub_start(n->hub, &common, &plan->place));
    for (int i = 0; i < plan->nodes.launchers; i++) {
        bool own = plan->size > 0 && i == plan->nodes.node_rank;
        json_decref(n->remotes[i].figures);
        n->remotes[i] =
            (ls__remote) { .runs = !own, .sign_at = ls__now(), .trip = n->remotes[i].trip };
    }
    n->ntracebacks = 0;
    n->started = true;
    ls__first_node_keep(j);
    ls__hub_interface(n->hub, plan->nodes.interface);
    secret_of_ranks(j, &plan->place);
    j->port = plan->place.port;
    return LS_OK;
}

ls_status ls__nodes_start(ls__launcher_job *j)
{
    ls__launcher_plan *plan = j->plan;
    if (j->nodes->hub) return start_first(j);
    const ls__node_place *place = ls__spoke_place(j->nodes->spoke);
    if (j->nodes->ran && place->first_rank != plan->place.first_rank)
        return ls_fail(LS_ERR_PEER,
                       "the first rank here was %d, and is %d now that the first node is "
                       "back: start all nodes anew",
                       plan->place.first_rank, place->first_rank);
    plan->place = *place;
    j->nodes->ran = true;
    j->nodes->placed = j->nodes->lost = j->nodes->rejoins = false;
    ls__spoke_interface(j->nodes->spoke, plan->nodes.interface);
    secret_of_ranks(j, &plan->place);
    /* As it was called here, if by a name: "job-node-0-0.job" says more than a number. */
    if (plan->nodes.launchers > 0)
        snprintf(plan->place.master_addr, sizeof plan->place.master_addr, "%s", plan->nodes.host);
    snprintf(plan->run_id, sizeof plan->run_id, "%s", plan->place.run_id);
    snprintf(plan->role, sizeof plan->role, "%.63s", plan->place.role);
    plan->max_restarts = plan->place.max_restarts;
    plan->grace = plan->place.grace_ms < 0 ? -1 : plan->place.grace_ms / 1000.0;
    j->restarts = plan->place.restarts;
    j->port = plan->place.port;
    return LS_OK;
}

void ls__nodes_call_back(ls__launcher_job *j)
{
    if (j->nodes && j->nodes->agents) ls__agents_start_missing(j->nodes->agents, j->nodes->hub);
}

/* --- signals --- */

bool ls__nodes_pass_on(ls__launcher_job *j, int number)
{
    ls__nodes_job *n = j->nodes;
    ls__node_frame frame = { .type = LS__NODE_SIGNAL, .numbers = { number } };
    if (!n || !n->spoke || ls__spoke_state_of(n->spoke) != LS__SPOKE_PLACED) return false;
    ls__spoke_send(n->spoke, &frame);
    return true;
}

/* All act on the same ones, in the first one's order. */
bool ls__nodes_signal(ls__launcher_job *j, int number)
{
    ls__nodes_job *n = j->nodes;
    ls__node_frame frame = { .type = LS__NODE_SIGNAL, .numbers = { number } };
    if (!n || !n->hub || !n->started || number < 1 || number > 64) return true;
    double now = ls__now();
    if (n->relayed_at[number] > 0 && now - n->relayed_at[number] < one_relay) return false;
    n->relayed_at[number] = now;
    ls__hub_broadcast(n->hub, &frame);
    return true;
}

int ls__nodes_fd(const ls__launcher_job *j)
{
    return j->nodes->hub ? ls__hub_fd(j->nodes->hub) : ls__spoke_fd(j->nodes->spoke);
}

/* Flags speak of the ranks of each machine. */
static ls_status shown_of_all(ls__launcher_job *j, unsigned char *shown)
{
    unsigned char first[LS__DEVICES_MAX], other[LS__DEVICES_MAX];
    const ls__hub *hub = j->nodes->hub;
    LS_TRY(ls__launcher_shown(j->plan->flags, LS__DEVICES_MAX, true, first));
    LS_TRY(ls__launcher_shown(j->plan->flags, LS__DEVICES_MAX, false, other));
    for (int i = 0, rank = 0; i < ls__hub_launchers(hub); i++) {
        int local = ls__hub_local_rank(hub, i);
        for (int k = 0; k < ls__hub_join_of(hub, i)->size; k++, rank++) {
            int at = (local + k) % LS__DEVICES_MAX;
            shown[rank] = i == 0 ? first[at] : other[at];
        }
    }
    return LS_OK;
}

ls_status ls__nodes_plan_shown(ls__launcher_job *j)
{
    bool all = ls__nodes_decides(j);
    if (!j->nodes) return LS_OK;
    int size = all ? j->plan->place.world_size : j->plan->size;
    unsigned char *shown = ls__alloc((size_t)size, sizeof *shown); /* nothing, of the others */
    if (!shown) return LS_ERR_MEMORY;
    ls__free(j->plan->shown);
    j->plan->shown = shown;
    return all ? shown_of_all(j, shown) : LS_OK;
}

const char *ls__nodes_host_of(void *job, int rank)
{
    const ls__launcher_job *j = job;
    return ls__hub_join_of(j->nodes->hub, ls__hub_launcher_of(j->nodes->hub, rank))->host;
}
