/* The public collectives. Each notes the address it was called from before anything else, which is
 * why they are functions and not one function with a wrapper: a report names the line of the
 * user's program. */
#include "base/check.h"
#include "comm/work.h"

#define SITE __builtin_return_address(0)

ls_status ls_comm_all_reduce(ls_comm *comm, const void *in, void *out, int64_t count, ls_dtype type,
                             ls_reduce op)
{
    ls__call call = { LS__OP_ALL_REDUCE, type, op, 0, count, in, out, SITE };
    return ls__call_run(comm, &call);
}

ls_status ls_comm_all_reduce_start(ls_comm *comm, const void *in, void *out, int64_t count,
                                   ls_dtype type, ls_reduce op, ls_work **work)
{
    ls__call call = { LS__OP_ALL_REDUCE, type, op, 0, count, in, out, SITE };
    return ls__call_start(comm, &call, work);
}

ls_status ls_comm_reduce_scatter(ls_comm *comm, const void *in, void *out, int64_t count,
                                 ls_dtype type, ls_reduce op)
{
    ls__call call = { LS__OP_REDUCE_SCATTER, type, op, 0, count, in, out, SITE };
    return ls__call_run(comm, &call);
}

ls_status ls_comm_reduce_scatter_start(ls_comm *comm, const void *in, void *out, int64_t count,
                                       ls_dtype type, ls_reduce op, ls_work **work)
{
    ls__call call = { LS__OP_REDUCE_SCATTER, type, op, 0, count, in, out, SITE };
    return ls__call_start(comm, &call, work);
}

ls_status ls_comm_all_gather(ls_comm *comm, const void *in, void *out, int64_t count, ls_dtype type)
{
    ls__call call = { LS__OP_ALL_GATHER, type, LS_REDUCE_SUM, 0, count, in, out, SITE };
    return ls__call_run(comm, &call);
}

ls_status ls_comm_all_gather_start(ls_comm *comm, const void *in, void *out, int64_t count,
                                   ls_dtype type, ls_work **work)
{
    ls__call call = { LS__OP_ALL_GATHER, type, LS_REDUCE_SUM, 0, count, in, out, SITE };
    return ls__call_start(comm, &call, work);
}

ls_status ls_comm_broadcast(ls_comm *comm, void *data, int64_t count, ls_dtype type, int root)
{
    ls__call call = { LS__OP_BROADCAST, type, LS_REDUCE_SUM, root, count, data, data, SITE };
    return ls__call_run(comm, &call);
}

ls_status ls_comm_broadcast_start(ls_comm *comm, void *data, int64_t count, ls_dtype type, int root,
                                  ls_work **work)
{
    ls__call call = { LS__OP_BROADCAST, type, LS_REDUCE_SUM, root, count, data, data, SITE };
    return ls__call_start(comm, &call, work);
}

ls_status ls_comm_barrier(ls_comm *comm)
{
    ls__call call = { .op = LS__OP_BARRIER, .site = SITE };
    return ls__call_run(comm, &call);
}

ls_status ls_comm_send(ls_comm *comm, const void *data, int64_t count, ls_dtype type, int to)
{
    ls__call call = { LS__OP_SEND, type, LS_REDUCE_SUM, to, count, data, (void *)data, SITE };
    return ls__call_pair(comm, &call);
}

ls_status ls_comm_recv(ls_comm *comm, void *data, int64_t count, ls_dtype type, int from)
{
    ls__call call = { LS__OP_RECV, type, LS_REDUCE_SUM, from, count, data, data, SITE };
    return ls__call_pair(comm, &call);
}
