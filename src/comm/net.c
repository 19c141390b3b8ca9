/* Communicators over several machines: made and taken apart.
 *
 * Everything a call needs is allocated here, on all nodes or on none. */
#include "comm/net_pipeline.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

enum {
    TIMEOUT_MS = 300000,
    SLOT_ARENAS = 8,
    CHUNK_MOST = 8 << 20, /* bytes of a chunk where every node has one rank */
};

/* Lists each node's ranks by local rank. */
static ls_status list_ranks(ls__net *net, const ls__comm_nodes_options *o)
{
    int size = o->size;
    for (int r = 0; r < size; r++) {
        if (o->places[r].node < 0 || o->places[r].node >= size)
            return ls_fail(LS_ERR_ARG, "rank %d is on node %d", r, o->places[r].node);
        if (o->places[r].node >= net->n) net->n = o->places[r].node + 1;
    }
    net->places = ls__alloc((size_t)size, sizeof *net->places);
    net->first = ls__alloc((size_t)net->n + 1, sizeof *net->first);
    net->ranks = ls__alloc((size_t)size, sizeof *net->ranks);
    if (!net->places || !net->first || !net->ranks) return LS_ERR_MEMORY;
    memcpy(net->places, o->places, (size_t)size * sizeof *net->places);
    for (int r = 0; r < size; r++) net->first[net->places[r].node + 1]++;
    for (int m = 0; m < net->n; m++) net->first[m + 1] += net->first[m];
    for (int r = 0; r < size; r++) net->ranks[r] = -1;
    for (int r = 0; r < size; r++) {
        const ls__node_place *place = &net->places[r];
        bool fits = place->local >= 0 && place->local < ls__node_size(net, place->node);
        int at = fits ? net->first[place->node] + place->local : 0;
        if (!fits || net->ranks[at] >= 0)
            return ls_fail(LS_ERR_ARG, "rank %d is local rank %d of the %d on node %d", r,
                           place->local, ls__node_size(net, place->node), place->node);
        net->ranks[at] = r;
    }
    net->me = net->places[o->rank].node;
    return LS_OK;
}

static ls_status list_counterparts(ls__net *net, const ls__comm_nodes_options *o)
{
    int local = net->places[o->rank].local, here = ls__node_size(net, net->me);
    net->counterparts = ls__alloc((size_t)net->n, sizeof *net->counterparts);
    net->served = ls__alloc((size_t)o->size, sizeof *net->served);
    if (!net->counterparts || !net->served) return LS_ERR_MEMORY;
    for (int m = 0; m < net->n; m++)
        net->counterparts[m] =
            m == net->me ? o->rank : ls__node_rank(net, m, local % ls__node_size(net, m));
    for (int r = 0; r < o->size; r++)
        if (net->places[r].node != net->me && net->places[r].local % here == local)
            net->served[net->nserved++] = r;
    return LS_OK;
}

/* The programs of one cut: this node's partial sums, and the sum over its ranks and the others'. */
static ls_status build_cut(ls__net *net, int size, const int *nodes, struct ls__cut *cut)
{
    int n = 0;
    int *leaves = ls__alloc((size_t)size, sizeof *leaves);
    int *operands = ls__alloc((size_t)size, sizeof *operands);
    cut->pures = ls__alloc((size_t)size, sizeof *cut->pures);
    cut->trees = ls__alloc((size_t)size, sizeof *cut->trees);
    ls_status status = leaves && operands && cut->pures && cut->trees ? LS_OK : LS_ERR_MEMORY;
    if (status == LS_OK) {
        for (int r = 0; r < size; r++) leaves[r] = r;
        cut->npures = ls__tree_pure(leaves, nodes, size, cut->pures);
    }
    for (int i = 0; i < cut->npures && status == LS_OK; i++) {
        const ls__pure *pure = &cut->pures[i];
        bool own = net->places[pure->from].node == net->me;
        for (int r = pure->from; r < (own ? pure->to : pure->from + 1); r++) operands[n++] = r;
        if (!own) continue;
        status = ls__tree_create(pure->to - pure->from, &cut->trees[i]);
        if (status == LS_OK)
            ls__tree_build(cut->trees[i], leaves + pure->from, pure->to - pure->from);
    }
    if (status == LS_OK) status = ls__tree_create(n, &cut->last);
    if (status == LS_OK) ls__tree_build(cut->last, operands, n);
    ls__free(leaves);
    ls__free(operands);
    return status;
}

