/* Roots of several machines, as their threads see each other. Rank 0's root (the head) has the store
 * and counts signals; each other root has one connection to it. An end is told to the head, and by it to
 * all; a connection that ends without DONE, or is silent for some seconds, is a machine that is lost.
 * Expected: up to some thousand machines. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/end_frame.h"
#include "world/root_state.h"

static const double beat_seconds = LS__BEAT_MS * 1e-3;
static const double silent_seconds = 5.0; /* docs/starting-ranks.md says so */
static const double ack_seconds = 2.0;

typedef struct ls__root_node {
    struct ls__root_node *next;
    int root, pid;
    bool done;
    char host[64];
} ls__root_node;

void ls__root_nodes_free(ls__local_root *root)
{
    for (ls__root_node *n = root->nodes; n;) {
        ls__root_node *next = n->next;
        ls__free(n);
        n = next;
    }
    root->nodes = NULL;
    if (root->wake_fd >= 0) close(root->wake_fd);
    if (root->uplink_fd >= 0) close(root->uplink_fd);
    root->wake_fd = root->uplink_fd = -1;
}

static ls__root_node *node_of(ls__local_root *root, int rank)
{
    for (ls__root_node *n = root->nodes; n; n = n->next)
        if (n->root == rank) return n;
    return NULL;
}

void ls__root_node_joined(void *user, int rank, const char *host, int pid)
{
    ls__local_root *root = user;
    ls__root_node *n = ls__alloc(1, sizeof *n);
    if (!n) return; /* its end will be that of a stranger */
    *n = (ls__root_node) { .next = root->nodes, .root = rank, .pid = pid };
    snprintf(n->host, sizeof n->host, "%.63s", host);
    ls__clean_text(n->host);
    root->nodes = n;
    ls__server_name_host(root->job.server, rank, n->host);
}

static void send_end(ls__local_root *root)
{
    char value[LS__END_FRAME_VALUE];
    ls__frame frame;
    ls__end_frame(&root->job.end, value, &frame);
    if (ls__root_is_head(root))
        ls__server_send_nodes(root->job.server, &frame);
    else
        ls__server_send_up(root->job.server, &frame);
}

/* An end from another machine: this one's ranks have to end as well. */
static void take_end(ls__local_root *root, const ls__frame *frame)
{
    ls__job *job = &root->job;
    ls__end end;
    if (ls__end_frame_read(frame, job->size, &end) != LS_OK) return;
    bool asked = end.kind == LS__END_SECOND || end.kind == LS__END_GRACE_OVER;
    if (asked && !ls__root_is_head(root) && !job->failing) {
        job->end = end;
        job->stop_now = true;
        ls__shm_poison(job->shm, -1);
    } else if (!asked) {
        ls__job_fail(job, &end);
    }
    if (!ls__root_is_head(root)) root->told_nodes = true; /* who told it knows it */
}

static void node_done(ls__local_root *root, int rank, const ls__frame *frame)
{
    ls__root_node *n = node_of(root, rank);
    if (n) n->done = true;
    root->job.ranks[rank].goodbye_code = (int)(frame->number & 0xff);
    ls__server_end_node(root->job.server, rank, &(ls__frame) { .type = LS__FRAME_DONE });
}

void ls__root_node_frame(void *user, int rank, const ls__frame *frame)
{
    ls__local_root *root = user;
    bool head = ls__root_is_head(root);
    if (frame->type == LS__FRAME_ENDED) {
        take_end(root, frame);
    } else if (frame->type == LS__FRAME_SIGNAL && head) {
        ls__job_request_stop(&root->job, (int)(frame->number & 0x7f));
    } else if (frame->type == LS__FRAME_CHECKPOINT && head) {
        ls__job_frame(&root->job, rank, frame);
    } else if (frame->type == LS__FRAME_JOINED && head) {
        ls__root_node *n = node_of(root, rank);
        if (n && frame->number >= 0 && frame->number < root->job.size)
            ls__server_name_host(root->job.server, (int)frame->number, n->host);
    } else if (frame->type == LS__FRAME_STOP && !head) {
        ls__job_request_stop(&root->job, (int)(frame->number & 0x7f));
    } else if (frame->type == LS__FRAME_DONE) {
        if (head)
            node_done(root, rank, frame);
        else
            root->dismissed = true;
    }
}

