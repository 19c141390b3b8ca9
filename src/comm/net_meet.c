/* Meetings of all nodes: how a call begins on several machines, and how one that does not is
 * reported.
 *
 * The ranks of a node meet in shared memory first, so a rank that is odd among them is found there
 * and named by its own node; what the node then says to the others is one frame from its first
 * rank, to each of the others directly: one latency, and for tens of nodes no tree is faster. A
 * frame carries the call, so nodes that call different things find it in the same exchange, and
 * what is small (most of what is collected in a run) travels inside it. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/comm_report.h"
#include "comm/net_internal.h"

enum { INLINED = sizeof((ls__meeting_frame *)NULL)->bytes };

ls_status ls__net_make_room(ls__net *net, size_t nbytes)
{
    if (!ls__net_speaks(net) || nbytes <= net->room) return LS_OK;
    void *brought = ls__realloc(net->brought, nbytes, 1);
    if (!brought) return LS_ERR_MEMORY;
    net->brought = brought;
    for (int m = 0; m < net->n; m++) {
        void *rest = ls__realloc(net->rests[m], nbytes, 1);
        if (!rest) return LS_ERR_MEMORY;
        net->rests[m] = rest;
    }
    net->room = nbytes;
    return LS_OK;
}

/* Starts a frame to and from every other node's first rank: transfers 2i and 2i + 1. */
static ls_status start_frames(ls__net *net)
{
    for (int m = 0; m < net->n; m++) {
        if (m == net->me) continue;
        int peer = ls__node_rank(net, m, 0);
        LS_TRY(ls__net_recv(net, LS__CHANNEL_FRAME, peer, &net->in[m], LS__FRAME));
        LS_TRY(ls__net_send(net, LS__CHANNEL_FRAME, peer, net->out, LS__FRAME));
    }
    return LS_OK;
}

/* Says to the others that this node's ranks have failed, as far as they listen. */
static void say_failed(ls__net *net, const ls__call *call, ls_status status)
{
    ls__meeting_frame *out = net->out;
    out->head = (ls__frame_head) { .seq = ++net->meetings,
                                   .what = ls__call_what(call),
                                   .status = (int32_t)status };
    snprintf((char *)out->bytes, sizeof out->bytes, "%s", ls_error_text());
    ls__patience patience = { .deadline_ns = ls__now_ns() + ls__net_grace_ns(net) };
    int n = 0;
    for (int m = 0; m < net->n; m++)
        if (m != net->me &&
            ls__net_send(net, LS__CHANNEL_FRAME, ls__node_rank(net, m, 0), out, LS__FRAME) == LS_OK)
            n++;
    for (int i = 0; i < n; i++) (void)ls__net_wait_until(net, i, &patience);
    ls_fail(status, "%s", (const char *)out->bytes);
}

/* Fills in what is said of the ranks of node m. */
static void set_node(const ls__net *net, ls__activity *each, int m, const ls__activity *a)
{
    for (int i = 0; i < ls__node_size(net, m); i++) each[ls__node_rank(net, m, i)] = *a;
}

static ls_status report(ls__net *net, const ls__activity *each, ls_status status)
{
    char text[1400];
    unsigned long long seq = net->local->seq;
    ls__activities_text(each, net->whole->size, NULL, net->local->seq, text, sizeof text);
    if (status == LS_ERR_MISMATCH)
        return ls_fail(status,
                       "ranks disagree about call %llu: %s; every rank must make the same calls "
                       "in the same order with the same count and type",
                       seq, text);
    return ls_fail(status,
                   "call %llu was not finished within %.3g s: %s; if the wait was meant, give a "
                   "longer --timeout",
                   seq, 1e-9 * (double)net->whole->timeout_ns, text);
}

/* Nodes whose frame is not there at the deadline are named. */
static ls_status report_silent(ls__net *net)
{
    ls__patience none = { .deadline_ns = 0 };
    ls__activity *each = ls__alloc((size_t)net->whole->size, sizeof *each);
    ls__activity own, silent = { .silent = true };
    if (!each) return LS_ERR_MEMORY;
    ls__activity_own(net->local, &own);
    set_node(net, each, net->me, &own);
    for (int i = 0; i < net->now.n; i++) {
        ls__transfer *t = &net->now.each[i];
        if (t->sends || t->channel != LS__CHANNEL_FRAME) continue;
        bool there = ls__net_wait_until(net, i, &none) == LS_OK;
        set_node(net, each, ls__place(net, t->peer)->node, there ? &own : &silent);
    }
    ls_status status = report(net, each, LS_ERR_TIMEOUT);
    ls__free(each);
    return status;
}

