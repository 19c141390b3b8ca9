/* Building a program: buffers, steps, and what the lowering of a node asks for.
 *
 * Steps are appended in the graph's order; those that read parameters only go before all others,
 * finishers behind the tiles that they finish. Lists grow by doubling. */
#include "backend/cpu/cpu.h"

#include <string.h>

static ls_status grow(void *items, int count, int *room, size_t size)
{
    void **list = items;
    if (count < *room) return LS_OK;
    int more = *room ? 2 * *room : 32;
    void *grown = ls__realloc(*list, (size_t)more, size);
    if (!grown) return LS_ERR_MEMORY;
    *list = grown;
    *room = more;
    return LS_OK;
}

/* --- begin and end --- */

static void count_reads(cpu_builder *b)
{
    for (int i = 0; i < b->ntensors; i++) {
        b->root[i] = b->tensors[i]->id;
        b->reader[i] = -1;
        b->values[i] = ls__cpu_plain_value(-1, false);
    }
    for (int i = 0; i < b->nnodes; i++) {
        const ls__node *node = &b->nodes[i];
        if (node->op == &ls__op_reshape) b->root[node->out[0]->id] = b->root[node->in[0]->id];
        for (int k = 0; k < node->nin; k++) {
            b->reads[b->root[node->in[k]->id]]++;
            b->readers[node->in[k]->id]++;
            b->reader[node->in[k]->id] = i;
        }
    }
}

static void keep(cpu_builder *b, const ls_tensor *x)
{
    if (!x) return;
    b->reads[b->root[x->id]]++;
    b->readers[x->id]++;
}

static void keep_results(cpu_builder *b)
{
    const ls__graph_result *results;
    int n = ls__graph_results(b->graph, &results);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < results[i].nvalues; k++) keep(b, results[i].values[k]);
        keep(b, results[i].weights);
    }
    for (int i = 0; i < b->nparams; i++) keep(b, b->params[i].grad);
}

static void find_slots(cpu_builder *b)
{
    for (int i = 0; i < b->ntensors; i++) b->slot[i] = -1;
    for (int i = 0; i < b->nparams; i++)
        if (b->params[i].grad) b->slot[b->params[i].grad->id] = i;
}

ls_status ls__cpu_builder_init(cpu_builder *b, const ls_graph *graph, cpu_program *program)
{
    *b = (cpu_builder) { .graph = graph, .program = program };
    b->nnodes = ls__graph_nodes(graph, &b->nodes);
    b->ntensors = ls__graph_tensors(graph, &b->tensors);
    b->nparams = ls__graph_params(graph, &b->params);
    size_t n = (size_t)b->ntensors + 1;
    b->values = ls__alloc(n, sizeof *b->values);
    b->root = ls__alloc(n, sizeof *b->root);
    b->reads = ls__alloc(n, sizeof *b->reads);
    b->readers = ls__alloc(n, sizeof *b->readers);
    b->reader = ls__alloc(n, sizeof *b->reader);
    b->unfinished = ls__alloc(n, sizeof *b->unfinished);
    b->slot = ls__alloc(n, sizeof *b->slot);
    b->partner = ls__alloc((size_t)b->nnodes + 1, sizeof *b->partner);
    b->absorbed = ls__alloc((size_t)b->nnodes + 1, sizeof *b->absorbed);
    if (!b->values || !b->root || !b->reads || !b->readers || !b->reader || !b->unfinished ||
        !b->slot || !b->partner || !b->absorbed)
        return LS_ERR_MEMORY;
    count_reads(b);
    keep_results(b);
    find_slots(b);
    return LS_OK;
}

static void free_steps(cpu_step *steps, int n)
{
    for (int i = 0; i < n; i++)
        if (steps[i].destroy) steps[i].destroy(steps[i].state);
    ls__free(steps);
}

void ls__cpu_builder_free(cpu_builder *b)
{
    free_steps(b->prologue, b->nprologue);
    free_steps(b->finishers, b->nfinishers);
    ls__free(b->values);
    ls__free(b->root);
    ls__free(b->reads);
    ls__free(b->readers);
    ls__free(b->reader);
    ls__free(b->unfinished);
    ls__free(b->slot);
    ls__free(b->partner);
    ls__free(b->absorbed);
    ls__free(b->heads);
    ls__free(b->packed);
}

