/* Embeddings of tokens and positions: rows copied in the forward pass; in the backward pass summed
 * when the tiles are done.
 *
 * A table may have 50,000 rows of which a micro-batch names a few hundred. A gradient per lane, or
 * one cleared for each tile, would cost more than the layer; so all rows of the micro-batch are
 * scattered at the end, token after token, by threads that own columns. Where the table is tied to
 * a linear layer, the rows are added where that layer's gradient lies: nothing is cleared, and
 * there is no second table. */
#include "backend/cpu/integers.h"

#include <string.h>

typedef struct embedding {
    cpu_extent rows; /* of the tokens' first dimension */
    int64_t each;    /* tokens of such a row */
    int64_t per_sample;
    int64_t count, width; /* of the table */
    int64_t part;         /* what a task of a whole step takes: columns, floats or positions */
    int64_t length;       /* tokens of a sample, for positions */
    ls_dtype type;
    bool positioned;
} embedding;

static int64_t tokens_of(const cpu_call *call)
{
    const embedding *e = call->step->state;
    return ls__cpu_extent_rows(call, &e->rows) * e->each;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- tokens --- */

static void run_embedding(const cpu_call *call)
{
    const embedding *e = call->step->state;
    const void *tokens = ls__cpu_at(call, 0);
    const float *table = ls__cpu_at(call, 1); /* (count, width) */
    float *y = ls__cpu_at(call, 2);
    size_t row = (size_t)e->width * sizeof *y;
    int64_t n = tokens_of(call);
    for (int64_t i = 0; i < n; i++) {
        int64_t token = ls__cpu_integer(e->type, tokens, i);
        if (token >= 0 && token < e->count) {
            memcpy(y + i * e->width, table + token * e->width, row);
            continue;
        }
        ls__cpu_note(call, "token", call->begin + i / e->per_sample, token, e->count);
        memset(y + i * e->width, 0, row);
    }
}

static void run_clear(const cpu_call *call)
{
    const embedding *e = call->step->state;
    float *table = ls__cpu_at(call, 0);
    int64_t begin = call->task * e->part;
    memset(table + begin, 0, (size_t)least(e->part, e->count * e->width - begin) * sizeof *table);
}

static void run_scatter(const cpu_call *call)
{
    const embedding *e = call->step->state;
    int64_t begin = call->task * e->part, columns = least(e->part, e->width - begin);
    const float *g = (const float *)ls__cpu_at(call, 0) + begin;
    const void *tokens = ls__cpu_at(call, 1);
    float *table = (float *)ls__cpu_at(call, 2) + begin;
    int64_t n = tokens_of(call);
    for (int64_t i = 0; i < n; i++) {
        int64_t token = ls__cpu_integer(e->type, tokens, i);
        if (token < 0 || token >= e->count) continue; /* noted in the forward pass */
        ls__cpu_add_floats(table + token * e->width, g + i * e->width, columns);
    }
}

/* --- positions --- */

/* The first row of the table that the sample's tokens get; 0 after noting one beyond it. */
static int64_t first_position(const cpu_call *call, const embedding *e, int64_t sample)
{
    if (!e->positioned) return 0;
    int64_t position = ((const int32_t *)ls__cpu_at(call, 3))[sample];
    if (position >= 0 && position + e->length <= e->count) return position;
    ls__cpu_note(call, "position", call->begin + sample,
                 position < 0 ? position : position + e->length - 1, e->count);
    return 0;
}

LS__CPU_CLONES static void add_rows(const float *x, const float *rows, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] + rows[i];
}

static void run_position_embedding(const cpu_call *call)
{
    const embedding *e = call->step->state;
    const float *x = ls__cpu_at(call, 0), *table = ls__cpu_at(call, 1);
    float *y = ls__cpu_at(call, 2);
    int64_t samples = ls__cpu_extent_rows(call, &e->rows), each = e->length * e->width;
    for (int64_t b = 0; b < samples; b++)
        add_rows(x + b * each, table + first_position(call, e, b) * e->width, y + b * each, each);
}

/* Positions [begin, end) of all samples, sample after sample. */
static void run_position_sum(const cpu_call *call)
{
    const embedding *e = call->step->state;
    const float *g = ls__cpu_at(call, 0); /* (B,T,C) */
    float *table = ls__cpu_at(call, 1);
    int64_t begin = call->task * e->part, end = least(begin + e->part, e->count);
    int64_t used = least(end, e->length), n = (used - begin) * e->width;
    memset(table + begin * e->width, 0, (size_t)((end - begin) * e->width) * sizeof *table);
    for (int64_t b = 0; b < e->rows.all && n > 0; b++)
        ls__cpu_add_floats(table + begin * e->width, g + (b * e->length + begin) * e->width, n);
}

/* --- lowering --- */