static ls_status build_cuts(ls__net *net, int size)
{
    int *nodes = ls__alloc((size_t)size, sizeof *nodes);
    if (!nodes) return LS_ERR_MEMORY;
    for (int r = 0; r < size; r++) nodes[r] = net->places[r].node;
    ls_status status = build_cut(net, size, nodes, &net->merged);
    for (int r = 0; r < size; r++) nodes[r] = r;
    if (status == LS_OK) status = build_cut(net, size, nodes, &net->single);
    ls__free(nodes);
    return status;
}

static ls_status allocate_pipeline(ls__net *net, int size)
{
    ls__net_pipeline_rooms(net, &net->sums_nbytes, &net->partials_nbytes);
    net->sums = ls__alloc(LS__PIPELINE_SLOTS, net->sums_nbytes);
    net->partials = ls__alloc(LS__PIPELINE_SLOTS, net->partials_nbytes);
    if ((!net->sums && net->sums_nbytes > 0) || !net->partials) return LS_ERR_MEMORY;
    for (int i = 0; i < LS__PIPELINE_SLOTS * LS__BATCHES; i++)
        LS_TRY(ls__batch_reserve(&net->batches[i], 2 * size));
    return LS_OK;
}

/* What is private to a rank. */
static ls_status allocate_private(ls__net *net, int size)
{
    size_t n = (size_t)net->n, all = (size_t)size;
    net->out = ls__alloc(1, sizeof *net->out);
    net->in = ls__alloc(n, sizeof *net->in);
    net->rests = ls__alloc(n, sizeof *net->rests);
    net->theirs = ls__alloc(n, sizeof *net->theirs);
    net->nbytes = ls__alloc(n, sizeof *net->nbytes);
    net->operands = ls__alloc(all, sizeof *net->operands);
    if (!net->out || !net->in || !net->rests || !net->theirs || !net->nbytes || !net->operands)
        return LS_ERR_MEMORY;
    LS_TRY(ls__net_make_room(net, all * net->gather_nbytes));
    LS_TRY(ls__net_reserve(net, 4 * (size + net->n)));
    LS_TRY(build_cuts(net, size));
    return allocate_pipeline(net, size);
}

static ls_status allocate_shared(ls__net *net, ls_status status)
{
    ls_comm *local = net->local;
    size_t here = (size_t)local->size;
    ls__call call = { .op = LS__OP_ALLOC, .count = (int64_t)net->stage_nbytes };
    call.site = __builtin_return_address(0);
    LS_TRY(ls__comm_reserve(local, net->stage_nbytes, net->gather_nbytes, &call, status,
                            &net->stages));
    size_t shared = (net->shared_nbytes + here - 1) / here;
    size_t touched = shared < net->gather_nbytes ? shared : net->gather_nbytes;
    LS_TRY(ls__comm_reserve(local, shared, touched, &call, LS_OK, &net->shared));
    return ls__comm_reserve(local, sizeof(ls__verdict), 0, &call, LS_OK, &net->verdicts);
}

/* Bytes of a chunk at most. Messages of less than a megabyte cost more by themselves than their
 * overlap gains: over Gloo, 16 MiB take 44 ms in pieces of 256 KiB and 16 in pieces of 2 MiB. Where
 * every node has one rank, a chunk needs memory only for what comes. */
static size_t plan_slot(const ls__net *net, size_t size)
{
    size_t piece = SLOT_ARENAS * net->local->arena, n = (size_t)net->n;
    size_t slot = n < size ? piece : n * (piece < CHUNK_MOST / n ? piece : CHUNK_MOST / n);
    return ls__round_up(slot < 64 * size ? 64 * size : slot, 64);
}

