/* Long collectives over several machines: in chunks, several of which are under way at once.
 *
 * A chunk is divided among the nodes, and a node's part among its ranks, so that every network
 * carries as much. In the round numbered r a rank
 *
 *     stages   chunk r      copies its contribution to where its node's ranks read it
 *     sends    chunk r-1    its node's partial sums to the owners elsewhere
 *     combines chunk r-2    what came for it, and sends the result to its counterparts
 *     settles  chunk r-3    waits for what is still on its way
 *     fetches  chunk r-4    from where its node's ranks have put it
 *
 * and before it sends, its node's ranks have ended the round before. So while a rank sums or waits,
 * the messages of two more chunks move, and nobody waits for what is begun in the same round: the
 * rounds of nodes cannot wait for each other in a circle. Six slots suffice, because a chunk's slot
 * is taken again in round r+6, when all are known to have left round r+4.
 *
 * On a node with one rank nothing is staged or fetched: messages go from the caller's memory and
 * come to it. A receive must not meet a message of another call, which may have another size; so
 * only one side goes ahead of the call's meeting, which shows that all call the same. With an
 * engine that has a rendezvous (Gloo) receives do, so that data moves at once later; with one that
 * sends short messages eagerly (MPI) those do, and the meeting and the first exchange take one
 * latency together. */
#include "comm/net_pipeline.h"

#include <string.h>

#include "base/check.h"

enum {
    AHEAD = 2,  /* chunks whose receives are begun before their round */
    CHUNKS = 2, /* that many make an overlap; and a chunk is at least that part of a slot */
};

enum { SUMS_IN, SUMS_OUT, SPREAD_IN, SPREAD_OUT };

static unsigned char *own_slot(const ls__net_pipeline *p, unsigned char *base, int64_t k)
{
    return base + (size_t)(k % LS__PIPELINE_SLOTS) * p->net->slot_nbytes;
}

static ls__batch *batch(const ls__net_pipeline *p, int64_t k, int kind)
{
    return &p->net->batches[k % LS__PIPELINE_SLOTS * LS__BATCHES + kind];
}

static int64_t chunk_count(const ls__net_pipeline *p, int64_t k)
{
    int64_t left = p->call->count - k * p->chunk;
    return left < p->chunk ? left : p->chunk;
}

static size_t chunk_nbytes(const ls__net_pipeline *p, int64_t k)
{
    return (size_t)chunk_count(p, k) * p->element;
}

/* Bytes from the start of a (count) array to chunk k. */
static size_t chunk_at(const ls__net_pipeline *p, int64_t k)
{
    return (size_t)(k * p->chunk) * p->element;
}

static unsigned char *shared_slot(const ls__net_pipeline *p, int64_t k)
{
    return own_slot(p, p->net->shared.base, k);
}

/* Where chunk k of the result is put together. */
static unsigned char *result(const ls__net_pipeline *p, int64_t k)
{
    return p->alone ? (unsigned char *)p->call->out + chunk_at(p, k) : shared_slot(p, k);
}

/* Rank r's part of a sum, in elements from the start of a contribution's chunk. */
static ls__part part_of(const ls__net_pipeline *p, int64_t k, int r)
{
    const ls__net *net = p->net;
    const ls__node_place *place = ls__place(net, r);
    int64_t count = chunk_count(p, k);
    if (p->call->op == LS__OP_REDUCE_SCATTER) return (ls__part) { r * p->chunk, count };
    ls__part node = ls__part_of(count, p->element, place->node, net->n);
    ls__part part =
        ls__part_of(node.count, p->element, place->local, ls__node_size(net, place->node));
    part.begin += node.begin;
    return part;
}

/* What the node's local rank l contributes to rank r's part. */
static const unsigned char *contribution(const ls__net_pipeline *p, int64_t k, int l, int r)
{
    ls__part part = part_of(p, k, r);
    const unsigned char *in = p->call->in;
    if (l != p->net->local->rank)
        return own_slot(p, ls__stage(p->net, l), k) + (size_t)part.begin * p->element;
    if (p->call->op == LS__OP_REDUCE_SCATTER)
        return in + (size_t)(r * p->call->count) * p->element + chunk_at(p, k);
    return in + chunk_at(p, k) + (size_t)part.begin * p->element;
}

/* --- a reduction --- */

