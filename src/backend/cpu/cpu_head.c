/* The head of a language model, a block of rows after the other: scores, their softmax, the losses,
 * and when training the gradients of the scores (in place), of the weights and of the inputs.
 *
 * With 50,257 classes the scores of 1,000 rows are 200 MB and their gradient as many again; here one
 * block of at most BLOCK_BYTES exists. It is cut by classes into pieces that a second-level cache
 * holds: a task multiplies a piece, and takes the rows' maxima and sums of exponentials from it
 * before it leaves the cache; later a task makes a piece its gradient and multiplies it at once. So
 * the exponentials cost little beside the three products. Pieces and blocks depend on shapes only.
 *
 * Workload: 128 to 4,096 rows, 384 to 1,600 inputs, 10,000 to 130,000 classes. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_loss.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/head.h"
#include "backend/cpu/integers.h"

enum {
    BLOCK_BYTES = 64 << 20,
    PIECE_BYTES = 800 << 10,
    EVEN_PIECES = 12, /* 2, 3 and 4 threads have as much to do each */
    INPUTS_PIECE = 192,
    ROWS_TASK = 16, /* of a softmax */
    UNIT = 16
};

/* The buffers of every step; what is absent is `X` again. */
enum {
    X,
    WEIGHT,
    LABELS,
    SCORES,
    PARTS,
    LOGSUM,
    LOSSES,
    PAD,
    BIAS,
    SEED,
    GRAD,
    DW,
    DB,
    DX,
    BUFFERS
};

/* A dimension in equal pieces, the last one shorter. */
typedef struct cut {
    int64_t all, piece, n;
} cut;

typedef struct head {
    int users; /* steps that hold it */
    cut rows, classes, inputs;
    int64_t stride; /* floats from row to row of scores */
    ls_dtype label;
    int64_t per_sample; /* targets of a sample */
    /* The factors of the products: bf16, or f32 numbers rounded to it. Then the gradient of a block
     * is kept as bf16 beside its scores, or rounded where it is. */
    bool half, rounded, half_dx;
    bool biased;
    bool learned, sums; /* the weights, the bias have a gradient */
    /* [short rows][short piece] */
    cpu_gemm scores[2][2], dweight[2][2], dweight_more[2][2], dx[2][2];
} head;

typedef struct head_step {
    head *h;
    int64_t first; /* row */
    int64_t rows;
    bool tail; /* the short last block */
} head_step;

static cut cut_of(int64_t all, int64_t piece)
{
    return (cut) { .all = all, .piece = piece, .n = (all + piece - 1) / piece };
}

static int64_t rounded(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static int64_t piece_size(const cut *c, int64_t i)
{
    return i + 1 < c->n ? c->piece : c->all - i * c->piece;
}

/* --- steps --- */

typedef struct partial {
    float base;
    double sum; /* of exp(score - base) */
} partial;

static void *at(const cpu_call *call, int buffer, int64_t element, bool half)
{
    size_t size = half ? sizeof(uint16_t) : sizeof(float);
    return (char *)ls__cpu_at(call, buffer) + (size_t)element * size;
}

static float *floats_at(const cpu_call *call, int buffer, int64_t element)
{
    return at(call, buffer, element, false);
}

/* scores of a piece of classes, and what the softmax needs of them */
static void run_scores(const cpu_call *call)
{
    const head_step *s = call->step->state;
    const head *h = s->h;
    int64_t from = call->task * h->classes.piece, n = piece_size(&h->classes, call->task);
    float *scores = floats_at(call, SCORES, from);
    void *pointers[5] = { at(call, X, s->first * h->inputs.all, h->half),
                          at(call, WEIGHT, from * h->inputs.all, h->half), scores };
    int count = 3;
    if (h->biased) pointers[count++] = floats_at(call, BIAS, from);
    pointers[count] = ls__cpu_at(call, PAD);
    ls__cpu_gemm_run(&h->scores[s->tail][n < h->classes.piece], call, pointers);
    partial *parts = (partial *)ls__cpu_at(call, PARTS) + call->task;
    for (int64_t r = 0; r < s->rows; r++) {
        const float *row = scores + r * h->stride;
        partial *part = &parts[r * h->classes.n];
        part->sum = ls__cpu_sum_exp(row, n, &part->base);
    }
}

/* log of the sum of exponentials over all pieces, in order; NaN when all scores are -inf */
static double combine(const partial *parts, int64_t n)
{
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) most = parts[i].base > most ? parts[i].base : most;
    for (int64_t i = 0; i < n; i++) sum += parts[i].sum * exp((double)parts[i].base - (double)most);
    return (double)most + log(sum);
}

