/* A graph becomes an executable: a list of steps, and memory for them.
 *
 * Everything that can fail for want of memory fails here: the arena, pinned memory, constants. Only
 * the copies of the flat spaces wait for the first run, which says how large they are. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"

enum { ALIGNMENT = 256 }; /* of what shares a block of memory */

static size_t align(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t ls__cuda_stored_bytes(const ls_tensor *x)
{
    return (size_t)ls__cuda_count(x) * (x->half ? 2 : ls_dtype_size(x->type));
}

/* --- steps --- */

/* Behind the operation's own workspace: f32 for what is stored as bf16. */
static void add_roundings(cuda_step *s, size_t *nbytes)
{
    for (int k = 0; s->op && s->op->writes_f32 && k < s->node->nout; k++) {
        if (!s->node->out[k]->half) continue;
        *nbytes = align(*nbytes);
        s->roundings[s->nroundings++] = (cuda_rounding) { k, *nbytes };
        *nbytes += (size_t)ls__cuda_count(s->node->out[k]) * sizeof(float);
    }
}

static ls_status make_step(ls__executable *e, const ls__node *node)
{
    cuda_step *s = &e->steps[e->nsteps];
    *s = (cuda_step) { .node = node, .op = ls__cuda_op(node->op), .workspace = -1 };
    s->call.node = node;
    if (!s->op && !node->op->compute)
        return ls_fail(LS_ERR_UNSUPPORTED, "not on this device yet: %s", node->op->name);
    e->nsteps++;
    if (!s->op) return ls__cuda_user_op_create(node, &s->user);
    s->own_bytes = s->op->workspace ? s->op->workspace(node) : 0;
    return LS_OK;
}

static ls_status make_steps(ls__executable *e)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(e->graph, &nodes);
    e->steps = ls__alloc((size_t)n + 1, sizeof *e->steps);
    e->pieces = ls__alloc((size_t)(e->ntensors + n) + 1, sizeof *e->pieces);
    if (!e->steps || !e->pieces) return LS_ERR_MEMORY;
    e->npieces = e->ntensors; /* a tensor's piece has its id */
    for (int i = 0; i < n; i++) {
        if (nodes[i].op == &ls__op_reshape) continue; /* a view */
        if (ls__cuda_is_absorbed(e, i)) continue;
        LS_TRY(make_step(e, &nodes[i]));
        cuda_step *s = &e->steps[e->nsteps - 1];
        s->call.adds = ls__cuda_adds(e, i);
        size_t nbytes = s->own_bytes;
        add_roundings(s, &nbytes);
        if (nbytes == 0) continue;
        s->workspace = e->npieces++;
        e->pieces[s->workspace] = (ls__lifetime) { .nbytes = nbytes, .begin = i, .end = i };
    }
    return LS_OK;
}

/* --- what travels --- */

static ls_status add_travel(ls__executable *e, cuda_travel *list, int *n, const ls_tensor *x)
{
    cuda_travel *t = &list[(*n)++];
    *t = (cuda_travel) { .tensor = x, .nbytes = ls__cuda_stored_bytes(x), .at = e->pinned_bytes };
    e->pinned_bytes += align(t->nbytes);
    return LS_OK;
}

static ls_status add_result(ls__executable *e, const ls_tensor *x)
{
    if (!x) return LS_OK;
    int root = e->root[x->id];
    if (e->result[root] >= 0 || e->tensors[root]->role != LS__ROLE_VALUE ||
        e->place[root].space != CUDA_ARENA)
        return LS_OK;
    e->result[root] = e->nout;
    return add_travel(e, e->out, &e->nout, e->tensors[root]);
}

static ls_status find_travels(ls__executable *e)
{
    const ls__graph_result *results;
    int n = ls__graph_results(e->graph, &results);
    size_t room = (size_t)e->ntensors + 1;
    e->in = ls__alloc(room, sizeof *e->in);
    e->out = ls__alloc(room, sizeof *e->out);
    e->states = ls__alloc(room, sizeof *e->states);
    e->result = ls__alloc(room, sizeof *e->result);
    if (!e->in || !e->out || !e->states || !e->result) return LS_ERR_MEMORY;
    for (int i = 0; i < e->ntensors; i++) {
        const ls_tensor *x = e->tensors[i];
        e->result[i] = -1;
        if (e->root[i] != i || e->place[i].space != CUDA_ARENA) continue;
        if (x->role == LS__ROLE_INPUT) LS_TRY(add_travel(e, e->in, &e->nin, x));
        if (x->role == LS__ROLE_STATE) LS_TRY(add_travel(e, e->states, &e->nstates, x));
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < results[i].nvalues; k++) LS_TRY(add_result(e, results[i].values[k]));
        LS_TRY(add_result(e, results[i].weights));
    }
    return LS_OK;
}

/* --- memory --- */

static ls_status pin_memory(ls__executable *e)
{
    size_t values = align(2 * sizeof(cuda_values));
    LS_CUDA_TRY(cudaHostAlloc((void **)&e->pinned, e->pinned_bytes + values, cudaHostAllocDefault),
                "pinning memory for batches and results");
    e->host_values = (cuda_values *)(e->pinned + e->pinned_bytes);
    memset(e->host_values, 0, values);
    return LS_OK;
}