/* Receives of other nodes' partial sums of this rank's part. */
static ls_status expect_sums(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    ls__part part = part_of(p, k, net->whole->rank);
    size_t nbytes = (size_t)part.count * p->element;
    unsigned char *room = net->partials + (size_t)(k % LS__PIPELINE_SLOTS) * net->partials_nbytes;
    for (int i = 0; i < p->cut->npures && nbytes > 0; i++) {
        if (p->cut->trees[i]) continue;
        int node = ls__place(net, p->cut->pures[i].from)->node;
        LS_TRY(ls__batch_recv(net, batch(p, k, SUMS_IN), LS__CHANNEL_SUM, net->counterparts[node],
                              room, nbytes));
        room += ls__round_up(nbytes, 64);
    }
    return LS_OK;
}

/* This node's partial sums of rank r's part, on their way to it. One contribution goes as it is. */
static ls_status serve(const ls__net_pipeline *p, int64_t k, int r, unsigned char **room)
{
    ls__net *net = p->net;
    ls__part part = part_of(p, k, r);
    size_t nbytes = (size_t)part.count * p->element;
    for (int i = 0; i < p->cut->npures && nbytes > 0; i++) {
        const ls__pure *pure = &p->cut->pures[i];
        if (!p->cut->trees[i]) continue;
        for (int l = pure->from; l < pure->to; l++)
            net->operands[l - pure->from] = contribution(p, k, ls__place(net, l)->local, r);
        const void *sum = net->operands[0];
        if (pure->to - pure->from > 1) {
            sum = *room;
            ls__reduce(net->whole->kernels, p->cut->trees[i], p->call->type, p->call->reduce, *room,
                       net->operands, 0, part.count);
            *room += ls__round_up(nbytes, 64);
        }
        LS_TRY(ls__batch_send(net, batch(p, k, SUMS_OUT), LS__CHANNEL_SUM, r, sum, nbytes));
    }
    return LS_OK;
}

static ls_status send_sums(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    unsigned char *room = net->sums + (size_t)(k % LS__PIPELINE_SLOTS) * net->sums_nbytes;
    for (int i = 0; i < net->nserved; i++) LS_TRY(serve(p, k, net->served[i], &room));
    return LS_OK;
}

/* This rank's part of the sum, where everything for it has come. */
static void reduce_part(const ls__net_pipeline *p, int64_t k, void *out)
{
    ls__net *net = p->net;
    int rank = net->whole->rank, n = 0, came = 0;
    for (int i = 0; i < p->cut->npures; i++) {
        const ls__pure *pure = &p->cut->pures[i];
        for (int l = pure->from; l < pure->to && p->cut->trees[i]; l++)
            net->whole->sources[n++] = contribution(p, k, ls__place(net, l)->local, rank);
        if (!p->cut->trees[i]) net->whole->sources[n++] = batch(p, k, SUMS_IN)->each[came++].data;
    }
    ls__reduce(net->whole->kernels, p->cut->last, p->call->type, p->call->reduce, out,
               net->whole->sources, 0, part_of(p, k, rank).count);
}

/* --- finished parts to all nodes --- */

static ls_status expect_parts(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    for (int i = 0; i < net->nserved; i++) {
        ls__part part = part_of(p, k, net->served[i]);
        if (part.count > 0)
            LS_TRY(ls__batch_recv(net, batch(p, k, SPREAD_IN), LS__CHANNEL_SPREAD, net->served[i],
                                  result(p, k) + (size_t)part.begin * p->element,
                                  (size_t)part.count * p->element));
    }
    return LS_OK;
}

static ls_status spread(const ls__net_pipeline *p, int64_t k, const void *data, size_t nbytes)
{
    ls__net *net = p->net;
    for (int m = 0; m < net->n && nbytes > 0; m++)
        if (m != net->me)
            LS_TRY(ls__batch_send(net, batch(p, k, SPREAD_OUT), LS__CHANNEL_SPREAD,
                                  net->counterparts[m], data, nbytes));
    return LS_OK;
}

static ls_status combine_all_reduce(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    ls__part part = part_of(p, k, net->whole->rank);
    unsigned char *out = result(p, k) + (size_t)part.begin * p->element;
    if (p->alone && !p->early) { /* the results come to where these messages lie */
        LS_TRY(ls__batch_wait(net, batch(p, k, SUMS_OUT)));
        LS_TRY(expect_parts(p, k));
    }
    LS_TRY(ls__batch_wait(net, batch(p, k, SUMS_IN)));
    if (part.count > 0) reduce_part(p, k, out);
    return spread(p, k, out, (size_t)part.count * p->element);
}