static bool target(const cpu_call *call, const head_step *s, int64_t r, int64_t *label)
{
    const head *h = s->h;
    *label = ls__cpu_integer(h->label, ls__cpu_at(call, LABELS), s->first + r);
    return ls__cpu_label_counts(call, (s->first + r) / h->per_sample, *label, h->classes.all);
}

static void run_softmax(const cpu_call *call)
{
    const head_step *s = call->step->state;
    const head *h = s->h;
    const partial *parts = ls__cpu_at(call, PARTS);
    const float *scores = ls__cpu_at(call, SCORES);
    float *logsum = floats_at(call, LOGSUM, s->first), *losses = floats_at(call, LOSSES, s->first);
    int64_t end = (call->task + 1) * ROWS_TASK, label;
    for (int64_t r = call->task * ROWS_TASK; r < end && r < s->rows; r++) {
        double sum = combine(parts + r * h->classes.n, h->classes.n);
        bool counts = target(call, s, r, &label);
        logsum[r] = (float)sum;
        losses[r] = counts ? (float)(sum - (double)scores[r * h->stride + label]) : 0;
    }
}

/* A piece of scores becomes its gradient. */
static void differentiate(const cpu_call *call, float *scores, int64_t from, int64_t n)
{
    const head_step *s = call->step->state;
    const float *logsum = floats_at(call, LOGSUM, s->first),
                *seed = floats_at(call, SEED, s->first);
    int64_t label;
    for (int64_t r = 0; r < s->rows; r++) {
        float *row = scores + r * s->h->stride;
        if (!target(call, s, r, &label)) {
            memset(row, 0, (size_t)n * sizeof *row);
            continue;
        }
        ls__cpu_scores_grad(row, n, logsum[r], seed[r], row);
        if (label >= from && label < from + n) row[label - from] -= seed[r];
    }
}

enum { CHUNK = 1024 };

/* A piece of the gradient as the products want it. */
static void round_piece(const cpu_call *call, float *scores, int64_t from, int64_t n)
{
    const head_step *s = call->step->state;
    const head *h = s->h;
    uint16_t *half = at(call, GRAD, from, true), chunk[CHUNK];
    for (int64_t r = 0; r < s->rows && h->half; r++)
        ls__cpu_to_half(scores + r * h->stride, half + r * h->stride, n);
    for (int64_t r = 0; r < s->rows && h->rounded; r++) {
        for (int64_t i = 0; i < n; i += CHUNK) {
            float *x = scores + r * h->stride + i;
            int64_t count = n - i < CHUNK ? n - i : CHUNK;
            ls__cpu_to_half(x, chunk, count);
            ls__cpu_from_half(chunk, x, count);
        }
    }
}

static void add_columns(const cpu_call *call, const void *grad, int64_t from, int64_t n)
{
    const head_step *s = call->step->state;
    float *sums = floats_at(call, DB, from);
    if (s->first == 0) memset(sums, 0, (size_t)n * sizeof *sums);
    if (s->h->half)
        ls__cpu_add_half_columns(grad, sums, s->rows, n, s->h->stride);
    else
        ls__cpu_add_columns(grad, sums, s->rows, n, s->h->stride);
}