static ls_status copy_constants(ls__executable *e)
{
    size_t nbytes = align(sizeof(cuda_values));
    cuda_device *d = ls__cuda_device();
    for (int i = 0; i < e->ntensors; i++) {
        if (e->place[i].space != CUDA_CONSTANT) continue;
        e->place[i].offset = (int64_t)nbytes;
        nbytes += align(ls__cuda_stored_bytes(e->tensors[i]));
    }
    LS_TRY(ls__cuda_allocate(d, nbytes, "a graph's constants", (void **)&e->constants));
    e->constants_bytes = nbytes;
    e->values = (cuda_values *)e->constants;
    for (int i = 0; i < e->ntensors; i++) {
        if (e->place[i].space != CUDA_CONSTANT) continue;
        LS_TRY(ls__cuda_upload(d, e->constants + e->place[i].offset, e->tensors[i]->values,
                               ls__cuda_stored_bytes(e->tensors[i])));
    }
    return LS_OK;
}

static ls_status take_memory(ls__executable *e)
{
    cuda_device *d = ls__cuda_device();
    if (!d->apart) return ls__cuda_reserve(d, &d->arena, e->arena_bytes, "activations");
    e->apart = ls__alloc((size_t)e->npieces + 1, sizeof *e->apart);
    if (!e->apart) return LS_ERR_MEMORY;
    for (int i = 0; i < e->npieces; i++)
        if (e->pieces[i].nbytes)
            LS_TRY(ls__cuda_allocate(d, e->pieces[i].nbytes, "a tensor", &e->apart[i]));
    return LS_OK;
}

/* --- begin and end --- */

static ls_status build(ls__executable *e, const ls_graph *graph)
{
    e->graph = graph;
    e->ntensors = ls__graph_tensors(graph, &e->tensors);
    e->nparams = ls__graph_params(graph, &e->params);
    LS_TRY(ls__cuda_find_sums(e));
    LS_TRY(make_steps(e));
    LS_TRY(ls__cuda_plan(e));
    LS_TRY(find_travels(e));
    LS_TRY(pin_memory(e));
    LS_TRY(copy_constants(e));
    return take_memory(e);
}

static void free_executable(ls__executable *e)
{
    ls__cuda_forget_capture(e);
    for (int i = 0; i < e->nsteps; i++) ls__cuda_user_op_destroy(e->steps[i].user);
    for (int i = 0; e->apart && i < e->npieces; i++)
        if (e->apart[i]) cudaFree(e->apart[i]);
    if (e->constants) cudaFree(e->constants);
    if (e->pinned) cudaFreeHost(e->pinned);
    ls__cuda_ahead_free(e->ahead);
    ls__cuda_profile_free(e->profile);
    for (int i = 0; e->peeked && i < e->ntensors; i++) ls__free(e->peeked[i]);
    ls__free(e->peeked);
    ls__free(e->cuts);
    ls__free(e->apart);
    ls__free(e->steps);
    ls__free(e->sums);
    ls__free(e->pieces);
    ls__free(e->root);
    ls__free(e->place);
    ls__free(e->in);
    ls__free(e->out);
    ls__free(e->states);
    ls__free(e->result);
    ls__free(e->offsets);
    ls__free(e->stretches);
    ls__free(e);
}

static ls_status compile(cuda_device *d, const ls_graph *graph, ls__executable **out)
{
    ls__executable *e = ls__alloc(1, sizeof *e);
    if (!e) return LS_ERR_MEMORY;
    ls_status status = ls__cuda_take(d);
    if (status != LS_OK) {
        ls__free(e);
        return status;
    }
    status = build(e, graph);
    if (status == LS_OK) {
        *out = e;
        return LS_OK;
    }
    cudaStreamSynchronize(d->stream); /* constants may be on their way */
    free_executable(e);
    ls__cuda_release(d);
    return status;
}

ls_status ls__cuda_compile(const ls_graph *graph, ls__executable **out)
{
    cuda_device *d = ls__cuda_device();
    *out = NULL;
    LS_TRY(ls__cuda_enter(d));
    ls_status status = compile(d, graph, out);
    ls__cuda_leave(d);
    return status;
}

void ls__cuda_destroy(ls__executable *e)
{
    cuda_device *d = ls__cuda_device();
    if (!e) return;
    ls__cuda_enter_last(d);
    cudaStreamSynchronize(d->stream);
    free_executable(e);
    ls__cuda_release(d);
    ls__cuda_leave(d);
}

/* Of the host: all memory is the device's and the plugin's own. */
size_t ls__cuda_arena_bytes(const ls__executable *e)
{
    (void)e;
    return 0;
}

size_t ls__cuda_device_bytes(const ls__executable *e)
{
    return e->arena_bytes;
}

size_t ls__cuda_own_bytes(const ls__executable *e)
{
    bool trains = ls__graph_options_of(e->graph)->stage == LS_STAGE_TRAIN;
    return e->constants_bytes + (trains ? ls__cuda_ahead_bytes(e) : 0);
}