/* All have seen that they differ: each tells what it is in, with its place. */
static ls_status report_mismatch(ls__net *net)
{
    ls__activity own, *each = ls__alloc((size_t)net->whole->size, sizeof *each);
    if (!each) return LS_ERR_MEMORY;
    _Static_assert(sizeof own <= INLINED, "an activity fits into a frame");
    ls__activity_own(net->local, &own);
    memcpy(net->out->bytes, &own, sizeof own);
    ls_status status = start_frames(net);
    if (status == LS_OK) status = ls__net_wait(net);
    for (int m = 0; m < net->n && status == LS_OK; m++) {
        if (m != net->me) memcpy(&own, net->in[m].bytes, sizeof own);
        own.place[LS__PLACE - 1] = '\0';
        set_node(net, each, m, &own);
        if (m != net->me) ls__activity_own(net->local, &own);
    }
    ls__activity_own(net->local, &own);
    set_node(net, each, net->me, &own);
    if (status == LS_OK) status = report(net, each, LS_ERR_MISMATCH);
    ls__free(each);
    return status;
}

/* Every transfer so far, by one deadline; a peer's failure outranks silence. */
static ls_status await_frames(ls__net *net)
{
    ls__patience patience = ls__net_patience(net);
    for (int i = 0; i < net->now.n; i++) {
        ls__transfer *t = &net->now.each[i];
        if (t->sends) continue;
        ls_status status = ls__net_wait_until(net, i, &patience);
        if (status == LS_ERR_TIMEOUT) return report_silent(net);
        if (status != LS_OK) return ls__net_about(net, status, t->peer);
    }
    return LS_OK;
}

static ls_status check_frames(ls__net *net)
{
    bool same = true;
    const ls__frame_head *own = &net->out->head;
    for (int m = 0; m < net->n; m++) {
        if (m == net->me) continue;
        ls__meeting_frame *frame = &net->in[m];
        if (frame->head.status != LS_OK) {
            frame->bytes[INLINED - 1] = '\0';
            return ls_fail((ls_status)frame->head.status, "%s", (const char *)frame->bytes);
        }
        same = same && frame->head.seq == own->seq && frame->head.what == own->what;
    }
    if (same) return LS_OK;
    ls_status status = ls__net_wait(net); /* the frames sent */
    return status == LS_OK ? report_mismatch(net) : status;
}

/* What did not fit into the frames. */
static ls_status fetch_rests(ls__net *net)
{
    for (int m = 0; m < net->n; m++) {
        if (m == net->me) continue;
        const ls__meeting_frame *frame = &net->in[m];
        int64_t nbytes = frame->head.nbytes;
        if (nbytes < 0 || (size_t)nbytes > net->room)
            return ls_fail(LS_ERR_INTERNAL, "node %d brings %lld bytes to a meeting", m,
                           (long long)nbytes);
        net->nbytes[m] = (size_t)nbytes;
        net->theirs[m] = frame->bytes;
        if (nbytes <= INLINED) continue;
        memcpy(net->rests[m], frame->bytes, INLINED);
        net->theirs[m] = net->rests[m];
        LS_TRY(ls__net_recv(net, LS__CHANNEL_REST, ls__node_rank(net, m, 0),
                            net->rests[m] + INLINED, (size_t)nbytes - INLINED));
    }
    return LS_OK;
}

static ls_status trade(ls__net *net, const ls__call *call, size_t nbytes)
{
    net->out->head = (ls__frame_head) { .seq = ++net->meetings,
                                        .what = ls__call_what(call),
                                        .nbytes = (int64_t)nbytes };
    memcpy(net->out->bytes, net->brought, nbytes < INLINED ? nbytes : INLINED);
    LS_TRY(start_frames(net));
    LS_TRY(await_frames(net));
    LS_TRY(check_frames(net));
    for (int m = 0; m < net->n && nbytes > INLINED; m++)
        if (m != net->me)
            LS_TRY(ls__net_send(net, LS__CHANNEL_REST, ls__node_rank(net, m, 0),
                                net->brought + INLINED, nbytes - INLINED));
    LS_TRY(fetch_rests(net));
    LS_TRY(ls__net_wait(net));
    net->theirs[net->me] = net->brought;
    net->nbytes[net->me] = nbytes;
    return LS_OK;
}

