/* The exchange over several nodes: partial sums to the owners of slices, slices to every node.
 *
 * Slices and their owners are those of one machine with as many ranks. A rank sums, for each rank
 * of other nodes that it serves, that one's slices of its node's gradients, as few partial sums as
 * the tree allows, and sends them; the owner finishes the tree over its node's gradients and what
 * came, updates, and sends the slices to its counterparts, which have them written into their
 * nodes' parameters. Buffers for what travels have the space's own layout, and only the pages of
 * the slices in question are ever touched; so a message is a run of the space, and sums are taken
 * by the same code as on one machine. */
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/memory.h"
#include "comm/exchange_internal.h"
#include "comm/work.h"

enum { GAP = 1024, PIECE = 16 << 20, LUMP = 16 * LS__BLOCK };

/* A run of the space that one rank owns; may go over gaps between segments. */
typedef struct span {
    int64_t offset, count;
} span;

/* What a rank owns, as messages. */
typedef struct slices {
    int rank, n;
    span *spans;
    ls__plan plan; /* empty for one's own, which the exchange has */
    double *norms; /* (nblocks) of the owned blocks */
    int64_t nblocks;
} slices;

struct ls__far {
    slices own, *served; /* (nserved) */
    int nserved;
    int nout, nin;                /* partial sums at most: of this node, of the others */
    float **outgoing, **incoming; /* (nout), (nin), (count) each */
    ls__tree **trees;             /* (nout) */
    /* Everybody's sources in a step. */
    int capacity;
    int *leaves, *nodes; /* (capacity) */
    float *factors;
    const float **sources;
    ls__pure *pures;
    struct job { /* a sum that is being taken */
        const ls__tree *tree;
        int from;
        float *dst;
        const span *run;
    } job;
};

/* --- memory --- */

/* Zeroed, taken page by page as it is touched, never in huge pages. */
static float *map_sparse(size_t nbytes)
{
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        ls__fail_errno(LS_ERR_MEMORY, "%zu bytes for gradients of other nodes", nbytes);
        return NULL;
    }
    madvise(p, nbytes, MADV_NOHUGEPAGE);
    return p;
}

static ls_status map_all(int n, size_t nbytes, float ***out)
{
    *out = ls__alloc((size_t)n, sizeof **out);
    if (!*out) return LS_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        if (!((*out)[i] = map_sparse(nbytes))) return LS_ERR_MEMORY;
    return LS_OK;
}

static void unmap_all(int n, size_t nbytes, float **each)
{
    for (int i = 0; each && i < n; i++)
        if (each[i]) munmap(each[i], nbytes);
    ls__free(each);
}

/* Whether range b goes on where a ended, with at most a gap between. */
static bool goes_on(const ls__segment *segments, const ls__range *a, const ls__range *b)
{
    const ls__segment *s = &segments[a->segment], *next = &segments[b->segment];
    return b->segment == a->segment + 1 && s->bucket == next->bucket &&
           a->offset + a->count == s->offset + s->count && b->offset == next->offset &&
           b->offset - (a->offset + a->count) <= GAP;
}

static ls_status list_slices(const ls__exchange *x, const ls__plan *plan, int rank, slices *out)
{
    out->rank = rank;
    out->spans = ls__alloc((size_t)plan->nranges, sizeof *out->spans);
    if (!out->spans) return LS_ERR_MEMORY;
    for (int i = 0; i < plan->nranges; i++) {
        const ls__range *range = &plan->ranges[i];
        if (i > 0 && goes_on(x->segments, range - 1, range)) {
            span *last = &out->spans[out->n - 1];
            last->count = range->offset + range->count - last->offset;
        } else {
            out->spans[out->n++] = (span) { range->offset, range->count };
        }
    }
    for (int64_t i = 0; i < plan->nchunks; i++)
        out->nblocks += (plan->chunks[i].count + LS__BLOCK - 1) / LS__BLOCK;
    out->norms = ls__alloc((size_t)out->nblocks, sizeof *out->norms);
    return out->norms ? LS_OK : LS_ERR_MEMORY;
}

static ls_status list_all_slices(ls__exchange *x)
{
    ls__far *far = x->far;
    LS_TRY(list_slices(x, &x->plan, x->comm->rank, &far->own));
    far->served = ls__alloc((size_t)x->net->nserved, sizeof *far->served);
    if (!far->served) return LS_ERR_MEMORY;
    for (int i = 0; i < x->net->nserved; i++) {
        slices *served = &far->served[far->nserved++];
        int rank = x->net->served[i];
        LS_TRY(ls__plan_create(&x->options, rank, x->comm->size, &served->plan));
        LS_TRY(list_slices(x, &served->plan, rank, served));
    }
    return LS_OK;
}

