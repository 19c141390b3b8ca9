/* A graph under construction: its tensors, inputs, parameters and constants, and the first failure.
 *
 * Nothing here returns a status: a step function reads as the formula it is, and the first thing
 * that went wrong is kept with its text until the build reports it. Graphs have some tens to some
 * thousands of nodes and are built a few times per run, so lists are searched linearly. */
#include "graph/construct.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

struct ls__owned {
    struct ls__owned *next;
    _Alignas(max_align_t) unsigned char bytes[];
};

ls_tensor *ls__graph_fail(ls_graph *g, ls_status status, const char *format, ...)
{
    if (!g || g->status != LS_OK) return NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(g->failure, sizeof g->failure, format, args);
    va_end(args);
    g->status = status;
    return NULL;
}

bool ls__graph_forgives_null(const ls_graph *g)
{
    return g->status != LS_OK || g->missing_input;
}

void *ls__graph_alloc(ls_graph *g, size_t nbytes)
{
    struct ls__owned *block = ls__alloc(1, sizeof *block + nbytes);
    if (!block) {
        ls__graph_fail(g, LS_ERR_MEMORY, "%s", ls_error_text());
        return NULL;
    }
    block->next = g->owned;
    g->owned = block;
    return block->bytes;
}

const char *ls__graph_strdup(ls_graph *g, const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = ls__graph_alloc(g, nbytes);
    return copy ? memcpy(copy, text, nbytes) : NULL;
}

bool ls__graph_grow(ls_graph *g, void *items, int count, int *room, size_t size)
{
    if (count < *room) return true;
    int wanted = *room ? 2 * *room : 32;
    void *old, *grown;
    memcpy(&old, items, sizeof old); /* items points to a pointer of any type */
    grown = ls__realloc(old, (size_t)wanted, size);
    if (!grown) {
        ls__graph_fail(g, LS_ERR_MEMORY, "%s", ls_error_text());
        return false;
    }
    memcpy(items, &grown, sizeof grown);
    *room = wanted;
    return true;
}

void ls__graph_destroy(ls_graph *g)
{
    if (!g) return;
    for (struct ls__owned *block = g->owned, *next; block; block = next) {
        next = block->next;
        ls__free(block);
    }
    ls__free(g->tensors);
    ls__free(g->nodes);
    ls__free(g->params);
    ls__free(g->results);
    ls__free(g->kept);
    ls__free(g->states);
    ls__free(g);
}

/* --- tensors --- */

ls_tensor *ls__graph_tensor(ls_graph *g, ls__role role, const ls_array *shape)
{
    if (!ls__graph_grow(g, &g->tensors, g->ntensors, &g->tensor_room, sizeof(ls_tensor *)))
        return NULL;
    ls_tensor *x = ls__graph_alloc(g, sizeof *x);
    if (!x) return NULL;
    *x = (ls_tensor) { .graph = g,
                       .role = role,
                       .type = shape->type,
                       .rank = shape->rank,
                       .id = g->ntensors,
                       .node = -1,
                       .slot = -1 };
    memcpy(x->shape, shape->shape, sizeof x->shape);
    g->tensors[g->ntensors++] = x;
    return x;
}

int64_t ls__tensor_count(const ls_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->shape[i];
    return count;
}