void ls__cpu_program_free(cpu_program *p)
{
    free_steps(p->steps, p->nsteps);
    ls__free(p->buffers);
    ls__free(p->failures);
    ls__cpu_profile_free(p->profile);
}

/* --- what tensors are --- */

static int64_t channel_blocks(const cpu_program *p, const ls_tensor *x)
{
    return (x->shape[1] + p->block - 1) / p->block;
}

size_t ls__cpu_nbytes(const cpu_program *p, const ls_tensor *x, cpu_layout layout)
{
    size_t size = ls_dtype_size(x->type);
    if (layout == CPU_HALF) size = sizeof(uint16_t);
    if (layout != CPU_BLOCKED) return (size_t)ls__cpu_count(x) * size;
    return (size_t)(x->shape[0] * channel_blocks(p, x) * p->block * x->shape[2] * x->shape[3]) *
           size;
}

cpu_layout ls__cpu_layout_of(const cpu_builder *b, const ls_tensor *x)
{
    return b->values[x->id].buffer[CPU_BLOCKED] >= 0 ? CPU_BLOCKED : CPU_PLAIN;
}

bool ls__cpu_tiled(const cpu_builder *b, const ls_tensor *x)
{
    bool outside = x->role == LS__ROLE_INPUT || x->role == LS__ROLE_STATE;
    return outside ? x->sample_major : b->values[x->id].tiled;
}

int ls__cpu_gradient_slot(const cpu_builder *b, const ls_tensor *x)
{
    return b->slot[x->id];
}

void ls__cpu_rows(const cpu_builder *b, const ls_tensor *x, bool tiled, int64_t rows[2])
{
    const cpu_program *p = b->program;
    rows[0] = x->rank ? x->shape[0] : 1;
    rows[1] = 0;
    if (!tiled) return;
    int64_t each = x->shape[0] / p->batch;
    rows[0] = each * p->tile;
    rows[1] = each * (p->batch % p->tile);
}

cpu_extent ls__cpu_extent(const cpu_builder *b, const ls_tensor *x)
{
    int64_t all = x->rank ? x->shape[0] : 1;
    return (cpu_extent) { .each = all / b->program->batch, .all = all };
}

/* --- buffers --- */

static ls_status add_buffer(cpu_builder *b, const cpu_buffer *buffer, int *out)
{
    cpu_program *p = b->program;
    LS_TRY(grow(&p->buffers, p->nbuffers, &b->buffer_room, sizeof *p->buffers));
    *out = p->nbuffers++;
    p->buffers[*out] = *buffer;
    p->buffers[*out].root = *out;
    return LS_OK;
}

static ls_status outside(cpu_builder *b, const ls_tensor *x, int *buffer)
{
    size_t nbytes = ls__cpu_nbytes(b->program, x, CPU_PLAIN);
    cpu_buffer outer = { .nbytes = nbytes, .slot = x->slot };
    if (x->role == LS__ROLE_INPUT || x->role == LS__ROLE_STATE) {
        outer.space = x->role == LS__ROLE_INPUT ? CPU_FIELD : CPU_STATE;
        outer.per_sample = x->sample_major ? nbytes / (size_t)b->program->batch : 0;
    } else if (x->role == LS__ROLE_CONSTANT) {
        outer.space = CPU_CONSTANT;
        outer.constant = x->values;
    } else {
        outer.space = CPU_PARAM;
    }
    return add_buffer(b, &outer, buffer);
}

static ls_status flush_finishers(cpu_builder *b);

static ls_status make_layout(cpu_builder *b, const ls_tensor *x, cpu_layout layout);

/* The run keeps parameters as bf16 too: nothing to convert. */
static bool is_kept_as_half(const cpu_builder *b, const ls_tensor *x, cpu_layout layout)
{
    return layout == CPU_HALF && x->role == LS__ROLE_PARAM &&
           ls__graph_options_of(b->graph)->halves;
}