void ls__root_node_closed(void *user, int rank)
{
    ls__local_root *root = user;
    ls__job *job = &root->job;
    ls__root_node *n = rank >= 0 ? node_of(root, rank) : NULL;
    if (rank < 0) root->uplink_lost = true;
    if (n ? n->done : root->done) return;
    ls__end end = { .kind = LS__END_LOST,
                    .rank = rank >= 0 ? rank : 0,
                    .pid = n ? n->pid : 0,
                    .status = LS_ERR_PEER,
                    .joining = job->njoined < job->size,
                    .step_told = -1 };
    snprintf(end.host, sizeof end.host, "%.63s", n ? n->host : root->place.address);
    ls__job_fail(job, &end);
}

bool ls__root_pass_on(ls__local_root *root, const ls__frame *frame)
{
    if (!ls__root_several(root) || ls__root_is_head(root)) return false;
    bool signal = frame->type == LS__FRAME_SIGNAL;
    if (signal || frame->type == LS__FRAME_CHECKPOINT) ls__server_send_up(root->job.server, frame);
    return signal;
}

/* A root that was stopped itself has heard nobody meanwhile, which says nothing of them. */
static void listen_for_beats(ls__local_root *root, double now)
{
    ls__job *job = &root->job;
    double limit = silent_seconds;
    int rank;
    if (root->launch.timeout_ms > 0 && root->launch.timeout_ms * 1e-3 < limit)
        limit = root->launch.timeout_ms * 1e-3;
    if (limit < 2 * beat_seconds) limit = 2 * beat_seconds;
    bool slept = now - root->last_look > limit * 0.75;
    root->last_look = now;
    if (slept) {
        ls__server_forgive_silence(job->server);
        return;
    }
    if (job->failing || job->stop_now || !ls__server_silent(job->server, limit, &rank)) return;
    ls__root_node *n = rank >= 0 ? node_of(root, rank) : NULL;
    if (n && n->done) return;
    ls__end end = { .kind = LS__END_SILENT,
                    .rank = rank >= 0 ? rank : 0,
                    .status = LS_ERR_PEER,
                    .grace = limit,
                    .step_told = -1 };
    snprintf(end.host, sizeof end.host, "%.63s", n ? n->host : root->place.address);
    ls__job_fail(job, &end);
}

static void take_uplink(ls__local_root *root)
{
    uint64_t count;
    if (read(root->wake_fd, &count, sizeof count) < 0) return; /* nothing is new */
    pthread_mutex_lock(&root->lock);
    int fd = root->uplink_fd;
    root->uplink_fd = -1;
    pthread_mutex_unlock(&root->lock);
    if (fd >= 0 && ls__server_set_uplink(root->job.server, fd) != LS_OK)
        ls__log(LS__LOG_ERROR, "%s", ls_error_text());
}

static int first_code(const ls__job *job)
{
    for (int r = 0; r < job->size; r++)
        if (job->ranks[r].goodbye_code != 0) return job->ranks[r].goodbye_code;
    return 0;
}

void ls__root_nodes_round(ls__local_root *root)
{
    ls__job *job = &root->job;
    if (!ls__root_several(root)) return;
    bool head = ls__root_is_head(root);
    double now = ls__now();
    take_uplink(root);
    if (now - root->last_beat >= beat_seconds) {
        root->last_beat = now;
        ls__frame beat = { .type = LS__FRAME_BEAT };
        if (head)
            ls__server_send_nodes(job->server, &beat);
        else
            ls__server_send_up(job->server, &beat);
    }
    listen_for_beats(root, now);
    if (head && job->stop_signal && !root->told_stop) {
        root->told_stop = true;
        ls__server_send_nodes(job->server,
                              &(ls__frame) { .type = LS__FRAME_STOP, .number = job->stop_signal });
    }
    if ((job->failing || job->stop_now) && !root->told_nodes) {
        root->told_nodes = true;
        send_end(root);
    }
    bool left = root->nleft >= root->place.local_size;
    if (!head && left && !root->done && !job->failing && !job->stop_now) {
        root->done = true;
        root->done_at = now;
        ls__server_send_up(job->server,
                           &(ls__frame) { .type = LS__FRAME_DONE, .number = first_code(job) });
    }
}

bool ls__root_nodes_pending(ls__local_root *root)
{
    const ls__job *job = &root->job;
    if (!ls__root_several(root) || job->failing || job->stop_now) return false;
    if (ls__root_is_head(root)) {
        for (const ls__root_node *n = root->nodes; n; n = n->next)
            if (!n->done) return true;
        return false;
    }
    if (root->uplink_lost || root->dismissed) return false;
    return !root->done || ls__now() - root->done_at < ack_seconds;
}