/* Partial sums when every leaf is there; absent ones make them fewer. */
static ls_status count_partials(ls__exchange *x)
{
    ls__far *far = x->far;
    int s = x->options.micro_batches, begin, end;
    int *leaves = ls__alloc((size_t)s, sizeof *leaves);
    int *nodes = ls__alloc((size_t)s, sizeof *nodes);
    ls__pure *pures = ls__alloc((size_t)s, sizeof *pures);
    bool done = leaves && nodes && pures;
    for (int r = 0; r < x->comm->size && done; r++) {
        ls__plan_leaves(s, r, x->comm->size, &begin, &end);
        for (int leaf = begin; leaf < end; leaf++) {
            leaves[leaf] = leaf;
            nodes[leaf] = ls__place(x->net, r)->node;
        }
    }
    int n = done ? ls__tree_pure(leaves, nodes, s, pures) : 0;
    for (int i = 0; i < n; i++) *(pures[i].node == x->net->me ? &far->nout : &far->nin) += 1;
    ls__free(leaves);
    ls__free(nodes);
    ls__free(pures);
    return done ? LS_OK : LS_ERR_MEMORY;
}

static ls_status allocate_steps(ls__exchange *x)
{
    ls__far *far = x->far;
    for (int r = 0; r < x->comm->size; r++) far->capacity += x->rank_nbuffers[r];
    size_t n = (size_t)far->capacity;
    far->leaves = ls__alloc(n, sizeof(int));
    far->nodes = ls__alloc(n, sizeof(int));
    far->factors = ls__alloc(n, sizeof(float));
    far->sources = ls__alloc(n, sizeof *far->sources);
    far->pures = ls__alloc(n, sizeof *far->pures);
    far->trees = ls__alloc((size_t)far->nout, sizeof *far->trees);
    if (!far->leaves || !far->nodes || !far->factors || !far->sources || !far->pures || !far->trees)
        return LS_ERR_MEMORY;
    for (int i = 0; i < far->nout; i++) LS_TRY(ls__tree_create(far->capacity, &far->trees[i]));
    if (x->options.on_device) return LS_OK;
    LS_TRY(map_all(far->nout, x->buffer_stride, &far->outgoing));
    return map_all(far->nin, x->buffer_stride, &far->incoming);
}

/* Bytes of a board on its way, at most. */
static size_t packed_most(const ls__exchange *x)
{
    size_t notes = (size_t)((x->options.micro_batches + x->comm->size - 1) / x->comm->size) + 2;
    return sizeof(ls__board) + notes * sizeof(ls__note);
}

static ls_status allocate(ls__exchange *x)
{
    ls__far *far = x->far = ls__alloc(1, sizeof *x->far);
    if (!far) return LS_ERR_MEMORY;
    LS_TRY(list_all_slices(x));
    LS_TRY(count_partials(x));
    LS_TRY(allocate_steps(x));
    int most = 0, messages = (far->nin + x->net->n) * far->own.n;
    for (int m = 0; m < x->net->n; m++)
        if (ls__node_size(x->net, m) > most) most = ls__node_size(x->net, m);
    for (int i = 0; i < far->nserved; i++) messages += (far->nout + 1) * far->served[i].n;
    LS_TRY(ls__net_reserve(x->net, messages + 4 * x->comm->size));
    return ls__net_make_room(x->net, (size_t)most * packed_most(x));
}

ls_status ls__far_create(ls__exchange *x)
{
    ls__call call = { .op = LS__OP_ALLOC, .count = x->options.count };
    call.site = __builtin_return_address(0);
    size_t all = (size_t)x->comm->size * x->board_stride, here = (size_t)x->local->size;
    return ls__comm_reserve(x->comm, (all + here - 1) / here, 0, &call, allocate(x),
                            &x->far_boards);
}

static void free_slices(slices *s)
{
    ls__free(s->spans);
    ls__free(s->norms);
    ls__plan_free(&s->plan);
}

void ls__far_destroy(ls__exchange *x)
{
    ls__far *far = x->far;
    if (!far) return;
    unmap_all(far->nout, x->buffer_stride, far->outgoing);
    unmap_all(far->nin, x->buffer_stride, far->incoming);
    for (int i = 0; far->trees && i < far->nout; i++) ls__tree_destroy(far->trees[i]);
    free_slices(&far->own);
    for (int i = 0; i < far->nserved; i++) free_slices(&far->served[i]);
    void *arrays[] = { far->served,  far->trees,   far->leaves, far->nodes,
                       far->factors, far->sources, far->pures };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) ls__free(arrays[i]);
    ls__free(far);
    x->far = NULL;
}