/* The gradient of a piece of classes, and with it of their weights. */
static void run_gradient(const cpu_call *call)
{
    const head_step *s = call->step->state;
    const head *h = s->h;
    int64_t from = call->task * h->classes.piece, n = piece_size(&h->classes, call->task);
    float *scores = floats_at(call, SCORES, from);
    differentiate(call, scores, from, n);
    round_piece(call, scores, from, n);
    if (!h->learned) return;
    bool tail = n < h->classes.piece;
    const cpu_gemm *p = s->first ? &h->dweight_more[s->tail][tail] : &h->dweight[0][tail];
    void *grad = at(call, GRAD, from, h->half);
    void *pointers[] = { grad, at(call, X, s->first * h->inputs.all, h->half),
                         floats_at(call, DW, from * h->inputs.all), ls__cpu_at(call, PAD) };
    ls__cpu_gemm_run(p, call, pointers);
    if (h->sums) add_columns(call, grad, from, n);
}

/* dx, cut into pieces of inputs */
static void run_dx(const cpu_call *call)
{
    const head_step *s = call->step->state;
    const head *h = s->h;
    int64_t from = call->task * h->inputs.piece, n = piece_size(&h->inputs, call->task);
    void *pointers[] = { ls__cpu_at(call, GRAD), at(call, WEIGHT, from, h->half),
                         at(call, DX, s->first * h->inputs.all + from, h->half_dx),
                         ls__cpu_at(call, PAD) };
    ls__cpu_gemm_run(&h->dx[s->tail][n < h->inputs.piece], call, pointers);
}

/* --- lowering --- */

static void release(head *h)
{
    if (--h->users > 0) return;
    for (int i = 0; i < 4; i++) {
        ls__cpu_gemm_free(&h->scores[i / 2][i % 2]);
        ls__cpu_gemm_free(&h->dweight[i / 2][i % 2]);
        ls__cpu_gemm_free(&h->dweight_more[i / 2][i % 2]);
        ls__cpu_gemm_free(&h->dx[i / 2][i % 2]);
    }
    ls__free(h);
}

static void free_step(void *state)
{
    head_step *s = state;
    release(s->h);
    ls__free(s);
}

/* Blocks of rows, pieces of classes and inputs. */
static void cut_head(head *h, int64_t rows, int64_t classes, int64_t inputs)
{
    h->stride = rounded(classes, UNIT);
    int64_t most = BLOCK_BYTES / (h->stride * (int64_t)sizeof(float)) / UNIT * UNIT;
    if (most < UNIT) most = UNIT;
    int64_t blocks = (rows + most - 1) / most;
    int64_t block = rounded((rows + blocks - 1) / blocks, UNIT);
    h->rows = cut_of(rows, block < rows ? block : rows);
    int64_t row_bytes = h->rows.piece * (int64_t)sizeof(float);
    int64_t pieces = rounded((classes * row_bytes + PIECE_BYTES - 1) / PIECE_BYTES, EVEN_PIECES);
    h->classes = cut_of(classes, rounded((classes + pieces - 1) / pieces, UNIT));
    h->inputs = cut_of(inputs, inputs < INPUTS_PIECE ? inputs : INPUTS_PIECE);
}

/* A product for whole and short blocks of rows, and for both sizes of pieces; rows and piece: the
 * fields of shape that are these. */
static ls_status make_products(cpu_gemm out[2][2], gemm_shape *shape, const cut *all_rows,
                               int64_t *rows, const cut *pieces, int64_t *piece)
{
    int64_t row_sizes[] = { all_rows->piece, all_rows->all % all_rows->piece };
    int64_t sizes[] = { pieces->piece, pieces->all % pieces->piece };
    for (int i = 0; i < 4; i++) {
        *rows = row_sizes[i / 2];
        *piece = sizes[i % 2];
        if (*rows && *piece) LS_TRY(ls__cpu_gemm_create(shape, &out[i / 2][i % 2]));
    }
    return LS_OK;
}