bool ls__tensor_same_shape(const ls_tensor *a, const ls_tensor *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

ls_array ls__tensor_array(const ls_tensor *x)
{
    ls_array array = { .type = x->type, .rank = x->rank };
    memcpy(array.shape, x->shape, sizeof array.shape);
    return array;
}

static int print_dim(const ls_tensor *x, int i, char *out, size_t room)
{
    int64_t batch = x->graph->options.batch, n = x->shape[i];
    if (i > 0 || !x->sample_major) return snprintf(out, room, "%lld", (long long)n);
    if (n == batch) return snprintf(out, room, "B");
    return snprintf(out, room, "B*%lld", (long long)(n / batch));
}

const char *ls__tensor_text(const ls_tensor *x, char out[LS__TENSOR_TEXT])
{
    size_t used = 0;
    bool named = x->role == LS__ROLE_PARAM || x->role == LS__ROLE_STATISTIC;
    if (named)
        used = (size_t)snprintf(out, LS__TENSOR_TEXT, "%.90s ", x->graph->params[x->slot].name);
    out[used++] = '(';
    for (int i = 0; i < x->rank; i++) {
        if (i > 0) out[used++] = ',';
        used += (size_t)print_dim(x, i, out + used, LS__TENSOR_TEXT - used);
    }
    snprintf(out + used, LS__TENSOR_TEXT - used, ")%s%s", x->type == LS_DTYPE_F32 ? "" : " ",
             x->type == LS_DTYPE_F32 ? "" : ls_dtype_name(x->type));
    return out;
}

int ls_tensor_rank(const ls_tensor *x)
{
    return x ? x->rank : 0;
}

int64_t ls_tensor_dim(const ls_tensor *x, int i)
{
    if (!x) return 0;
    int dim = i < 0 ? x->rank + i : i;
    if (dim >= 0 && dim < x->rank) return x->shape[dim];
    char text[LS__TENSOR_TEXT];
    ls__graph_fail(x->graph, LS_ERR_SHAPE, "ls_tensor_dim: %s has no dimension %d",
                   ls__tensor_text(x, text), i);
    return 0;
}

ls_dtype ls_tensor_dtype(const ls_tensor *x)
{
    return x ? x->type : LS_DTYPE_F32;
}

/* --- what a step function starts from --- */

ls_stage ls_graph_stage(const ls_graph *g)
{
    return g->options.stage;
}

const char *ls_name(ls_graph *g, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *name = length < 0 ? NULL : ls__graph_alloc(g, (size_t)length + 1);
    if (name) vsnprintf(name, (size_t)length + 1, format, again);
    va_end(again);
    return name ? name : "";
}

static int find_field(const ls_graph *g, const char *name)
{
    for (int i = 0; i < g->options.nfields; i++)
        if (!strcmp(g->options.fields[i].name, name)) return i;
    return -1;
}

static ls_tensor *missing_field(ls_graph *g, const char *name)
{
    if (g->options.stage == LS_STAGE_PREDICT) {
        g->missing_input = true;
        return NULL;
    }
    char names[512] = "";
    size_t used = 0;
    for (int i = 0; i < g->options.nfields && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 g->options.fields[i].name);
    return ls__graph_fail(g, LS_ERR_DATA, "input \"%s\": the data has no such field (it has: %s)",
                          name, g->options.nfields ? names : "none");
}

ls_tensor *ls_input(ls_graph *g, const char *field)
{
    if (!g || g->status != LS_OK) return NULL;
    if (!field) return ls__graph_fail(g, LS_ERR_ARG, "ls_input: the field's name is NULL");
    int slot = find_field(g, field);
    if (slot < 0) return missing_field(g, field);
    for (int i = 0; i < g->ntensors; i++)
        if (g->tensors[i]->role == LS__ROLE_INPUT && g->tensors[i]->slot == slot)
            return g->tensors[i];

    const ls_field *f = &g->options.fields[slot];
    if (f->rank < 0 || f->rank >= LS_MAX_RANK)
        return ls__graph_fail(g, LS_ERR_SHAPE,
                              "input \"%s\": %d dimensions per sample, at most %d are possible",
                              field, f->rank, LS_MAX_RANK - 1);
    ls_array shape = { .type = f->type, .rank = f->rank + 1, .shape = { g->options.batch } };
    for (int i = 0; i < f->rank; i++) {
        if (f->shape[i] < 1)
            return ls__graph_fail(g, LS_ERR_SHAPE, "input \"%s\": dimension %d of a sample is %lld",
                                  field, i, (long long)f->shape[i]);
        shape.shape[i + 1] = f->shape[i];
    }
    ls_tensor *x = ls__graph_tensor(g, LS__ROLE_INPUT, &shape);
    if (!x) return NULL;
    x->slot = slot;
    x->batched = x->sample_major = true;
    x->differentiable = g->options.input_gradients && f->type == LS_DTYPE_F32;
    return x;
}

/* Checks a shape given by the user; what is for the message. */
static bool check_shape(ls_graph *g, const char *what, const char *name, int rank,
                        const int64_t *shape)
{
    if (rank < 0 || rank > LS_MAX_RANK || (rank > 0 && !shape)) {
        ls__graph_fail(g, LS_ERR_SHAPE, "%s \"%s\": rank %d is not in [0, %d]", what, name, rank,
                       LS_MAX_RANK);
        return false;
    }
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 1 || __builtin_mul_overflow(count, shape[i], &count) ||
            count > INT64_MAX / 16) {
            ls__graph_fail(g, LS_ERR_SHAPE, "%s \"%s\": dimension %d is %lld", what, name, i,
                           (long long)shape[i]);
            return false;
        }
    }
    return true;
}

static ls_array array_of(int rank, const int64_t *shape)
{
    ls_array array = { .type = LS_DTYPE_F32, .rank = rank };
    for (int i = 0; i < rank; i++) array.shape[i] = shape[i];
    return array;
}