/* --- the reduction --- */

/* Everybody's sources, by leaf. */
static int list_sources(ls__exchange *x)
{
    ls__far *far = x->far;
    int n = 0;
    for (int r = 0; r < x->comm->size; r++) {
        const ls__board *board = ls__exchange_board(x, r);
        const ls__node_place *place = ls__place(x->net, r);
        for (int i = 0; i < board->nsources && n < far->capacity; i++, n++) {
            far->leaves[n] = board->sources[i].leaf;
            far->factors[n] = board->sources[i].factor;
            far->nodes[n] = place->node;
            far->sources[n] = place->node == x->net->me
                                  ? ls__exchange_buffer(x, place->local, board->sources[i].buffer)
                                  : NULL;
        }
    }
    return n;
}

static void sum_lump(void *context, int64_t i)
{
    const ls__exchange *x = context;
    const ls__far *far = x->far;
    const struct job *job = &far->job;
    int64_t at = i * LUMP, left = job->run->count - at, n = left < LUMP ? left : LUMP;
    int64_t offset = job->run->offset + at;
    ls__reduce_scaled(x->comm->kernels, job->tree, job->dst + offset, far->sources + job->from,
                      far->factors + job->from, offset, n);
}

/* This node's k-th partial sum of a rank's slices, on its way to it. */
static ls_status serve(ls__exchange *x, const slices *to, const ls__pure *pure, int k)
{
    ls__far *far = x->far;
    bool as_it_is = pure->to - pure->from == 1 && far->factors[pure->from] == 1.0f;
    const float *base = as_it_is ? far->sources[pure->from] : far->outgoing[k];
    for (int i = 0; i < to->n; i++) {
        const span *run = &to->spans[i];
        far->job = (struct job) { far->trees[k], pure->from, far->outgoing[k], run };
        if (!as_it_is) ls__exchange_parallel(x, (run->count + LUMP - 1) / LUMP, sum_lump);
        LS_TRY(ls__net_send(x->net, LS__CHANNEL_SUM, to->rank, base + run->offset,
                            (size_t)run->count * sizeof *base));
    }
    return LS_OK;
}

/* One more operand of the sum that this rank finishes. */
static void add_operand(ls__exchange *x, int *n, int leaf, float factor, const float *source)
{
    x->leaves[*n] = leaf;
    x->factors[*n] = factor;
    x->sources[(*n)++] = source;
}

/* The operands: this node's sources and, to come, the others' partial sums. */
static ls_status expect(ls__exchange *x, int npures, int *noperands)
{
    ls__far *far = x->far;
    int n = 0, in = 0;
    for (int i = 0; i < npures; i++) {
        const ls__pure *pure = &far->pures[i];
        if (pure->node == x->net->me) {
            for (int k = pure->from; k < pure->to; k++)
                add_operand(x, &n, far->leaves[k], far->factors[k], far->sources[k]);
            continue;
        }
        LS_ASSERT(in < far->nin);
        float *into = far->incoming[in++];
        add_operand(x, &n, far->leaves[pure->from], 1.0f, into);
        for (int k = 0; k < far->own.n; k++)
            LS_TRY(ls__net_recv(x->net, LS__CHANNEL_SUM, x->net->counterparts[pure->node],
                                into + far->own.spans[k].offset,
                                (size_t)far->own.spans[k].count * sizeof *into));
    }
    *noperands = n;
    return LS_OK;
}

static ls_status reduce(ls__exchange *x)
{
    ls__far *far = x->far;
    int noperands, k = 0, n = list_sources(x);
    int npures = ls__tree_pure(far->leaves, far->nodes, n, far->pures);
    LS_TRY(expect(x, npures, &noperands));
    for (int i = 0; i < npures; i++) {
        const ls__pure *pure = &far->pures[i];
        if (pure->node != x->net->me) continue;
        LS_ASSERT(k < far->nout);
        ls__tree_build(far->trees[k], far->leaves + pure->from, pure->to - pure->from);
        for (int s = 0; s < far->nserved; s++) LS_TRY(serve(x, &far->served[s], pure, k));
        k++;
    }
    LS_TRY(ls__net_wait(x->net));
    ls__tree_build(x->tree, x->leaves, noperands);
    if (noperands == 1 && x->factors[0] == 1.0f) x->sum = x->sources[0];
    return LS_OK;
}

ls_status ls__far_reduce(ls__exchange *x)
{
    return ls__net_failed(x->net, reduce(x));
}

/* --- norms and parameters --- */

