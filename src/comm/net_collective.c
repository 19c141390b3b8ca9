/* Collectives over several machines.
 *
 *     to 2 KiB a rank   inside the meeting: everybody gets everything and reduces by itself
 *     anything else     in chunks that pass through the ranks' stages in shared memory
 *
 * A chunk of a reduction is divided among all ranks. A rank sums the part of each rank it serves
 * from its node's stages and sends that; it finishes its own part from its node's stages and what
 * comes from its counterparts. Expected: metrics and texts; gradients have their own way. */
#include <string.h>

#include "base/check.h"
#include "comm/collective.h"
#include "comm/net_internal.h"

typedef struct chunk {
    ls__net *net;
    const ls__call *call;
    size_t element;
    int64_t at, count; /* elements of `count` */
} chunk;

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

/* Rank r's part of the chunk that every rank has staged. */
static ls__part part_of(const chunk *c, int r)
{
    if (c->call->op == LS__OP_REDUCE_SCATTER) return (ls__part) { r * c->count, c->count };
    return ls__part_of(c->count, c->element, r, c->net->whole->size);
}

static const struct ls__cut *cut_of(const chunk *c)
{
    return c->call->type == LS_DTYPE_BF16 ? &c->net->single : &c->net->merged;
}

/* This node's partial sums of rank r's part, on their way to it. */
static ls_status serve(const chunk *c, int r, unsigned char **room)
{
    ls__net *net = c->net;
    const struct ls__cut *cut = cut_of(c);
    ls__part part = part_of(c, r);
    size_t at = (size_t)part.begin * c->element, nbytes = (size_t)part.count * c->element;
    for (int i = 0; i < cut->npures && nbytes > 0; i++) {
        const ls__pure *pure = &cut->pures[i];
        if (!cut->trees[i]) continue;
        for (int k = pure->from; k < pure->to; k++)
            net->operands[k - pure->from] = ls__stage(net, ls__place(net, k)->local) + at;
        ls__reduce(net->whole->kernels, cut->trees[i], c->call->type, c->call->reduce, *room,
                   net->operands, 0, part.count);
        LS_TRY(ls__net_send(net, LS__CHANNEL_SUM, r, *room, nbytes));
        *room += ls__round_up(nbytes, 64);
    }
    return LS_OK;
}

/* The operands of this rank's own part: its node's stages, and what its counterparts will send. */
static ls_status collect(const chunk *c, ls__part part)
{
    ls__net *net = c->net;
    const struct ls__cut *cut = cut_of(c);
    size_t at = (size_t)part.begin * c->element, nbytes = (size_t)part.count * c->element;
    unsigned char *room = net->partials;
    int n = 0;
    for (int i = 0; i < cut->npures && nbytes > 0; i++) {
        const ls__pure *pure = &cut->pures[i];
        for (int k = pure->from; k < pure->to && cut->trees[i]; k++)
            net->whole->sources[n++] = ls__stage(net, ls__place(net, k)->local) + at;
        if (cut->trees[i]) continue;
        int node = ls__place(net, pure->from)->node;
        LS_TRY(ls__net_recv(net, LS__CHANNEL_SUM, net->counterparts[node], room, nbytes));
        net->whole->sources[n++] = room;
        room += ls__round_up(nbytes, 64);
    }
    return LS_OK;
}

/* This rank's part of the sum into out. */
static ls_status reduce_part(const chunk *c, void *out)
{
    ls__net *net = c->net;
    ls__part part = part_of(c, net->whole->rank);
    unsigned char *room = net->sums;
    LS_TRY(collect(c, part));
    for (int i = 0; i < net->nserved; i++) LS_TRY(serve(c, net->served[i], &room));
    LS_TRY(ls__net_wait(net));
    if (part.count > 0)
        ls__reduce(net->whole->kernels, cut_of(c)->last, c->call->type, c->call->reduce, out,
                   net->whole->sources, 0, part.count);
    return LS_OK;
}

/* All parts of the sum into `shared` of every node. */
static ls_status spread_parts(const chunk *c)
{
    ls__net *net = c->net;
    ls__part part = part_of(c, net->whole->rank);
    for (int i = 0; i < net->nserved; i++) {
        ls__part theirs = part_of(c, net->served[i]);
        if (theirs.count > 0)
            LS_TRY(ls__net_recv(net, LS__CHANNEL_SPREAD, net->served[i],
                                net->shared.base + (size_t)theirs.begin * c->element,
                                (size_t)theirs.count * c->element));
    }
    for (int m = 0; m < net->n; m++)
        if (m != net->me && part.count > 0)
            LS_TRY(ls__net_send(net, LS__CHANNEL_SPREAD, net->counterparts[m],
                                net->shared.base + (size_t)part.begin * c->element,
                                (size_t)part.count * c->element));
    return ls__net_wait(net);
}

static ls_status all_reduce_chunk(const chunk *c)
{
    ls__net *net = c->net;
    size_t at = (size_t)c->at * c->element, nbytes = (size_t)c->count * c->element;
    ls__part part = part_of(c, net->whole->rank);
    memcpy(ls__stage(net, net->local->rank), (const char *)c->call->in + at, nbytes);
    LS_TRY(ls__net_step(net));
    LS_TRY(reduce_part(c, net->shared.base + (size_t)part.begin * c->element));
    LS_TRY(spread_parts(c));
    LS_TRY(ls__net_step(net));
    memcpy((char *)c->call->out + at, net->shared.base, nbytes);
    return ls__net_step(net);
}