/* like: the tensor whose rows are counted, of which each row is one token's. */
static embedding *make_embedding(const cpu_builder *b, const ls_tensor *like, int64_t tokens,
                                 int64_t count, int64_t width)
{
    embedding *e = ls__alloc(1, sizeof *e);
    if (!e) return NULL;
    *e = (embedding) { .rows = ls__cpu_extent(b, like), .count = count, .width = width };
    e->each = tokens / e->rows.all;
    e->per_sample = tokens / b->program->batch > 0 ? tokens / b->program->batch : 1;
    e->type = like->type;
    return e;
}

ls_status ls__cpu_embedding(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *tokens = task->node->in[0], *table = task->node->in[1];
    bool tiled = ls__cpu_tiled(b, tokens);
    int buffers[3];
    LS_TRY(ls__cpu_read(b, tokens, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_read(b, table, CPU_PLAIN, &buffers[1]));
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, tiled, &buffers[2]));
    embedding *e =
        make_embedding(b, tokens, ls__cpu_count(tokens), table->shape[0], table->shape[1]);
    if (!e) return LS_ERR_MEMORY;
    cpu_step_spec spec = { .run = run_embedding, .state = e, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, 3);
}

static int64_t tasks_of(int64_t size, int64_t part)
{
    return (size + part - 1) / part;
}

/* The table begins as zeros. */
static ls_status add_clear(cpu_builder *b, const ls_tensor *out, int buffer)
{
    enum { CHUNK = 1 << 18 };
    int64_t rows = out->shape[0], width = out->shape[1];
    embedding *e = make_embedding(b, out, rows, rows, width);
    if (!e) return LS_ERR_MEMORY;
    e->part = CHUNK;
    cpu_step_spec spec = { .run = run_clear,
                           .state = e,
                           .destroy = ls__free,
                           .whole = true,
                           .ntasks = tasks_of(rows * width, CHUNK) };
    return ls__cpu_finish(b, &spec, &buffer, 1, &out, 1);
}

/* Columns for one task: whole registers, as many tasks as threads. Bits do not depend on it. */
static int64_t column_part(int64_t width)
{
    int64_t each = (width + ls__cpu_pool()->threads - 1) / ls__cpu_pool()->threads;
    return (each + 15) / 16 * 16;
}

ls_status ls__cpu_embedding_grad(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *g = task->node->in[0], *tokens = task->node->in[1], *out = task->out;
    int buffers[3];
    LS_TRY(ls__cpu_read(b, g, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_read(b, tokens, CPU_PLAIN, &buffers[1]));
    if (task->onto) {
        buffers[2] = b->values[task->onto->id].buffer[CPU_PLAIN];
        b->values[out->id] = ls__cpu_plain_value(buffers[2], false);
    } else {
        LS_TRY(ls__cpu_write(b, out, CPU_PLAIN, false, &buffers[2]));
        LS_TRY(add_clear(b, out, buffers[2]));
    }
    embedding *e = make_embedding(b, tokens, ls__cpu_count(tokens), out->shape[0], out->shape[1]);
    if (!e) return LS_ERR_MEMORY;
    e->part = column_part(e->width);
    cpu_step_spec spec = { .run = run_scatter,
                           .state = e,
                           .destroy = ls__free,
                           .whole = true,
                           .ntasks = tasks_of(e->width, e->part) };
    return ls__cpu_finish(b, &spec, buffers, 3, &out, 1);
}

ls_status ls__cpu_position_embedding(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0], *table = node->in[1];
    bool tiled = ls__cpu_tiled(b, x) && (node->nin == 2 || ls__cpu_tiled(b, node->in[2]));
    int buffers[4];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_read(b, table, CPU_PLAIN, &buffers[1]));
    if (node->nin == 3) LS_TRY(ls__cpu_read(b, node->in[2], CPU_PLAIN, &buffers[3]));
    LS_TRY(ls__cpu_write_over(b, task->out, CPU_PLAIN, tiled, x, buffers[0], &buffers[2]));
    embedding *e =
        make_embedding(b, x, x->shape[0] * x->shape[1], table->shape[0], table->shape[1]);
    if (!e) return LS_ERR_MEMORY;
    e->length = x->shape[1];
    e->positioned = node->nin == 3;
    cpu_step_spec spec = {
        .run = run_position_embedding, .state = e, .destroy = ls__free, .whole = !tiled
    };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}

ls_status ls__cpu_position_embedding_grad(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *g = task->node->in[0], *out = task->out;
    int buffers[2];
    LS_TRY(ls__cpu_read(b, g, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_write(b, out, CPU_PLAIN, false, &buffers[1]));
    embedding *e = make_embedding(b, g, g->shape[0] * g->shape[1], out->shape[0], out->shape[1]);
    if (!e) return LS_ERR_MEMORY;
    e->length = g->shape[1];
    e->part = (e->count + 4 * ls__cpu_pool()->threads - 1) / (4 * ls__cpu_pool()->threads);
    cpu_step_spec spec = { .run = run_position_sum,
                           .state = e,
                           .destroy = ls__free,
                           .whole = true,
                           .ntasks = tasks_of(e->count, e->part) };
    return ls__cpu_finish(b, &spec, buffers, 2, &out, 1);
}
