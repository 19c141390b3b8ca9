/* Pointers on the device: of tensors, steps and copies. They are set once and again only when a
 * block has moved or the flat space is laid out in another way, which a run compares. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_executable.h"
#include "backend/cuda/cuda_resident.h"

void *ls__cuda_at(const ls__executable *e, const ls_tensor *x)
{
    const cuda_device *d = ls__cuda_device();
    const cuda_place *p = &e->place[e->root[x->id]];
    switch (p->space) {
    case CUDA_ARENA:
        return e->apart ? e->apart[p->piece] : d->arena.data + e->pieces[p->piece].offset;
    case CUDA_PARAM:
        return e->base + e->offsets[p->slot];
    case CUDA_GRAD:
        return e->grads + e->offsets[p->slot];
    case CUDA_CONSTANT:
        return e->constants + p->offset;
    case CUDA_NOWHERE:
        break;
    }
    return NULL;
}

/* --- the flat spaces --- */

static int by_place(const void *a, const void *b)
{
    const cuda_stretch *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static bool trains(const ls__executable *e)
{
    return ls__graph_options_of(e->graph)->stage == LS_STAGE_TRAIN;
}

static ls_status lay_out(ls__executable *e, const int64_t *offsets)
{
    size_t room = (size_t)e->nparams + 1;
    if (!e->offsets) e->offsets = ls__alloc(room, sizeof *e->offsets);
    if (!e->stretches) e->stretches = ls__alloc(room, sizeof *e->stretches);
    if (!e->offsets || !e->stretches) return LS_ERR_MEMORY;
    e->extent = e->nstretches = 0;
    for (int i = 0; i < e->nparams; i++) {
        int64_t count = ls__cuda_count(e->params[i].tensor);
        e->offsets[i] = offsets[i];
        if (offsets[i] + count > e->extent) e->extent = offsets[i] + count;
        if (trains(e) && e->params[i].grad)
            e->stretches[e->nstretches++] = (cuda_stretch) { offsets[i], count };
    }
    qsort(e->stretches, (size_t)e->nstretches, sizeof *e->stretches, by_place);
    return LS_OK;
}

/* --- pointers --- */

static const void *half_at(const ls__executable *e, const ls_tensor *x)
{
    const cuda_place *p = &e->place[e->root[x->id]];
    return p->space == CUDA_PARAM && e->halves ? e->halves + e->offsets[p->slot] : NULL;
}

static void bind_step(const ls__executable *e, cuda_step *s)
{
    const cuda_device *d = ls__cuda_device();
    char *workspace = NULL;
    if (s->workspace >= 0)
        workspace =
            e->apart ? e->apart[s->workspace] : d->arena.data + e->pieces[s->workspace].offset;
    for (int k = 0; k < s->node->nin; k++) {
        s->call.in[k] = ls__cuda_at(e, s->node->in[k]);
        s->call.half[k] = half_at(e, s->node->in[k]);
    }
    for (int k = 0; k < s->node->nout; k++) s->call.out[k] = ls__cuda_at(e, s->node->out[k]);
    for (int i = 0; i < s->nroundings; i++) {
        int k = s->roundings[i].output;
        s->rounded[i] = s->call.out[k];
        s->call.out[k] = workspace + s->roundings[i].offset;
    }
    s->call.workspace = s->own_bytes ? workspace : NULL;
    s->call.values = e->values;
    s->call.stream = d->stream;
}

static void bind_travels(const ls__executable *e, cuda_travel *list, int n)
{
    for (int i = 0; i < n; i++) list[i].device = ls__cuda_at(e, list[i].tensor);
}

/* The flat spaces: the training state that stays here, or copies of the host's. */
static ls_status find_spaces(const ls__executable *e, const ls__run_context *context,
                             float **params, float **grads, uint16_t **halves)
{
    cuda_device *d = ls__cuda_device();
    const ls__resident *r = context->resident;
    size_t flat = (size_t)e->extent * sizeof(float);
    if (!r) LS_TRY(ls__cuda_reserve(d, &d->params, flat, "parameters"));
    if (!r && trains(e)) LS_TRY(ls__cuda_reserve(d, &d->grads, flat, "gradients"));
    *params = r ? r->params : (float *)d->params.data;
    *grads = r ? r->leaf : (float *)d->grads.data;
    *halves = r ? r->halves : NULL;
    return LS_OK;
}

ls_status ls__cuda_bind(ls__executable *e, const ls__run_context *context)
{
    cuda_device *d = ls__cuda_device();
    size_t nbytes = (size_t)e->nparams * sizeof *context->offsets;
    bool same = e->offsets && (nbytes == 0 || memcmp(e->offsets, context->offsets, nbytes) == 0);
    if (!same) LS_TRY(lay_out(e, context->offsets));
    float *base, *grads;
    uint16_t *halves;
    LS_TRY(find_spaces(e, context, &base, &grads, &halves));
    if (!e->apart) LS_TRY(ls__cuda_reserve(d, &d->arena, e->arena_bytes, "activations"));
    same = same && e->base == base && (e->grads == grads || !trains(e)) && e->halves == halves;
    if (same && e->generation == d->generation) return LS_OK;
    e->base = base;
    e->grads = grads;
    e->halves = halves;
    ls__cuda_forget_capture(e);
    LS_TRY(ls__cuda_cut_steps(e, context));
    for (int i = 0; i < e->nsteps; i++) bind_step(e, &e->steps[i]);
    bind_travels(e, e->in, e->nin);
    bind_travels(e, e->out, e->nout);
    bind_travels(e, e->states, e->nstates);
    e->generation = d->generation;
    return LS_OK;
}