static ls_status combine_reduce_scatter(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    if (!p->early) LS_TRY(ls__batch_wait(net, batch(p, k, SUMS_OUT)));
    LS_TRY(ls__batch_wait(net, batch(p, k, SUMS_IN)));
    reduce_part(p, k, (unsigned char *)p->call->out + chunk_at(p, k));
    return LS_OK;
}

/* --- all-gather --- */

/* Where rank r's chunk k comes to. */
static unsigned char *gathered(const ls__net_pipeline *p, int64_t k, int r)
{
    if (!p->alone) return shared_slot(p, k) + (size_t)r * chunk_nbytes(p, k);
    return (unsigned char *)p->call->out + (size_t)(r * p->call->count) * p->element +
           chunk_at(p, k);
}

static ls_status expect_gathered(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    for (int i = 0; i < net->nserved; i++)
        LS_TRY(ls__batch_recv(net, batch(p, k, SPREAD_IN), LS__CHANNEL_SPREAD, net->served[i],
                              gathered(p, k, net->served[i]), chunk_nbytes(p, k)));
    return LS_OK;
}

static ls_status send_gathered(const ls__net_pipeline *p, int64_t k)
{
    const unsigned char *in = (const unsigned char *)p->call->in + chunk_at(p, k);
    return spread(p, k, in, chunk_nbytes(p, k));
}

/* The own part, which needs nobody, and with other ranks here those of all. */
static void fetch_gathered(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    for (int r = 0; r < net->whole->size; r++) {
        const ls__node_place *place = ls__place(net, r);
        unsigned char *to = (unsigned char *)p->call->out +
                            (size_t)(r * p->call->count) * p->element + chunk_at(p, k);
        const unsigned char *from = gathered(p, k, r);
        if (place->node == net->me) from = own_slot(p, ls__stage(net, place->local), k);
        if (r == net->whole->rank) from = (const unsigned char *)p->call->in + chunk_at(p, k);
        if (to != from) memmove(to, from, chunk_nbytes(p, k));
    }
}

/* --- broadcast: a piece to each node, which hands it on to the others --- */

/* The rank of another node than the root's that takes the root's messages. */
static int relay(const ls__net_pipeline *p, int m)
{
    int local = ls__place(p->net, p->call->peer)->local;
    return ls__node_rank(p->net, m, local % ls__node_size(p->net, m));
}

static ls__part piece_of(const ls__net_pipeline *p, int64_t k, int m)
{
    int root = ls__place(p->net, p->call->peer)->node;
    return ls__part_of(chunk_count(p, k), p->element, m - (m > root), p->net->n - 1);
}

static ls_status expect_pieces(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    int root = ls__place(net, p->call->peer)->node;
    if (net->me == root || relay(p, net->me) != net->whole->rank) return LS_OK;
    for (int m = 0; m < net->n; m++) {
        ls__part piece = piece_of(p, k, m);
        bool own = m == net->me;
        if (m != root && piece.count > 0)
            LS_TRY(ls__batch_recv(
                net, batch(p, k, own ? SUMS_IN : SPREAD_IN),
                own ? LS__CHANNEL_SUM : LS__CHANNEL_SPREAD, own ? p->call->peer : relay(p, m),
                result(p, k) + (size_t)piece.begin * p->element, (size_t)piece.count * p->element));
    }
    return LS_OK;
}

static ls_status send_pieces(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    if (p->call->peer != net->whole->rank) return LS_OK;
    const unsigned char *in = (const unsigned char *)p->call->in + chunk_at(p, k);
    for (int m = 0; m < net->n; m++) {
        ls__part piece = piece_of(p, k, m);
        if (m != net->me && piece.count > 0)
            LS_TRY(ls__batch_send(net, batch(p, k, SUMS_OUT), LS__CHANNEL_SUM, relay(p, m),
                                  in + (size_t)piece.begin * p->element,
                                  (size_t)piece.count * p->element));
    }
    return LS_OK;
}

static ls_status hand_on(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    int root = ls__place(net, p->call->peer)->node;
    if (net->me == root || relay(p, net->me) != net->whole->rank) return LS_OK;
    ls__part piece = piece_of(p, k, net->me);
    LS_TRY(ls__batch_wait(net, batch(p, k, SUMS_IN)));
    for (int m = 0; m < net->n; m++)
        if (m != net->me && m != root && piece.count > 0)
            LS_TRY(ls__batch_send(net, batch(p, k, SPREAD_OUT), LS__CHANNEL_SPREAD, relay(p, m),
                                  result(p, k) + (size_t)piece.begin * p->element,
                                  (size_t)piece.count * p->element));
    return LS_OK;
}