ls_status ls__net_trade(ls__net *net, const ls__call *call, ls_status status, size_t nbytes)
{
    if (!ls__net_speaks(net)) return status;
    LS_ASSERT(nbytes <= net->room);
    if (status == LS_OK) return trade(net, call, nbytes);
    say_failed(net, call, status);
    return status;
}

/* The others wait for the first rank longer than it waits for other nodes. */
static ls_status await_first(ls__net *net)
{
    ls_comm *local = net->local;
    int64_t timeout = local->timeout_ns;
    if (timeout != INT64_MAX) local->timeout_ns += 3 * ls__net_grace_ns(net);
    ls_status status = ls__comm_wait(local, 0, &local->lanes[0].progress, local->progress);
    local->timeout_ns = timeout;
    return status;
}

ls_status ls__net_announce(ls__net *net, ls_status status)
{
    ls__verdict *verdict = (ls__verdict *)(void *)net->verdicts.base;
    if (ls__net_speaks(net)) {
        if (status != LS_OK) {
            snprintf(verdict->text, sizeof verdict->text, "%s", ls_error_text());
            verdict->status = status;
        }
        ls__comm_step(net->local);
        return ls__net_failed(net, status);
    }
    ls__comm_step(net->local);
    if (status == LS_OK) status = await_first(net);
    if (status == LS_OK && verdict->status != LS_OK)
        status = ls_fail(verdict->status, "%s", verdict->text);
    return ls__net_failed(net, status);
}

/* Everybody's, in the order of ranks, where all of this node can read it. */
static void lay_out(ls__net *net, size_t nbytes)
{
    for (int r = 0; r < net->whole->size; r++) {
        const ls__node_place *place = ls__place(net, r);
        memcpy(net->shared.base + (size_t)r * nbytes,
               net->theirs[place->node] + (size_t)place->local * nbytes, nbytes);
    }
}

ls_status ls__net_gather(ls__net *net, const ls__call *call, const void *mine, size_t nbytes)
{
    ls_comm *local = net->local;
    LS_ASSERT(nbytes <= net->gather_nbytes);
    if (net->whole->broken != LS_OK) return ls__comm_broken(net->whole);
    if (nbytes > 0) memcpy(ls__stage(net, local->rank), mine, nbytes);
    ls_status status = local->broken != LS_OK ? ls__comm_broken(local)
                                              : ls__comm_gather_inlined(local, call, "", 0);
    if (ls__net_speaks(net)) {
        for (int l = 0; l < local->size && status == LS_OK && nbytes > 0; l++)
            memcpy(net->brought + (size_t)l * nbytes, ls__stage(net, l), nbytes);
        status = ls__net_trade(net, call, status, (size_t)local->size * nbytes);
        for (int m = 0; m < net->n && status == LS_OK; m++)
            if (net->nbytes[m] != (size_t)ls__node_size(net, m) * nbytes)
                status = ls_fail(LS_ERR_INTERNAL, "node %d brings %zu bytes to a meeting", m,
                                 net->nbytes[m]);
        if (status == LS_OK && nbytes > 0) lay_out(net, nbytes);
    }
    return ls__net_announce(net, status);
}

ls_status ls__net_agree(ls__net *net, const ls__call *call, ls_status status)
{
    char text[1024];
    if (status != LS_OK) snprintf(text, sizeof text, "%s", ls_error_text());
    ls_status met = ls__net_gather(net, call, &status, sizeof status);
    if (met != LS_OK) return status != LS_OK ? ls_fail(status, "%s", text) : met;
    if (status != LS_OK) return ls_fail(status, "%s", text);
    for (int r = 0; r < net->whole->size; r++) {
        memcpy(&met, net->shared.base + (size_t)r * sizeof met, sizeof met);
        if (met != LS_OK)
            return ls_fail(met, "rank %d on node %d could not do its part of it; see its output", r,
                           ls__place(net, r)->node);
    }
    return LS_OK;
}