static ls_status make_all_products(head *h, const cpu_head *match)
{
    int64_t inputs = h->inputs.all;
    gemm_shape s = {
        .k = inputs, .transpose_b = true, .c_stride = h->stride, .bias = h->biased, .half = h->half
    };
    LS_TRY(make_products(h->scores, &s, &h->rows, &s.m, &h->classes, &s.n));
    if (h->learned) {
        s = (gemm_shape) {
            .n = inputs, .transpose_a = true, .a_stride = h->stride, .half = h->half
        };
        LS_TRY(make_products(h->dweight, &s, &h->rows, &s.k, &h->classes, &s.m));
        s.sum = true;
        LS_TRY(make_products(h->dweight_more, &s, &h->rows, &s.k, &h->classes, &s.m));
    }
    if (match->grad_x < 0) return LS_OK;
    s = (gemm_shape) { .k = h->classes.all,
                       .a_stride = h->stride,
                       .b_stride = inputs,
                       .c_stride = inputs,
                       .half = h->half,
                       .half_c = h->half_dx };
    return make_products(h->dx, &s, &h->rows, &s.m, &h->inputs, &s.n);
}

static size_t largest_scratchpad(const head *h)
{
    size_t most = 0;
    for (int i = 0; i < 4; i++) {
        const cpu_gemm *all[] = { &h->scores[i / 2][i % 2], &h->dweight[i / 2][i % 2],
                                  &h->dweight_more[i / 2][i % 2], &h->dx[i / 2][i % 2] };
        for (int k = 0; k < 4; k++)
            if (all[k]->scratchpad > most) most = all[k]->scratchpad;
    }
    return most;
}

static ls_status find_buffers(cpu_builder *b, const cpu_head *match, const head *h, int *buffers)
{
    const ls__node *linear = &b->nodes[match->linear], *entropy = &b->nodes[match->entropy];
    size_t parts = (size_t)(h->rows.piece * h->classes.n) * sizeof(partial);
    size_t scores = (size_t)(h->rows.piece * h->stride) * sizeof(float);
    LS_TRY(ls__cpu_read(b, linear->in[0], ls__cpu_factor_layout(linear, 0), &buffers[X]));
    for (int i = 0; i < BUFFERS; i++) buffers[i] = buffers[X];
    LS_TRY(ls__cpu_read(b, linear->in[1], ls__cpu_factor_layout(linear, 1), &buffers[WEIGHT]));
    LS_TRY(ls__cpu_read(b, entropy->in[1], CPU_PLAIN, &buffers[LABELS]));
    LS_TRY(ls__cpu_read(b, entropy->out[0], CPU_PLAIN, &buffers[LOSSES]));
    LS_TRY(ls__cpu_read(b, entropy->out[2], CPU_PLAIN, &buffers[LOGSUM]));
    LS_TRY(ls__cpu_shared(b, scores, 0, &buffers[SCORES]));
    LS_TRY(ls__cpu_shared(b, parts, 0, &buffers[PARTS]));
    LS_TRY(ls__cpu_temporary(b, largest_scratchpad(h), &buffers[PAD]));
    if (h->biased) LS_TRY(ls__cpu_read(b, linear->in[2], CPU_PLAIN, &buffers[BIAS]));
    return LS_OK;
}

