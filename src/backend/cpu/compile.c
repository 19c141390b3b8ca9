/* A graph becomes an executable: the program, and where its tensors are found afterwards. */
#include "backend/cpu/compile.h"

#include <omp.h>
#include <string.h>

struct ls__executable {
    cpu_program program;
    char **base; /* (buffers) of this run */
    int *result; /* (tensors) the buffer of what may be read after a run; -1 */
    int ntensors;
    int *zero;       /* (nzero) parameters whose gradient nobody computes */
    int64_t *counts; /* (nzero) */
    int nzero;
};

static ls_status note_zero_gradients(ls__executable *e, const cpu_builder *b)
{
    if (ls__graph_options_of(b->graph)->stage != LS_STAGE_TRAIN) return LS_OK;
    e->zero = ls__alloc((size_t)b->nparams + 1, sizeof *e->zero);
    e->counts = ls__alloc((size_t)b->nparams + 1, sizeof *e->counts);
    if (!e->zero || !e->counts) return LS_ERR_MEMORY;
    for (int i = 0; i < b->nparams; i++) {
        if (b->params[i].grad) continue;
        e->zero[e->nzero] = i;
        e->counts[e->nzero++] = ls__cpu_count(b->params[i].tensor);
    }
    return LS_OK;
}

static ls_status note_results(ls__executable *e, const cpu_builder *b)
{
    e->ntensors = b->ntensors;
    e->result = ls__alloc((size_t)b->ntensors + 1, sizeof *e->result);
    e->base = ls__alloc((size_t)e->program.nbuffers + 1, sizeof *e->base);
    if (!e->result || !e->base) return LS_ERR_MEMORY;
    for (int i = 0; i < b->ntensors; i++) {
        int buffer = b->values[i].buffer[CPU_PLAIN];
        bool stays = buffer >= 0 && (e->program.buffers[buffer].keep ||
                                     e->program.buffers[buffer].space != CPU_ARENA);
        e->result[i] = stays ? buffer : -1;
    }
    return LS_OK;
}

static ls_status build(ls__executable *e, const ls_graph *graph)
{
    cpu_builder b;
    cpu_program *p = &e->program;
    p->threads = ls__cpu_pool()->threads;
    p->block = ls__cpu_pool()->block;
    p->batch = ls__graph_options_of(graph)->batch;
    p->failures = ls__alloc((size_t)p->threads, sizeof *p->failures);
    if (!p->failures) return LS_ERR_MEMORY;
    ls_status status = ls__cpu_builder_init(&b, graph, p);
    if (status != LS_OK) goto done;
    ls__cpu_choose_tile(&b, p);
    LS_TRY_GOTO(ls__cpu_lower(&b), status, done);
    LS_TRY_GOTO(ls__cpu_plan_memory(p), status, done);
    LS_TRY_GOTO(note_zero_gradients(e, &b), status, done);
    LS_TRY_GOTO(note_results(e, &b), status, done);
done:
    ls__cpu_builder_free(&b);
    return status;
}

ls_status ls__cpu_compile(const ls_graph *graph, ls__executable **out)
{
    *out = NULL;
    ls__executable *e = ls__alloc(1, sizeof *e);
    if (!e) return LS_ERR_MEMORY;
    omp_set_num_threads(1); /* primitives are made for one thread */
    ls_status status = build(e, graph);
    omp_set_num_threads(ls__cpu_pool()->threads);
    if (status != LS_OK) {
        ls__cpu_destroy(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

void ls__cpu_destroy(ls__executable *e)
{
    if (!e) return;
    ls__cpu_program_free(&e->program);
    ls__free(e->base);
    ls__free(e->result);
    ls__free(e->zero);
    ls__free(e->counts);
    ls__free(e);
}

size_t ls__cpu_arena_bytes(const ls__executable *e)
{
    const cpu_program *p = &e->program;
    return p->whole_bytes + (size_t)p->threads * p->scratch_bytes;
}

static char *base_of(const cpu_buffer *b, const ls__run_context *context)
{
    switch (b->space) {
    case CPU_PARAM:
        return (char *)(context->params + context->offsets[b->slot]);
    case CPU_HALVES:
        return (char *)(uintptr_t)(context->halves + context->offsets[b->slot]);
    case CPU_GRAD:
        return (char *)(context->grads + context->offsets[b->slot]);
    case CPU_FIELD:
        return context->fields[b->slot];
    case CPU_STATE:
        return context->states[b->slot];
    case CPU_CONSTANT:
        return (char *)b->constant;
    case CPU_ARENA:
        break;
    }
    return b->tiled || b->offset < 0 ? NULL : (char *)context->arena + b->offset;
}

ls_status ls__cpu_run(ls__executable *e, const ls__run_context *context)
{
    for (int i = 0; i < e->program.nbuffers; i++)
        e->base[i] = base_of(&e->program.buffers[i], context);
    for (int i = 0; i < e->nzero; i++)
        memset(context->grads + context->offsets[e->zero[i]], 0,
               (size_t)e->counts[i] * sizeof *context->grads);
    return ls__cpu_program_run(&e->program, e->base, context);
}

ls_status ls__cpu_profile_begin(ls__executable *e, int64_t events)
{
    return ls__cpu_program_profile(&e->program, events);
}

void ls__cpu_profile_read(ls__executable *e, ls__profile *out)
{
    ls__cpu_program_profile_read(&e->program, out);
}

ls_status ls__cpu_read_result(ls__executable *e, const ls__run_context *context,
                              const ls_tensor *tensor, ls_array *out)
{
    if (tensor->id >= e->ntensors || e->result[tensor->id] < 0)
        return ls_fail(LS_ERR_ARG, "tensor %d is no result of this graph", tensor->id);
    *out = (ls_array) { .type = tensor->type, .rank = tensor->rank };
    memcpy(out->shape, tensor->shape, sizeof out->shape);
    out->data = base_of(&e->program.buffers[e->result[tensor->id]], context);
    return LS_OK;
}
