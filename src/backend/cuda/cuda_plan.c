/* Where tensors lie: results of operations, batches and workspaces in the arena, by lifetime;
 * parameters and their gradients in the copies of the flat spaces; constants apart.
 *
 * The graph's own liveness counts four bytes for a number that is stored as bf16, so pieces are
 * corrected here. A batch's fields live from the run's begin to their last reader: the arena is
 * larger by what the first operations read, and no memory lies idle behind. */
#include "backend/cuda/cuda_executable.h"

static bool may_lie_in(void *user, const ls__node *node, int input)
{
    (void)user;
    const cuda_op *op = ls__cuda_op(node->op);
    bool alike = node->in[input]->half == node->out[0]->half;
    return op && op->in_place && alike && !(op->writes_f32 && node->out[0]->half) &&
           op->in_place(node, input);
}

static int gradient_slot(const ls__executable *e, const ls_tensor *x)
{
    for (int i = 0; i < e->nparams; i++)
        if (e->params[i].grad == x) return i;
    return -1;
}

static void place_outside(ls__executable *e, const ls_tensor *x, ls__lifetime *piece)
{
    cuda_place *place = &e->place[x->id];
    int slot = gradient_slot(e, x);
    piece->nbytes = 0;
    if (slot >= 0)
        *place = (cuda_place) { .space = CUDA_GRAD, .slot = slot };
    else if (x->role == LS__ROLE_CONSTANT)
        *place = (cuda_place) { .space = CUDA_CONSTANT };
    else
        *place = (cuda_place) { .space = CUDA_PARAM, .slot = x->slot };
}

/* The batch and the states are there before the first node runs; states stay. */
static void widen(const ls__executable *e, const ls_tensor *x, ls__lifetime *piece)
{
    const ls__node *nodes;
    if (x->role == LS__ROLE_VALUE) return;
    piece->begin = 0;
    if (x->role == LS__ROLE_STATE) piece->end = ls__graph_nodes(e->graph, &nodes);
}

static void place(ls__executable *e, const ls_tensor *x)
{
    ls__lifetime *piece = &e->pieces[x->id];
    bool arena =
        x->role == LS__ROLE_VALUE || x->role == LS__ROLE_INPUT || x->role == LS__ROLE_STATE;
    if (e->root[x->id] != x->id) {
        piece->nbytes = 0;
    } else if (!arena || gradient_slot(e, x) >= 0) {
        place_outside(e, x, piece);
    } else if (piece->end >= 0) {
        e->place[x->id] = (cuda_place) { .space = CUDA_ARENA, .piece = x->id };
        piece->nbytes = ls__cuda_stored_bytes(x);
        widen(e, x, piece);
    }
}

/* Alignment of what vendors' kernels read fastest. */
static void round_up(ls__executable *e)
{
    for (int i = 0; i < e->npieces; i++)
        e->pieces[i].nbytes = (e->pieces[i].nbytes + 255) / 256 * 256;
}

ls_status ls__cuda_plan(ls__executable *e)
{
    size_t n = (size_t)e->ntensors + 1;
    e->root = ls__alloc(n, sizeof *e->root);
    e->place = ls__alloc(n, sizeof *e->place);
    if (!e->root || !e->place) return LS_ERR_MEMORY;
    ls__graph_liveness(e->graph, may_lie_in, NULL, e->root, e->pieces);
    ls__cuda_join_sums(e);
    for (int i = 0; i < e->ntensors; i++) place(e, e->tensors[i]);
    if (!ls__cuda_device()->apart) round_up(e); /* else exact sizes, to find who leaves them */
    e->arena_bytes = ls__memory_plan(e->pieces, e->npieces);
    return e->arena_bytes == SIZE_MAX ? LS_ERR_MEMORY : LS_OK;
}