/* --- rounds --- */

/* Receives into this rank's own memory, of the chunks before `end`. */
static ls_status expect_until(ls__net_pipeline *p, int64_t end)
{
    for (; p->expected < end && p->expected < p->nchunks; p->expected++) {
        int64_t k = p->expected;
        ls__op op = p->call->op;
        if (op == LS__OP_ALL_REDUCE || op == LS__OP_REDUCE_SCATTER) LS_TRY(expect_sums(p, k));
        if (!p->alone || !p->early) continue;
        if (op == LS__OP_ALL_REDUCE) LS_TRY(expect_parts(p, k));
        if (op == LS__OP_ALL_GATHER) LS_TRY(expect_gathered(p, k));
        if (op == LS__OP_BROADCAST) LS_TRY(expect_pieces(p, k));
    }
    return LS_OK;
}

/* Receives into memory that this node's ranks share. */
static ls_status expect_shared(const ls__net_pipeline *p, int64_t k)
{
    if (p->call->op == LS__OP_ALL_REDUCE) return expect_parts(p, k);
    if (p->call->op == LS__OP_ALL_GATHER) return expect_gathered(p, k);
    return p->call->op == LS__OP_BROADCAST ? expect_pieces(p, k) : LS_OK;
}

static void stage(const ls__net_pipeline *p, int64_t k)
{
    ls__net *net = p->net;
    const unsigned char *in = p->call->in;
    unsigned char *to = own_slot(p, ls__stage(net, net->local->rank), k);
    size_t nbytes = chunk_nbytes(p, k), row = (size_t)p->call->count * p->element;
    switch (p->call->op) {
    case LS__OP_REDUCE_SCATTER:
        for (int r = 0; r < net->whole->size; r++)
            memcpy(to + (size_t)(r * p->chunk) * p->element, in + (size_t)r * row + chunk_at(p, k),
                   nbytes);
        break;
    case LS__OP_BROADCAST:
        if (p->call->peer == net->whole->rank) memcpy(result(p, k), in + chunk_at(p, k), nbytes);
        break;
    default:
        memcpy(to, in + chunk_at(p, k), nbytes);
        break;
    }
}

static ls_status send(const ls__net_pipeline *p, int64_t k)
{
    if (p->call->op == LS__OP_ALL_GATHER) return send_gathered(p, k);
    return p->call->op == LS__OP_BROADCAST ? send_pieces(p, k) : send_sums(p, k);
}

static ls_status combine(const ls__net_pipeline *p, int64_t k)
{
    if (p->call->op == LS__OP_ALL_REDUCE) return combine_all_reduce(p, k);
    if (p->call->op == LS__OP_REDUCE_SCATTER) return combine_reduce_scatter(p, k);
    return p->call->op == LS__OP_BROADCAST ? hand_on(p, k) : LS_OK;
}

static ls_status settle(const ls__net_pipeline *p, int64_t k)
{
    for (int kind = 0; kind < LS__BATCHES; kind++) {
        LS_TRY(ls__batch_wait(p->net, batch(p, k, kind)));
        batch(p, k, kind)->n = 0;
    }
    return LS_OK;
}

static void fetch(const ls__net_pipeline *p, int64_t k)
{
    const ls__call *call = p->call;
    if (call->op == LS__OP_ALL_GATHER) fetch_gathered(p, k);
    if (p->alone || call->op == LS__OP_ALL_GATHER || call->op == LS__OP_REDUCE_SCATTER) return;
    if (call->op == LS__OP_BROADCAST && call->peer == p->net->whole->rank) return;
    memcpy((unsigned char *)call->out + chunk_at(p, k), shared_slot(p, k), chunk_nbytes(p, k));
}

static bool within(const ls__net_pipeline *p, int64_t k)
{
    return k >= 0 && k < p->nchunks;
}

