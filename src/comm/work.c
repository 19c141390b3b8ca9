/* Calls, at once or in two halves.
 *
 * On shared memory there is no other engine that could move bytes while this thread computes, so a
 * started call is one that has been published: peers that wait for it find its input ready. The
 * rest happens in its wait. Only the oldest work is published; a later one is when its turn comes,
 * because the two heads of a rank tell two calls apart, not three. */
#include "comm/work.h"

#include "base/check.h"
#include "base/memory.h"
#include "comm/collective.h"

struct ls_work {
    ls_comm *comm;
    ls__call call;
    ls_work *next;
    bool begun, finished;
    ls_status status; /* when finished */
};

#define COUNT_MAX ((INT64_C(1) << 42) - 1) /* what 64 bits of a call's description leave */

ls_status ls__call_check(ls_comm *comm, const ls__call *call)
{
    if (comm->broken != LS_OK) return ls__comm_broken(comm);
    if (call->count < 0 || call->count > COUNT_MAX)
        return ls_fail(LS_ERR_ARG, "a count of %lld elements", (long long)call->count);
    if (ls_dtype_size(call->type) == 0)
        return ls_fail(LS_ERR_ARG, "%d is no element type", (int)call->type);
    if ((unsigned)call->reduce > LS_REDUCE_MAX)
        return ls_fail(LS_ERR_ARG, "%d is no reduction", (int)call->reduce);
    if (call->peer < 0 || call->peer >= comm->size)
        return ls_fail(LS_ERR_ARG, "rank %d is not in [0, %d)", call->peer, comm->size);
    if (call->op != LS__OP_BARRIER && call->count > 0 && (!call->in || !call->out))
        return ls_fail(LS_ERR_ARG, "a NULL buffer for %lld elements", (long long)call->count);
    return LS_OK;
}

static ls_status finish(ls_comm *comm, const ls__call *call)
{
    ls_status status = ls__collective_finish(comm, call);
    if (status == LS_OK) ls__comm_leave(comm);
    return status;
}

/* Takes the oldest work from the queue and performs it. */
static void finish_oldest(ls_comm *comm)
{
    ls_work *work = comm->first;
    comm->first = work->next;
    if (!comm->first) comm->last = &comm->first;
    work->status = comm->broken != LS_OK ? comm->broken : LS_OK;
    if (work->status == LS_OK && !work->begun)
        work->status = ls__collective_begin(comm, &work->call);
    if (work->status == LS_OK) work->status = finish(comm, &work->call);
    work->finished = true;
}

ls_status ls__works_finish(ls_comm *comm)
{
    while (comm->first) finish_oldest(comm);
    return comm->broken == LS_OK ? LS_OK : ls__comm_broken(comm);
}

ls_status ls__call_run(ls_comm *comm, const ls__call *call)
{
    LS_TRY(ls__call_check(comm, call));
    if (comm->first) LS_TRY(ls__works_finish(comm));
    LS_TRY(ls__collective_begin(comm, call));
    return finish(comm, call);
}

ls_status ls__call_start(ls_comm *comm, const ls__call *call, ls_work **out)
{
    *out = NULL;
    LS_TRY(ls__call_check(comm, call));
    ls_work *work = ls__alloc(1, sizeof *work);
    if (!work) return LS_ERR_MEMORY;
    *work = (ls_work) { .comm = comm, .call = *call };
    if (!comm->first) {
        ls_status status = ls__collective_begin(comm, call);
        if (status != LS_OK) {
            ls__free(work);
            return status;
        }
        work->begun = true;
    }
    *comm->last = work;
    comm->last = &work->next;
    *out = work;
    return LS_OK;
}

ls_status ls_work_wait(ls_work *work)
{
    if (!work) return ls_fail(LS_ERR_ARG, "no work to wait for");
    ls_comm *comm = work->comm;
    while (!work->finished) finish_oldest(comm);
    ls_status status = work->status;
    ls__free(work);
    return status == LS_OK ? LS_OK : ls__comm_broken(comm);
}

void ls__works_free(ls_comm *comm)
{
    for (ls_work *work = comm->first, *next; work; work = next) {
        next = work->next;
        ls__free(work);
    }
}