/* Between the list of owned blocks' norms and the whole one. */
static void copy_norms(const ls__exchange *x, const ls__plan *plan, double *list, bool pack)
{
    double *all = (double *)(void *)x->norms.base;
    for (int64_t i = 0; i < plan->nchunks; i++) {
        const ls__chunk *chunk = &plan->chunks[i];
        size_t n = (size_t)((chunk->count + LS__BLOCK - 1) / LS__BLOCK);
        memcpy(pack ? list : all + chunk->block, pack ? all + chunk->block : list,
               n * sizeof *list);
        list += n;
    }
}

static ls_status trade_norms(ls__exchange *x)
{
    ls__far *far = x->far;
    ls__net *net = x->net;
    copy_norms(x, &x->plan, far->own.norms, true);
    for (int i = 0; i < far->nserved; i++)
        if (far->served[i].nblocks > 0)
            LS_TRY(ls__net_recv(net, LS__CHANNEL_SPREAD, far->served[i].rank, far->served[i].norms,
                                (size_t)far->served[i].nblocks * sizeof(double)));
    for (int m = 0; m < net->n; m++)
        if (m != net->me && far->own.nblocks > 0)
            LS_TRY(ls__net_send(net, LS__CHANNEL_SPREAD, net->counterparts[m], far->own.norms,
                                (size_t)far->own.nblocks * sizeof(double)));
    LS_TRY(ls__net_wait(net));
    for (int i = 0; i < far->nserved; i++)
        copy_norms(x, &far->served[i].plan, far->served[i].norms, false);
    return LS_OK;
}

ls_status ls__far_norms(ls__exchange *x)
{
    return ls__net_failed(x->net, trade_norms(x));
}

static ls_status spread(ls__exchange *x)
{
    ls__far *far = x->far;
    ls__net *net = x->net;
    float *params = ls__exchange_params(x);
    for (int i = 0; i < far->nserved; i++)
        for (int k = 0; k < far->served[i].n; k++) {
            const span *run = &far->served[i].spans[k];
            LS_TRY(ls__net_recv(net, LS__CHANNEL_SPREAD, far->served[i].rank, params + run->offset,
                                (size_t)run->count * sizeof *params));
        }
    for (int k = 0; k < far->own.n; k++)
        for (int m = 0; m < net->n; m++)
            if (m != net->me)
                LS_TRY(ls__net_send(net, LS__CHANNEL_SPREAD, net->counterparts[m],
                                    params + far->own.spans[k].offset,
                                    (size_t)far->own.spans[k].count * sizeof *params));
    LS_TRY(ls__net_wait(net));
    for (int i = 0; i < far->nserved; i++)
        ls__exchange_round_ranges(x, far->served[i].plan.ranges, far->served[i].plan.nranges);
    return LS_OK;
}

ls_status ls__far_spread(ls__exchange *x)
{
    return ls__net_failed(x->net, spread(x));
}

/* From the node of rank root to the others, in pieces. */
static ls_status spread_from(ls__exchange *x, int root)
{
    ls__net *net = x->net;
    int from = ls__place(net, root)->node;
    float *params = ls__exchange_params(x);
    if (!ls__net_speaks(net)) return LS_OK;
    for (int64_t at = 0; at < x->options.count; at += PIECE) {
        int64_t left = x->options.count - at, n = left < PIECE ? left : PIECE;
        size_t nbytes = (size_t)n * sizeof *params;
        for (int m = 0; m < net->n && from == net->me; m++)
            if (m != from)
                LS_TRY(ls__net_send(net, LS__CHANNEL_SPREAD, ls__node_rank(net, m, 0), params + at,
                                    nbytes));
        if (from != net->me)
            LS_TRY(ls__net_recv(net, LS__CHANNEL_SPREAD, ls__node_rank(net, from, 0), params + at,
                                nbytes));
        LS_TRY(ls__net_wait(net));
    }
    return LS_OK;
}

ls_status ls__exchange_spread(ls__exchange *x, int root)
{
    if (!x->net) return LS_OK;
    if (x->comm->broken != LS_OK) return ls__comm_broken(x->comm);
    LS_TRY(ls__works_finish(x->comm));
    ls__call call = { .op = LS__OP_COMMIT, .count = x->options.count };
    call.site = __builtin_return_address(0);
    LS_TRY(ls__net_gather(x->net, &call, NULL, 0));
    LS_TRY(root < 0 ? ls__far_spread(x) : ls__net_failed(x->net, spread_from(x, root)));
    LS_TRY(ls__net_step(x->net));
    for (int i = 0; i < x->far->nserved; i++)
        ls__exchange_round_ranges(x, x->far->served[i].plan.ranges, x->far->served[i].plan.nranges);
    ls__comm_leave(x->local);
    return LS_OK;
}