static ls_status run_round(ls__net_pipeline *p, int64_t r, uint64_t base)
{
    LS_TRY(expect_until(p, r + 1 + AHEAD));
    if (within(p, r) && !p->alone) {
        stage(p, r);
        LS_TRY(expect_shared(p, r));
    }
    if (!p->alone) LS_TRY(ls__net_await_step(p->net, base + (uint64_t)r));
    int64_t next = p->alone ? r : r - 1; /* nobody else stages */
    if (within(p, next) && next >= p->sent) LS_TRY(send(p, next));
    if (within(p, r - 4)) fetch(p, r - 4);
    if (within(p, r - 2)) LS_TRY(combine(p, r - 2));
    if (within(p, r - 3)) LS_TRY(settle(p, r - 3));
    if (!p->alone) ls__comm_step(p->net->local);
    return LS_OK;
}

ls_status ls__net_pipeline_run(ls__net_pipeline *p)
{
    uint64_t base = p->net->local->progress;
    int64_t rounds = p->nchunks + 4;
    for (int64_t r = 0; r < rounds; r++) LS_TRY(run_round(p, r, base));
    /* The stages of the last chunks are read in the last round. */
    if (p->alone || p->call->op != LS__OP_ALL_GATHER) return LS_OK;
    return ls__net_await_step(p->net, base + (uint64_t)rounds);
}

/* Elements of `count` in a chunk: the same on every node. */
static int64_t plan_chunk(const ls__net *net, const ls__call *call, size_t element)
{
    size_t rows = call->op == LS__OP_REDUCE_SCATTER || call->op == LS__OP_ALL_GATHER
                      ? (size_t)net->whole->size
                      : 1;
    size_t all = (size_t)call->count * element * rows;
    size_t least = net->slot_nbytes / CHUNKS, nbytes = all / CHUNKS;
    if (least < 64 * rows) least = 64 * rows;
    if (nbytes < least) nbytes = least;
    if (nbytes > net->slot_nbytes) nbytes = net->slot_nbytes;
    return (int64_t)(nbytes / rows / 64 * 64 / element);
}

static bool overlap(const void *a, size_t na, const void *b, size_t nb)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + nb && y < x + na;
}

/* Of the messages of the first chunk that are sent first. */
static size_t longest_message(const ls__net_pipeline *p)
{
    size_t nbytes = chunk_nbytes(p, 0), n = (size_t)p->net->n;
    return p->call->op == LS__OP_ALL_REDUCE ? ls__round_up((nbytes + n - 1) / n, 64) : nbytes;
}

ls_status ls__net_pipeline_begin(ls__net *net, const ls__call *call, ls__net_pipeline *p)
{
    *p = (ls__net_pipeline) { .net = net, .call = call, .element = ls_dtype_size(call->type) };
    size_t nbytes = (size_t)call->count * p->element, size = (size_t)net->whole->size;
    p->cut = call->type == LS_DTYPE_BF16 ? &net->single : &net->merged;
    p->alone = net->local->size == 1;
    p->chunk = plan_chunk(net, call, p->element);
    p->nchunks = (call->count + p->chunk - 1) / p->chunk;
    p->early = true;
    if (call->op == LS__OP_ALL_REDUCE) p->early = !overlap(call->in, nbytes, call->out, nbytes);
    if (call->op == LS__OP_REDUCE_SCATTER)
        p->early = !overlap(call->in, size * nbytes, call->out, nbytes);
    if (net->link->eager == 0) return expect_until(p, 1 + AHEAD);
    if (!p->alone || p->nchunks > 1 || longest_message(p) > net->link->eager) return LS_OK;
    p->sent = 1;
    return send(p, 0);
}

/* Bytes of the largest part that a rank of a node may have in a chunk of a sum. */
static size_t part_most(const ls__net *net, int node)
{
    size_t n = (size_t)net->n, here = (size_t)ls__node_size(net, node);
    size_t all = ls__round_up((net->slot_nbytes + n - 1) / n, 64);
    size_t part = ls__round_up((all + here - 1) / here, 64);
    size_t row = ls__round_up(net->slot_nbytes / (size_t)net->whole->size, 64);
    return part > row ? part : row;
}

void ls__net_pipeline_rooms(ls__net *net, size_t *sums, size_t *partials)
{
    size_t merged = 0, served = 0;
    for (int i = 0; i < net->merged.npures; i++)
        merged += net->merged.trees[i] && net->merged.pures[i].to - net->merged.pures[i].from > 1;
    for (int i = 0; i < net->nserved; i++)
        served += part_most(net, ls__place(net, net->served[i])->node);
    *sums = merged * served;
    *partials = (size_t)(net->whole->size - net->local->size) * part_most(net, net->me);
}