static ls_status reduce_scatter_chunk(const chunk *c)
{
    ls__net *net = c->net;
    size_t nbytes = (size_t)c->count * c->element;
    unsigned char *stage = ls__stage(net, net->local->rank);
    for (int r = 0; r < net->whole->size; r++)
        memcpy(stage + (size_t)r * nbytes,
               (const char *)c->call->in + (size_t)(r * c->call->count + c->at) * c->element,
               nbytes);
    LS_TRY(ls__net_step(net));
    LS_TRY(reduce_part(c, (char *)c->call->out + (size_t)c->at * c->element));
    return ls__net_step(net);
}

static ls_status all_gather_chunk(const chunk *c)
{
    ls__net *net = c->net;
    size_t at = (size_t)c->at * c->element, nbytes = (size_t)c->count * c->element;
    unsigned char *stage = ls__stage(net, net->local->rank);
    memcpy(stage, (const char *)c->call->in + at, nbytes);
    for (int i = 0; i < net->nserved; i++)
        LS_TRY(ls__net_recv(net, LS__CHANNEL_SPREAD, net->served[i],
                            net->shared.base + (size_t)net->served[i] * nbytes, nbytes));
    for (int m = 0; m < net->n; m++)
        if (m != net->me)
            LS_TRY(ls__net_send(net, LS__CHANNEL_SPREAD, net->counterparts[m], stage, nbytes));
    LS_TRY(ls__net_wait(net));
    LS_TRY(ls__net_step(net));
    for (int r = 0; r < net->whole->size; r++) {
        const ls__node_place *place = ls__place(net, r);
        const unsigned char *from = place->node == net->me ? ls__stage(net, place->local)
                                                           : net->shared.base + (size_t)r * nbytes;
        memcpy((char *)c->call->out + (size_t)(r * c->call->count + c->at) * c->element, from,
               nbytes);
    }
    return ls__net_step(net);
}

static ls_status broadcast_chunk(const chunk *c)
{
    ls__net *net = c->net;
    int root = c->call->peer, node = ls__place(net, root)->node;
    size_t at = (size_t)c->at * c->element, nbytes = (size_t)c->count * c->element;
    bool is_root = root == net->whole->rank;
    if (is_root) memcpy(net->shared.base, (const char *)c->call->in + at, nbytes);
    for (int m = 0; m < net->n && is_root; m++)
        if (m != net->me)
            LS_TRY(ls__net_send(net, LS__CHANNEL_SPREAD, net->counterparts[m], net->shared.base,
                                nbytes));
    int counterpart = ls__place(net, root)->local % net->local->size;
    if (node != net->me && counterpart == net->local->rank)
        LS_TRY(ls__net_recv(net, LS__CHANNEL_SPREAD, root, net->shared.base, nbytes));
    LS_TRY(ls__net_wait(net));
    LS_TRY(ls__net_step(net));
    if (!is_root) memcpy((char *)c->call->out + at, net->shared.base, nbytes);
    return ls__net_step(net);
}

/* Elements of `count` in a chunk. */
static int64_t chunk_count(const ls__net *net, const ls__call *call, size_t element)
{
    size_t size = (size_t)net->whole->size, most = net->stage_nbytes;
    if (call->op == LS__OP_REDUCE_SCATTER) most /= size;
    if (call->op == LS__OP_ALL_GATHER && most > net->shared_nbytes / size)
        most = net->shared_nbytes / size;
    return (int64_t)(most / element);
}

static ls_status run_chunks(ls__net *net, const ls__call *call)
{
    chunk c = { .net = net, .call = call, .element = ls_dtype_size(call->type) };
    int64_t most = chunk_count(net, call, c.element);
    for (c.at = 0; c.at < call->count; c.at += c.count) {
        c.count = call->count - c.at < most ? call->count - c.at : most;
        switch (call->op) {
        case LS__OP_ALL_REDUCE:
            LS_TRY(all_reduce_chunk(&c));
            break;
        case LS__OP_REDUCE_SCATTER:
            LS_TRY(reduce_scatter_chunk(&c));
            break;
        case LS__OP_ALL_GATHER:
            LS_TRY(all_gather_chunk(&c));
            break;
        default:
            LS_TRY(broadcast_chunk(&c));
            break;
        }
    }
    return LS_OK;
}

ls_status ls__net_collective(ls__net *net, const ls__call *call)
{
    size_t each = call->op == LS__OP_BARRIER ? 0 : contributed(net, call);
    if (each <= net->gather_nbytes) {
        LS_TRY(ls__net_gather(net, call, call->in, each));
        finish_gathered(net, call, each);
    } else {
        LS_TRY(ls__net_gather(net, call, NULL, 0));
        LS_TRY(ls__net_failed(net, run_chunks(net, call)));
    }
    ls__comm_leave(net->local);
    return LS_OK;
}