/* Between blocked and the others the way leads over plain. */
static ls_status copy_as(cpu_builder *b, const ls_tensor *x, cpu_layout layout)
{
    cpu_value *value = &b->values[x->id];
    bool half = value->buffer[CPU_HALF] >= 0 && layout != CPU_BLOCKED;
    bool blocked = !half && layout == CPU_PLAIN;
    bool tiled = ls__cpu_tiled(b, x);
    size_t nbytes = ls__cpu_nbytes(b->program, x, layout);
    cpu_buffer copy = { .nbytes = nbytes,
                        .per_sample = tiled ? nbytes / (size_t)b->program->batch : 0 };
    cpu_layout source = half ? CPU_HALF : blocked ? CPU_BLOCKED : CPU_PLAIN;
    LS_TRY(make_layout(b, x, source));
    int from = value->buffer[source], to;
    LS_TRY(add_buffer(b, &copy, &to));
    value->buffer[layout] = to;
    return blocked || layout == CPU_BLOCKED
               ? ls__cpu_reorder(b, x, from, to, layout, tiled)
               : ls__cpu_convert(b, x, from, source, to, layout, tiled);
}

static ls_status make_layout(cpu_builder *b, const ls_tensor *x, cpu_layout layout)
{
    cpu_value *value = &b->values[x->id];
    bool there = false;
    for (int i = 0; i < CPU_LAYOUTS; i++) there |= value->buffer[i] >= 0;
    LS_ASSERT(there || x->role != LS__ROLE_VALUE);
    if (!there) LS_TRY(outside(b, x, &value->buffer[CPU_PLAIN]));
    if (value->buffer[layout] < 0 && is_kept_as_half(b, x, layout))
        return add_buffer(b,
                          &(cpu_buffer) { .space = CPU_HALVES,
                                          .nbytes = ls__cpu_nbytes(b->program, x, CPU_HALF),
                                          .slot = x->slot },
                          &value->buffer[layout]);
    return value->buffer[layout] < 0 ? copy_as(b, x, layout) : LS_OK;
}

ls_status ls__cpu_read(cpu_builder *b, const ls_tensor *x, cpu_layout layout, int *buffer)
{
    /* A kernel that knows f32 only may have computed it: nobody is to see more than bf16 holds. */
    if (x->half && layout == CPU_PLAIN) layout = CPU_ROUNDED;
    if (b->unfinished[x->id]) LS_TRY(flush_finishers(b));
    LS_TRY(make_layout(b, x, layout));
    *buffer = b->values[x->id].buffer[layout];
    return LS_OK;
}

ls_status ls__cpu_make_plain(cpu_builder *b, const ls_tensor *x)
{
    if (b->unfinished[x->id]) LS_TRY(flush_finishers(b));
    return b->values[x->id].buffer[CPU_HALF] < 0 ? make_layout(b, x, CPU_PLAIN) : LS_OK;
}

ls_status ls__cpu_write(cpu_builder *b, const ls_tensor *x, cpu_layout layout, bool tiled,
                        int *buffer)
{
    size_t nbytes = ls__cpu_nbytes(b->program, x, layout);
    cpu_buffer made = { .nbytes = nbytes,
                        .per_sample = tiled ? nbytes / (size_t)b->program->batch : 0 };
    int slot = ls__cpu_gradient_slot(b, x);
    if (slot >= 0) {
        LS_ASSERT(layout == CPU_PLAIN && x->type == LS_DTYPE_F32);
        made.space = CPU_GRAD;
        made.slot = slot;
    }
    LS_TRY(add_buffer(b, &made, buffer));
    b->values[x->id].buffer[layout] = *buffer;
    b->values[x->id].tiled = tiled;
    return LS_OK;
}

ls_status ls__cpu_write_over(cpu_builder *b, const ls_tensor *x, cpu_layout layout, bool tiled,
                             const ls_tensor *in, int in_buffer, int *buffer)
{
    LS_TRY(ls__cpu_write(b, x, layout, tiled, buffer));
    cpu_buffer *made = &b->program->buffers[*buffer];
    const cpu_buffer *old = &b->program->buffers[in_buffer];
    bool last_read = in->role == LS__ROLE_VALUE && b->reads[b->root[in->id]] == 1;
    bool same = old->space == CPU_ARENA && made->space == CPU_ARENA &&
                old->nbytes == made->nbytes && old->per_sample == made->per_sample;
    if (last_read && same) made->root = old->root;
    return LS_OK;
}

