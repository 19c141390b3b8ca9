/* Messages between nodes: a phase of a call starts all of its own, then waits for all.
 *
 * Some engines move bytes only while their rank is inside them: so who waits in shared memory while
 * messages of its own are on their way looks after them. After a failed wait the link is aborted, so
 * that buffers can be given back; the communicator is broken then anyway. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/net_internal.h"

enum { LOOK_EVERY = 64 }; /* polls between looks at the clock */

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

ls_status ls__batch_reserve(ls__batch *batch, int ntransfers)
{
    LS_ASSERT(batch->n == 0);
    if (ntransfers <= batch->capacity) return LS_OK;
    void *grown = ls__realloc(batch->each, (size_t)ntransfers, sizeof *batch->each);
    if (!grown) return LS_ERR_MEMORY;
    batch->each = grown;
    batch->capacity = ntransfers;
    return LS_OK;
}

ls_status ls__net_reserve(ls__net *net, int ntransfers)
{
    return ls__batch_reserve(&net->now, ntransfers);
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

static ls_status start(ls__net *net, ls__batch *batch, const ls__transfer *t)
{
    LS_ASSERT(batch->n < batch->capacity);
    ls__transfer *slot = &batch->each[batch->n];
    *slot = *t;
    ls_status status = net->link->start(net->link, slot);
    if (status == LS_OK) batch->n++;
    return status == LS_OK ? LS_OK : ls__net_about(net, status, t->peer);
}

ls_status ls__batch_send(ls__net *net, ls__batch *batch, ls__channel channel, int to,
                         const void *data, size_t nbytes)
{
    ls__transfer t = { to, channel, true, (void *)(uintptr_t)data, nbytes, NULL, false };
    return start(net, batch, &t);
}

ls_status ls__batch_recv(ls__net *net, ls__batch *batch, ls__channel channel, int from, void *data,
                         size_t nbytes)
{
    ls__transfer t = { from, channel, false, data, nbytes, NULL, false };
    return start(net, batch, &t);
}

ls_status ls__net_send(ls__net *net, ls__channel channel, int to, const void *data, size_t nbytes)
{
    return ls__batch_send(net, &net->now, channel, to, data, nbytes);
}

ls_status ls__net_recv(ls__net *net, ls__channel channel, int from, void *data, size_t nbytes)
{
    return ls__batch_recv(net, &net->now, channel, from, data, nbytes);
}

ls_status ls__net_failed(ls__net *net, ls_status status)
{
    if (status == LS_OK) return LS_OK;
    net->now.n = 0;
    ls__comm_break(net->whole, status);
    net->link->abort(net->link);
    return status;
}

static ls_status wait_until(ls__net *net, ls__transfer *t, const ls__patience *patience)
{
    if (t->done) return LS_OK;
    ls_status status = net->link->wait(net->link, t, patience);
    t->done = status == LS_OK;
    return status;
}

ls_status ls__net_wait_until(ls__net *net, int index, const ls__patience *patience)
{
    return wait_until(net, &net->now.each[index], patience);
}

ls_status ls__batch_wait(ls__net *net, ls__batch *batch)
{
    for (int i = 0; i < batch->n; i++) {
        if (batch->each[i].done) continue;
        ls__patience patience = ls__net_patience(net);
        ls_status status = wait_until(net, &batch->each[i], &patience);
        if (status != LS_OK) return ls__net_about(net, status, batch->each[i].peer);
    }
    return LS_OK;
}

ls_status ls__net_wait(ls__net *net)
{
    LS_TRY(ls__batch_wait(net, &net->now));
    net->now.n = 0;
    return LS_OK;
}

/* Whether the node's ranks have made that many steps; *behind: one that has not. */
static bool stepped(const ls_comm *local, uint64_t progress, int *behind)
{
    for (; *behind < local->size; ++*behind)
        if (atomic_load_explicit(&local->lanes[*behind].progress, memory_order_acquire) < progress)
            return false;
    return true;
}

/* Where messages move only inside the engine, a rank that waits for its neighbours looks after it.
 * A wait that is in vain is left to the communicator, which finds out why. */
ls_status ls__net_await_step(ls__net *net, uint64_t progress)
{
    ls_comm *local = net->local;
    int behind = 0;
    if (!net->link->progress) return ls__comm_await_step(local, progress);
    int64_t deadline =
        local->timeout_ns == INT64_MAX ? INT64_MAX : ls__now_ns() + local->timeout_ns;
    for (int64_t polls = 1; !stepped(local, progress, &behind); polls++) {
        net->link->progress(net->link, polls);
        if (polls % LOOK_EVERY != 0) continue;
        if (ls__shm_poisoned(local->shm, NULL) || ls__now_ns() >= deadline) break;
    }
    return ls__comm_await_step(local, progress);
}

/* One more step of this node's ranks is done. */
ls_status ls__net_step(ls__net *net)
{
    ls__comm_step(net->local);
    return ls__comm_await_step(net->local, net->local->progress);
}
