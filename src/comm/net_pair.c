/* Send and receive between ranks of different nodes: each side says what it expects, then the bytes
 * go in one message. Ranks of one node have shared memory between them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "comm/comm_report.h"
#include "comm/net_internal.h"
#include "comm/work.h"

typedef struct letter {
    uint64_t what;
    ls__activity activity;
} letter;

static uint64_t expected(const ls__call *call)
{
    ls__call plain = { .op = LS__OP_SEND, .type = call->type, .count = call->count };
    return ls__call_what(&plain);
}

static ls_status disagree(ls__net *net, const ls__call *call, const letter *mine,
                          const letter *theirs)
{
    char text[1024];
    int first = net->whole->rank, names[2] = { first, call->peer };
    ls__activity each[2] = { mine->activity, theirs->activity };
    ls__activity_own(net->local, &each[0]); /* only now: a place takes long to find */
    each[1].place[LS__PLACE - 1] = '\0';
    ls__activities_text(each, 2, names, 0, text, sizeof text);
    return ls_fail(LS_ERR_MISMATCH,
                   "ranks disagree: %s; count and type must be the same on both sides", text);
}

/* Both sides see that they differ: each sends its place. */
static ls_status exchange_places(ls__net *net, const ls__call *call, letter *mine, letter *theirs)
{
    bool sends = call->op == LS__OP_SEND;
    ls__activity_own(net->local, &mine->activity);
    LS_TRY(ls__net_recv(net, sends ? LS__CHANNEL_TAKER : LS__CHANNEL_SENDER, call->peer, theirs,
                        sizeof *theirs));
    LS_TRY(ls__net_send(net, sends ? LS__CHANNEL_SENDER : LS__CHANNEL_TAKER, call->peer, mine,
                        sizeof *mine));
    LS_TRY(ls__net_wait(net));
    return disagree(net, call, mine, theirs);
}

static ls_status perform(ls__net *net, const ls__call *call)
{
    bool sends = call->op == LS__OP_SEND;
    size_t nbytes = (size_t)call->count * ls_dtype_size(call->type);
    letter mine = { .what = expected(call) }, theirs;
    LS_TRY(ls__net_recv(net, sends ? LS__CHANNEL_TAKER : LS__CHANNEL_SENDER, call->peer, &theirs,
                        sizeof theirs));
    LS_TRY(ls__net_send(net, sends ? LS__CHANNEL_SENDER : LS__CHANNEL_TAKER, call->peer, &mine,
                        sizeof mine));
    LS_TRY(ls__net_wait(net));
    if (theirs.what != mine.what) return exchange_places(net, call, &mine, &theirs);
    if (nbytes == 0) return LS_OK;
    LS_TRY(sends ? ls__net_send(net, LS__CHANNEL_MAIL, call->peer, call->in, nbytes)
                 : ls__net_recv(net, LS__CHANNEL_MAIL, call->peer, call->out, nbytes));
    return ls__net_wait(net);
}

ls_status ls__net_pair(ls__net *net, const ls__call *call)
{
    ls_status status;
    if (ls__place(net, call->peer)->node == net->me) {
        status = ls__pair_run(net->local, call);
        if (status != LS_OK) ls__net_failed(net, status);
        return status;
    }
    ls__comm_note(net->local, call, net->local->seq);
    status = ls__net_failed(net, perform(net, call));
    if (status == LS_OK) ls__comm_leave(net->local);
    return status;
}