static ls_status find_gradients(cpu_builder *b, const cpu_head *match, const head *h, int *buffers)
{
    bool tiled = ls__cpu_tiled(b, b->nodes[match->linear].in[0]);
    const ls__node *entropy_grad = &b->nodes[match->entropy_grad];
    LS_TRY(ls__cpu_read(b, entropy_grad->in[0], CPU_PLAIN, &buffers[SEED]));
    buffers[GRAD] = buffers[SCORES];
    size_t grad = (size_t)(h->rows.piece * h->stride) * sizeof(uint16_t);
    if (h->half) LS_TRY(ls__cpu_shared(b, grad, 0, &buffers[GRAD]));
    if (h->learned) {
        ls_tensor **out = b->nodes[match->grad_weight].out;
        LS_TRY(ls__cpu_write(b, out[0], CPU_PLAIN, false, &buffers[DW]));
        if (h->sums) LS_TRY(ls__cpu_write(b, out[1], CPU_PLAIN, false, &buffers[DB]));
    }
    if (match->grad_x < 0) return LS_OK;
    const ls_tensor *dx = b->nodes[match->grad_x].out[0];
    return ls__cpu_write(b, dx, ls__cpu_stored_layout(dx), tiled, &buffers[DX]);
}

/* node: whose work it is, for profiles. */
static ls_status add_step(cpu_builder *b, head *h, int64_t block, int node,
                          void (*run)(const cpu_call *), int64_t ntasks, const int *buffers)
{
    b->current = node;
    head_step *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    int64_t rows = piece_size(&h->rows, block);
    *s = (head_step) {
        .h = h, .first = block * h->rows.piece, .rows = rows, .tail = rows < h->rows.piece
    };
    h->users++;
    cpu_step_spec spec = {
        .run = run, .state = s, .destroy = free_step, .whole = true, .ntasks = ntasks
    };
    return ls__cpu_step(b, &spec, buffers, BUFFERS);
}

static ls_status add_block(cpu_builder *b, const cpu_head *match, head *h, int64_t block,
                           const int *buffers)
{
    int64_t row_tasks = (piece_size(&h->rows, block) + ROWS_TASK - 1) / ROWS_TASK;
    LS_TRY(add_step(b, h, block, match->linear, run_scores, h->classes.n, buffers));
    LS_TRY(add_step(b, h, block, match->entropy, run_softmax, row_tasks, buffers));
    if (match->entropy_grad < 0) return LS_OK;
    LS_TRY(add_step(b, h, block, match->grad_weight >= 0 ? match->grad_weight : match->entropy_grad,
                    run_gradient, h->classes.n, buffers));
    if (match->grad_x < 0) return LS_OK;
    return add_step(b, h, block, match->grad_x, run_dx, h->inputs.n, buffers);
}

static void fill_head(const cpu_builder *b, const cpu_head *match, head *h)
{
    const ls__node *linear = &b->nodes[match->linear];
    const ls_tensor *labels = b->nodes[match->entropy].in[1];
    int64_t rows = linear->in[0]->shape[0];
    h->label = labels->type;
    h->per_sample = rows >= b->program->batch ? rows / b->program->batch : 1;
    h->half = ls__cpu_factor_layout(linear, 0) == CPU_HALF;
    h->rounded = ls__cpu_factor_layout(linear, 0) == CPU_ROUNDED;
    h->half_dx =
        match->grad_x >= 0 && ls__cpu_stored_layout(b->nodes[match->grad_x].out[0]) == CPU_HALF;
    h->biased = linear->nin == 3;
    h->learned = match->grad_weight >= 0;
    h->sums = h->learned && b->nodes[match->grad_weight].nout == 2;
    cut_head(h, rows, linear->out[0]->shape[1], linear->in[0]->shape[1]);
}

ls_status ls__cpu_head(cpu_builder *b, const cpu_head *match)
{
    int buffers[BUFFERS];
    head *h = ls__alloc(1, sizeof *h);
    if (!h) return LS_ERR_MEMORY;
    h->users = 1; /* this function */
    b->current = match->linear;
    fill_head(b, match, h);
    ls_status status = make_all_products(h, match);
    if (status == LS_OK) status = find_buffers(b, match, h, buffers);
    if (status == LS_OK && match->entropy_grad >= 0) status = find_gradients(b, match, h, buffers);
    for (int64_t i = 0; i < h->rows.n && status == LS_OK; i++)
        status = add_block(b, match, h, i, buffers);
    release(h);
    return status;
}
