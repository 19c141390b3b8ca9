/* Messages between nodes: a phase of a call starts all of its own, then waits for all.
 *
 * Nobody waits in shared memory while messages of its own are on their way: some engines move bytes
 * only while their rank is inside them. After a failed wait the link is aborted, so that buffers
 * can be given back; the communicator is broken then anyway. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/net_internal.h"

static bool job_ended(void *user)
{
    return ls__shm_poisoned(user, NULL);
}

int64_t ls__net_grace_ns(const ls__net *net)
{
    const int64_t most = 2000000000, half = net->whole->timeout_ns / 2;
    return half < most ? half : most;
}

ls__patience ls__net_patience(const ls__net *net)
{
    int64_t timeout = net->whole->timeout_ns;
    ls__patience patience = { .deadline_ns = INT64_MAX, .ended = job_ended };
    patience.user = net->local->shm;
    if (timeout != INT64_MAX) patience.deadline_ns = ls__now_ns() + timeout + ls__net_grace_ns(net);
    return patience;
}

ls_status ls__net_reserve(ls__net *net, int ntransfers)
{
    LS_ASSERT(net->ntransfers == 0);
    if (ntransfers <= net->capacity) return LS_OK;
    void *grown = ls__realloc(net->transfers, (size_t)ntransfers, sizeof *net->transfers);
    if (!grown) return LS_ERR_MEMORY;
    net->transfers = grown;
    net->capacity = ntransfers;
    return LS_OK;
}

ls_status ls__net_about(const ls__net *net, ls_status status, int peer)
{
    char why[512];
    if (ls__shm_poisoned(net->local->shm, NULL)) return ls__comm_poisoned(net->local);
    strncpy(why, ls_error_text(), sizeof why - 1);
    why[sizeof why - 1] = '\0';
    int node = ls__place(net, peer)->node;
    if (status != LS_ERR_TIMEOUT)
        return ls_fail(status, "the connection to rank %d on node %d failed: %s", peer, node, why);
    return ls_fail(status,
                   "no bytes came from or went to rank %d on node %d within %.3g s, in the middle "
                   "of call %llu; the rank was stopped, or the network between the nodes is gone",
                   peer, node, 1e-9 * (double)net->whole->timeout_ns,
                   (unsigned long long)net->local->seq);
}

static ls_status start(ls__net *net, const ls__transfer *t)
{
    LS_ASSERT(net->ntransfers < net->capacity);
    ls__transfer *slot = &net->transfers[net->ntransfers];
    *slot = *t;
    ls_status status = net->link->start(net->link, slot);
    if (status == LS_OK) net->ntransfers++;
    return status == LS_OK ? LS_OK : ls__net_about(net, status, t->peer);
}

ls_status ls__net_send(ls__net *net, ls__channel channel, int to, const void *data, size_t nbytes)
{
    ls__transfer t = { to, channel, true, (void *)(uintptr_t)data, nbytes, NULL, false };
    return start(net, &t);
}

ls_status ls__net_recv(ls__net *net, ls__channel channel, int from, void *data, size_t nbytes)
{
    ls__transfer t = { from, channel, false, data, nbytes, NULL, false };
    return start(net, &t);
}

ls_status ls__net_failed(ls__net *net, ls_status status)
{
    if (status == LS_OK) return LS_OK;
    net->ntransfers = 0;
    ls__comm_break(net->whole, status);
    net->link->abort(net->link);
    return status;
}

ls_status ls__net_wait_until(ls__net *net, int index, const ls__patience *patience)
{
    ls__transfer *t = &net->transfers[index];
    if (t->done) return LS_OK;
    ls_status status = net->link->wait(net->link, t, patience);
    t->done = status == LS_OK;
    return status;
}

ls_status ls__net_wait_one(ls__net *net, int index)
{
    ls__patience patience = ls__net_patience(net);
    ls_status status = ls__net_wait_until(net, index, &patience);
    return status == LS_OK ? LS_OK : ls__net_about(net, status, net->transfers[index].peer);
}

ls_status ls__net_wait(ls__net *net)
{
    for (int i = 0; i < net->ntransfers; i++) LS_TRY(ls__net_wait_one(net, i));
    net->ntransfers = 0;
    return LS_OK;
}

/* One more step of this node's ranks is done. */
ls_status ls__net_step(ls__net *net)
{
    ls__comm_step(net->local);
    return ls__comm_await_step(net->local, net->local->progress);
}
