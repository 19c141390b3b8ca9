/* Collectives over several machines.
 *
 *     to 2 KiB a rank   inside the meeting: everybody gets everything and reduces by itself
 *     anything else     in chunks, several under way at once (net_pipeline.c)
 *
 * Expected: metrics and texts, now and then megabytes of a user's; gradients have their own way. */
#include <string.h>

#include "base/check.h"
#include "comm/net_pipeline.h"

static size_t contributed(const ls__net *net, const ls__call *call)
{
    size_t nbytes = (size_t)call->count * ls_dtype_size(call->type);
    return call->op == LS__OP_REDUCE_SCATTER ? nbytes * (size_t)net->whole->size : nbytes;
}

/* Everything is in `shared`. */
static void finish_gathered(ls__net *net, const ls__call *call, size_t each)
{
    ls_comm *whole = net->whole;
    size_t nbytes = (size_t)call->count * ls_dtype_size(call->type);
    const unsigned char *all = net->shared.base;
    if (nbytes == 0) return;
    if (call->op == LS__OP_BROADCAST) {
        if (call->peer != whole->rank) memcpy(call->out, all + (size_t)call->peer * each, nbytes);
        return;
    }
    if (call->op == LS__OP_ALL_GATHER) {
        memcpy(call->out, all, (size_t)whole->size * nbytes);
        return;
    }
    size_t mine = call->op == LS__OP_REDUCE_SCATTER ? (size_t)whole->rank * nbytes : 0;
    for (int r = 0; r < whole->size; r++) whole->sources[r] = all + (size_t)r * each + mine;
    ls__reduce(whole->kernels, whole->tree, call->type, call->reduce, call->out, whole->sources, 0,
               call->count);
}

ls_status ls__net_collective(ls__net *net, const ls__call *call)
{
    size_t each = call->op == LS__OP_BARRIER ? 0 : contributed(net, call);
    if (each <= net->gather_nbytes) {
        LS_TRY(ls__net_gather(net, call, call->in, each));
        finish_gathered(net, call, each);
    } else {
        ls__net_pipeline p;
        LS_TRY(ls__net_failed(net, ls__net_pipeline_begin(net, call, &p)));
        LS_TRY(ls__net_gather(net, call, NULL, 0));
        LS_TRY(ls__net_failed(net, ls__net_pipeline_run(&p)));
    }
    ls__comm_leave(net->local);
    return LS_OK;
}