/* The node's own communicator and the memory that goes with it; then all nodes know each other. */
static ls_status connect_nodes(ls__net *net, ls__shm *shm, const ls__comm_nodes_options *o)
{
    ls_comm *whole = net->whole;
    ls__comm_shm_options local = { .rank = net->places[o->rank].local,
                                   .size = ls__node_size(net, net->me),
                                   .names = net->ranks + net->first[net->me],
                                   .timeout_ms = o->timeout_ms,
                                   .oversubscribed = o->oversubscribed,
                                   .arena = o->arena };
    LS_TRY(ls__comm_shm_create(shm, &local, &net->local));
    size_t size = (size_t)o->size;
    net->slot_nbytes = plan_slot(net, size);
    net->gather_nbytes = net->slot_nbytes < LS__GATHER_MAX ? net->slot_nbytes : LS__GATHER_MAX;
    net->stage_nbytes = LS__PIPELINE_SLOTS * net->slot_nbytes;
    if (net->local->size == 1) net->stage_nbytes = net->gather_nbytes;
    net->shared_nbytes = size * net->gather_nbytes;
    if (net->shared_nbytes < net->stage_nbytes) net->shared_nbytes = net->stage_nbytes;
    whole->timeout_ns = net->local->timeout_ns;
    whole->arena = net->local->arena;
    whole->spin_ns = net->local->spin_ns;
    LS_TRY(allocate_shared(net, allocate_private(net, o->size)));
    uint64_t mine[3] = { size, net->slot_nbytes, net->gather_nbytes };
    ls__call call = { .op = LS__OP_ALLOC, .count = (int64_t)net->slot_nbytes };
    call.site = __builtin_return_address(0);
    LS_TRY(ls__net_gather(net, &call, mine, sizeof mine));
    for (int r = 0; r < o->size; r++)
        if (memcmp(net->shared.base + (size_t)r * sizeof mine, mine, sizeof mine) != 0)
            return ls_fail(LS_ERR_MISMATCH, "rank %d has another idea of the job than rank %d", r,
                           o->rank);
    ls__comm_leave(net->local);
    return LS_OK;
}

static ls_status create(ls__shm *shm, const ls__comm_nodes_options *o, ls__net *net)
{
    ls_comm *whole = net->whole;
    whole->rank = o->rank;
    whole->size = o->size;
    whole->last = &whole->first;
    whole->kernels = ls__kernels_best();
    int timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    whole->timeout_ns = timeout_ms == LS_NONE ? INT64_MAX : (int64_t)timeout_ms * 1000000;
    whole->sources = ls__alloc((size_t)o->size, sizeof *whole->sources);
    whole->targets = ls__alloc((size_t)o->size, sizeof *whole->targets);
    if (!whole->sources || !whole->targets) return LS_ERR_MEMORY;
    LS_TRY(ls__tree_create_full(o->size, &whole->tree));
    LS_TRY(list_ranks(net, o));
    LS_TRY(list_counterparts(net, o));
    return connect_nodes(net, shm, o);
}

ls_status ls__comm_nodes_create(ls__shm *shm, ls__link *link, const ls__comm_nodes_options *options,
                                ls_comm **out)
{
    *out = NULL;
    ls_status status = LS_OK;
    ls__net *net = ls__alloc(1, sizeof *net);
    ls_comm *whole = ls__alloc(1, sizeof *whole);
    if (!net || !whole) {
        ls__free(net);
        ls__free(whole);
        link->destroy(link);
        return LS_ERR_MEMORY;
    }
    *net = (ls__net) { .whole = whole, .link = link };
    whole->nodes = net;
    if (options->rank < 0 || options->rank >= options->size || options->size > LS__RANKS_MAX)
        status = ls_fail(LS_ERR_ARG, "rank %d of %d: at most %d ranks can exchange over nodes",
                         options->rank, options->size, LS__RANKS_MAX);
    if (status == LS_OK) status = create(shm, options, net);
    if (status != LS_OK) {
        whole->broken = status;
        ls__comm_destroy(whole);
        return status;
    }
    *out = whole;
    return LS_OK;
}

static void free_cut(struct ls__cut *cut)
{
    for (int i = 0; cut->trees && i < cut->npures; i++) ls__tree_destroy(cut->trees[i]);
    ls__tree_destroy(cut->last);
    ls__free(cut->trees);
    ls__free(cut->pures);
}

void ls__net_destroy(ls__net *net)
{
    if (!net) return;
    if (net->whole->broken != LS_OK) net->link->abort(net->link);
    net->link->destroy(net->link);
    ls__allocation *each[] = { &net->stages, &net->shared, &net->verdicts };
    for (int i = 0; i < 3; i++)
        if (each[i]->base) ls__allocation_unmap(net->local, each[i]);
    ls__comm_destroy(net->local);
    free_cut(&net->merged);
    free_cut(&net->single);
    for (int m = 0; net->rests && m < net->n; m++) ls__free(net->rests[m]);
    for (int i = 0; i < LS__PIPELINE_SLOTS * LS__BATCHES; i++) ls__free(net->batches[i].each);
    void *arrays[] = { net->places, net->first,    net->ranks,   net->counterparts, net->served,
                       net->out,    net->in,       net->brought, net->rests,        net->theirs,
                       net->nbytes, net->now.each, net->sums,    net->partials,     net->operands };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) ls__free(arrays[i]);
    ls__free(net);
}