static ls_tensor *known_param(ls_graph *g, int i, ls__role role, const ls_array *shape)
{
    const ls__graph_param *p = &g->params[i];
    ls_tensor wanted = { .graph = g, .rank = shape->rank };
    memcpy(wanted.shape, shape->shape, sizeof wanted.shape);
    if (p->role != role)
        return ls__graph_fail(
            g, LS_ERR_ARG, "\"%s\" is the name of a parameter and of a running statistic", p->name);
    if (ls__tensor_same_shape(p->tensor, &wanted)) return p->tensor;
    char first[LS__TENSOR_TEXT], second[LS__TENSOR_TEXT];
    return ls__graph_fail(g, LS_ERR_SHAPE,
                          "parameter %s exists and is asked for again as %s: give it another name",
                          ls__tensor_text(p->tensor, first), ls__tensor_text(&wanted, second));
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static ls_tensor *add_param(ls_graph *g, const char *name, const ls_init *init, ls__role role,
                            const ls_array *shape)
{
    for (int i = 0; i < g->nparams; i++)
        if (!strcmp(g->params[i].name, name)) return known_param(g, i, role, shape);
    const char *copy = ls__graph_strdup(g, name);
    if (!copy || !ls__graph_grow(g, &g->params, g->nparams, &g->param_room, sizeof *g->params))
        return NULL;
    ls_tensor *x = ls__graph_tensor(g, role, shape);
    if (!x) return NULL;
    x->slot = g->nparams;
    x->learned = x->differentiable = role == LS__ROLE_PARAM;
    g->params[g->nparams++] =
        (ls__graph_param) { .tensor = x,
                            .name = copy,
                            .init = init ? *init : (ls_init) { .kind = LS_INIT_ZEROS },
                            .role = role,
                            .decays = role == LS__ROLE_PARAM && shape->rank > 1 &&
                                      !ends_with(name, ".bias") };
    return x;
}

ls_tensor *ls_param(ls_graph *g, const char *name, const ls_init *init, int rank,
                    const int64_t *shape)
{
    if (!g || g->status != LS_OK) return NULL;
    if (!name || !*name) return ls__graph_fail(g, LS_ERR_ARG, "ls_param: a parameter needs a name");
    if (g->missing_input)
        for (int i = 0; i < rank && shape; i++)
            if (shape[i] == 0) return NULL; /* a dimension of a tensor that is not there */
    if (!check_shape(g, "parameter", name, rank, shape)) return NULL;
    if (init &&
        ((int)init->kind < LS_INIT_ZEROS || init->kind > LS_INIT_NORMAL || !isfinite(init->scale)))
        return ls__graph_fail(g, LS_ERR_ARG, "parameter \"%s\": init kind %d with scale %g", name,
                              (int)init->kind, init->scale);
    ls_array array = array_of(rank, shape);
    return add_param(g, name, init, LS__ROLE_PARAM, &array);
}

ls_tensor *ls_constant(ls_graph *g, const float *values, int rank, const int64_t *shape)
{
    if (!g || g->status != LS_OK) return NULL;
    if (!values) return ls__graph_fail(g, LS_ERR_ARG, "ls_constant: values is NULL");
    if (!check_shape(g, "constant", "", rank, shape)) return NULL;
    ls_array array = array_of(rank, shape);
    size_t nbytes = (size_t)ls_array_count(&array) * sizeof *values;
    float *copy = ls__graph_alloc(g, nbytes);
    ls_tensor *x = copy ? ls__graph_tensor(g, LS__ROLE_CONSTANT, &array) : NULL;
    if (!x) return NULL;
    memcpy(copy, values, nbytes);
    x->values = copy;
    return x;
}

ls_tensor *ls__graph_statistic(ls_graph *g, const char *name, double first, double momentum,
                               int64_t count)
{
    if (!g || g->status != LS_OK) return NULL;
    if (!check_shape(g, "statistic", name, 1, &count)) return NULL;
    ls_array array = array_of(1, &count);
    ls_init init = { .kind = LS_INIT_CONSTANT, .scale = first };
    ls_tensor *x = add_param(g, name, &init, LS__ROLE_STATISTIC, &array);
    if (x) g->params[x->slot].momentum = momentum;
    return x;
}

void ls__graph_statistic_sum(ls_graph *g, ls_tensor *statistic, ls_tensor *sum)
{
    if (!statistic || !sum || g->status != LS_OK) return;
    ls__graph_param *p = &g->params[statistic->slot];
    if (p->grad) {
        ls__graph_fail(g, LS_ERR_UNSUPPORTED,
                       "\"%s\" is moved by two layers of that name: give each its own name",
                       p->name);
        return;
    }
    p->grad = sum;
}

/* --- what a backend and the trainer read --- */

int ls__graph_nodes(const ls_graph *g, const ls__node **nodes)
{
    if (nodes) *nodes = g->nodes;
    return g->nnodes;
}

int ls__graph_tensors(const ls_graph *g, ls_tensor *const **tensors)
{
    if (tensors) *tensors = g->tensors;
    return g->ntensors;
}

int ls__graph_params(const ls_graph *g, const ls__graph_param **params)
{
    if (params) *params = g->params;
    return g->nparams;
}

int ls__graph_results(const ls_graph *g, const ls__graph_result **results)
{
    if (results) *results = g->results;
    return g->nresults;
}

const ls__graph_options *ls__graph_options_of(const ls_graph *g)
{
    return &g->options;
}

void ls__graph_layer(ls_graph *g, const char *name)
{
    g->layer = name;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    return b ? greatest_common_divisor(b, a % b) : a;
}

void ls__graph_needs_group(ls_graph *g, int64_t group)
{
    int64_t factor = group / greatest_common_divisor(g->group, group);
    if (__builtin_mul_overflow(g->group, factor, &g->group))
        ls__graph_fail(g, LS_ERR_ARG, "batch norm: the groups have no common multiple");
}

int64_t ls__graph_group(const ls_graph *g)
{
    return g->group;
}