ls_status ls__cpu_temporary(cpu_builder *b, size_t nbytes, int *buffer)
{
    return add_buffer(b, &(cpu_buffer) { .nbytes = nbytes, .temporary = true }, buffer);
}

ls_status ls__cpu_shared(cpu_builder *b, size_t nbytes, size_t per_lane, int *buffer)
{
    return add_buffer(b, &(cpu_buffer) { .nbytes = nbytes, .per_lane = per_lane }, buffer);
}

/* --- steps --- */

static cpu_step make_step(const cpu_builder *b, const cpu_step_spec *spec, const int *buffers,
                          int n)
{
    LS_ASSERT(n <= CPU_STEP_BUFFERS);
    cpu_step step = { .run = spec->run,
                      .state = spec->state,
                      .destroy = spec->destroy,
                      .tiled = !spec->whole,
                      .ntasks = spec->ntasks ? spec->ntasks : 1,
                      .nbuffers = n,
                      .node = b->current,
                      .partner = b->partner[b->current],
                      .what = spec->what };
    memcpy(step.buffers, buffers, (size_t)n * sizeof *buffers);
    return step;
}

static ls_status append(const cpu_builder *b, cpu_step **steps, int *count, int *room,
                        const cpu_step_spec *spec, const int *buffers, int n)
{
    ls_status status = grow(steps, *count, room, sizeof **steps);
    if (status == LS_OK)
        (*steps)[(*count)++] = make_step(b, spec, buffers, n);
    else if (spec->destroy)
        spec->destroy(spec->state);
    return status;
}

ls_status ls__cpu_step(cpu_builder *b, const cpu_step_spec *spec, const int *buffers, int n)
{
    cpu_program *p = b->program;
    return append(b, &p->steps, &p->nsteps, &b->step_room, spec, buffers, n);
}

ls_status ls__cpu_step_first(cpu_builder *b, const cpu_step_spec *spec, const int *buffers, int n)
{
    return append(b, &b->prologue, &b->nprologue, &b->prologue_room, spec, buffers, n);
}

ls_status ls__cpu_finish(cpu_builder *b, const cpu_step_spec *spec, const int *buffers, int n,
                         const ls_tensor *const *written, int nwritten)
{
    LS_TRY(append(b, &b->finishers, &b->nfinishers, &b->finisher_room, spec, buffers, n));
    for (int i = 0; i < nwritten; i++) b->unfinished[written[i]->id] = true;
    return LS_OK;
}

static ls_status flush_finishers(cpu_builder *b)
{
    cpu_program *p = b->program;
    for (int i = 0; i < b->nfinishers; i++) {
        LS_TRY(grow(&p->steps, p->nsteps, &b->step_room, sizeof *p->steps));
        p->steps[p->nsteps++] = b->finishers[i];
        b->finishers[i].destroy = NULL; /* the program's now */
    }
    b->nfinishers = 0;
    memset(b->unfinished, 0, (size_t)b->ntensors * sizeof *b->unfinished);
    return LS_OK;
}

static ls_status put_prologue_first(cpu_builder *b)
{
    cpu_program *p = b->program;
    int n = b->nprologue;
    if (n == 0) return LS_OK;
    cpu_step *all = ls__alloc((size_t)(n + p->nsteps), sizeof *all);
    if (!all) return LS_ERR_MEMORY;
    memcpy(all, b->prologue, (size_t)n * sizeof *all);
    if (p->nsteps) memcpy(all + n, p->steps, (size_t)p->nsteps * sizeof *all);
    ls__free(p->steps);
    p->steps = all;
    p->nsteps += n;
    b->nprologue = 0;
    return LS_OK;
}

ls_status ls__cpu_close(cpu_builder *b)
{
    LS_TRY(flush_finishers(b));
    return put_prologue_first(b);
}
