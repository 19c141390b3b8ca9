/* Cross-entropy, accuracy, and the seed of the backward pass, row by row.
 *
 * A row of a language model has some 50,000 scores, 200 KB: it is read once in the forward pass,
 * and the backward pass puts the gradient over the scores. exp is vectorized (lanes_math.h); log,
 * once per row, is libm's in fp64. */
#include "backend/cpu/cpu_loss.h"
#include "backend/cpu/integers.h"
#include "backend/cpu/lanes_math.h"

#include <math.h>
#include <string.h>

typedef struct loss {
    cpu_extent targets; /* rows of the labels' first dimension */
    int64_t each;       /* targets of such a row */
    int64_t classes;
    int64_t per_sample; /* targets of a sample, for messages */
    ls_dtype label;
    bool weighted;
} loss;

static int64_t targets_of(const cpu_call *call)
{
    const loss *s = call->step->state;
    return ls__cpu_extent_rows(call, &s->targets) * s->each;
}

bool ls__cpu_label_counts(const cpu_call *call, int64_t sample, int64_t label, int64_t classes)
{
    if (label >= 0 && label < classes) return true;
    if (label == LS__LABEL_IGNORED) return false;
    ls__cpu_note(call, "label", sample, label, classes);
    return false;
}

static int64_t label_at(const loss *s, const void *labels, int64_t i)
{
    return ls__cpu_integer(s->label, labels, i);
}

static bool label_counts(const cpu_call *call, int64_t i, int64_t label)
{
    const loss *s = call->step->state;
    return ls__cpu_label_counts(call, call->begin + i / s->per_sample, label, s->classes);
}

/* --- rows of scores --- */

enum { CHUNK = 1024 }; /* floats: a quarter of the first-level cache at most */

LANES_INLINE float largest_of(const lanes *x)
{
    float all[LANES];
    lanes_store(all, x);
    for (int l = 1; l < LANES; l++) all[0] = all[l] > all[0] ? all[l] : all[0];
    return all[0];
}

/* The largest number, -inf when there is none. */
LANES_INLINE float largest_number(const float *x, int64_t n)
{
    const lanes lowest = LANES_OF(-INFINITY);
    lanes most = lowest, v;
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, &lowest);
        lanes_raise(&most, &v);
    }
    return largest_of(&most);
}

/* The sum of exp(x - base); *most = the largest number. */
LANES_INLINE double sum_exp(const float *x, int64_t n, float base, float *most)
{
    const lanes lowest = LANES_OF(-INFINITY);
    lanes sum = { 0 }, top = lowest, v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        lanes_raise(&top, &v);
        v -= base;
        lanes_exp_falling(&v);
        sum += v;
    }
    if (i < n) {
        lanes_load_some(&v, x + i, n - i, &lowest);
        lanes_raise(&top, &v);
        v -= base;
        lanes_exp_falling(&v);
        sum += v;
    }
    *most = largest_of(&top);
    return (double)lanes_total(&sum);
}

/* Exponentials are relative to a base that is chosen once, so that a row is read once; only a chunk
 * with scores far above it is added up again, from a new base. */
LS__CPU_CLONES double ls__cpu_sum_exp(const float *x, int64_t n, float *base)
{
    const float far = 40; /* e^40 CHUNK is a float */
    float from = largest_number(x, n < CHUNK ? n : CHUNK), most;
    double sum = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t size = n - i < CHUNK ? n - i : CHUNK;
        double part = sum_exp(x + i, size, from == -INFINITY ? 0 : from, &most);
        if (most > from + far) {
            sum *= exp((double)from - (double)most);
            from = most;
            part = sum_exp(x + i, size, from, &most);
        }
        sum += part;
    }
    *base = from;
    return sum;
}

/* log of the sum of exp(x); NaN where a score is NaN or inf, or all are -inf. */
static double log_sum_exp(const float *x, int64_t n)
{
    float base;
    double sum = ls__cpu_sum_exp(x, n, &base);
    return base == -INFINITY ? NAN : (double)base + log(sum);
}

LS__CPU_CLONES void ls__cpu_scores_grad(const float *x, int64_t n, float logsum, float g, float *dx)
{
    const lanes zero = { 0 };
    lanes v;
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, &zero);
        v -= logsum;
        lanes_exp_falling(&v);
        v *= g;
        lanes_store_rest(dx + i, &v, n - i);
    }
}

/* Where the first of the largest is; the first NaN if there is one. */
LS__CPU_CLONES static int64_t find_largest(const float *x, int64_t n)
{
    float most = largest_number(x, n);
    int64_t first = -1;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return i;
        if (first < 0 && x[i] == most) first = i;
    }
    return first;
}

/* --- forward --- */

static void run_cross_entropy(const cpu_call *call)
{
    const loss *s = call->step->state;
    const float *scores = ls__cpu_at(call, 0);
    const void *labels = ls__cpu_at(call, 1);
    float *losses = ls__cpu_at(call, 2), *weights = ls__cpu_at(call, 3),
          *logsum = ls__cpu_at(call, 4);
    int64_t n = targets_of(call);
    for (int64_t i = 0; i < n; i++) {
        const float *x = scores + i * s->classes;
        int64_t label = label_at(s, labels, i);
        bool counts = label_counts(call, i, label);
        double sum = counts ? log_sum_exp(x, s->classes) : 0;
        logsum[i] = (float)sum;
        weights[i] = counts ? 1 : 0;
        losses[i] = counts ? (float)(sum - (double)x[label]) : 0;
    }
}

static void run_weights(const cpu_call *call)
{
    const loss *s = call->step->state;
    const void *labels = ls__cpu_at(call, 0);
    float *weights = ls__cpu_at(call, 1);
    int64_t n = targets_of(call);
    for (int64_t i = 0; i < n; i++)
        weights[i] = label_counts(call, i, label_at(s, labels, i)) ? 1 : 0;
}

static void run_accuracy(const cpu_call *call)
{
    const loss *s = call->step->state;
    const float *scores = ls__cpu_at(call, 0);
    const void *labels = ls__cpu_at(call, 1);
    float *correct = ls__cpu_at(call, 2), *weights = ls__cpu_at(call, 3);
    int64_t n = targets_of(call);
    for (int64_t i = 0; i < n; i++) {
        int64_t label = label_at(s, labels, i);
        bool counts = label_counts(call, i, label);
        int64_t where = counts ? find_largest(scores + i * s->classes, s->classes) : -1;
        weights[i] = counts ? 1 : 0;
        correct[i] = counts && where == label ? 1 : 0;
    }
}

/* --- gradients --- */

static void run_cross_entropy_grad(const cpu_call *call)
{
    const loss *s = call->step->state;
    const float *g = ls__cpu_at(call, 0), *scores = ls__cpu_at(call, 1);
    const void *labels = ls__cpu_at(call, 2);
    const float *logsum = ls__cpu_at(call, 3);
    float *dx = ls__cpu_at(call, 4);
    int64_t n = targets_of(call);
    for (int64_t i = 0; i < n; i++) {
        int64_t label = label_at(s, labels, i);
        float *row = dx + i * s->classes;
        if (!label_counts(call, i, label)) {
            memset(row, 0, (size_t)s->classes * sizeof *row);
            continue;
        }
        ls__cpu_scores_grad(scores + i * s->classes, s->classes, logsum[i], g[i], row);
        row[label] -= g[i];
    }
}

static void run_loss_grad(const cpu_call *call)
{
    const loss *s = call->step->state;
    const float *weights = s->weighted ? ls__cpu_at(call, 1) : NULL;
    float *seed = ls__cpu_at(call, 0);
    int64_t n = targets_of(call);
    for (int64_t i = 0; i < n; i++)
        seed[i] = (float)(call->context->grad_seed * (weights ? (double)weights[i] : 1.0));
}

/* --- lowering --- */

static ls_status add_loss(cpu_builder *b, const ls_tensor *targets, int64_t classes, ls_dtype label,
                          void (*run)(const cpu_call *call), bool tiled, bool weighted,
                          const int *buffers, int n)
{
    loss *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    int64_t count = ls__cpu_count(targets), per_sample = count / b->program->batch;
    *s = (loss) { .targets = ls__cpu_extent(b, targets),
                  .classes = classes,
                  .per_sample = per_sample ? per_sample : 1,
                  .label = label,
                  .weighted = weighted };
    s->each = count / s->targets.all;
    cpu_step_spec spec = { .run = run, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, n);
}

/* scores, labels -> nout outputs as the labels */
static ls_status scored(cpu_builder *b, const ls__node *node, void (*run)(const cpu_call *call))
{
    const ls_tensor *scores = node->in[0], *labels = node->in[1];
    bool tiled = ls__cpu_tiled(b, scores) && ls__cpu_tiled(b, labels);
    int buffers[5];
    LS_TRY(ls__cpu_read(b, scores, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_read(b, labels, CPU_PLAIN, &buffers[1]));
    for (int i = 0; i < node->nout; i++)
        LS_TRY(ls__cpu_write(b, node->out[i], CPU_PLAIN, tiled, &buffers[2 + i]));
    return add_loss(b, labels, scores->shape[scores->rank - 1], labels->type, run, tiled, false,
                    buffers, 2 + node->nout);
}

ls_status ls__cpu_cross_entropy(cpu_builder *b, const cpu_task *task)
{
    return scored(b, task->node, run_cross_entropy);
}

ls_status ls__cpu_target_weights(cpu_builder *b, const ls_tensor *labels, int64_t classes,
                                 const ls_tensor *weights)
{
    bool tiled = ls__cpu_tiled(b, labels);
    int buffers[2];
    LS_TRY(ls__cpu_read(b, labels, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_write(b, weights, CPU_PLAIN, tiled, &buffers[1]));
    return add_loss(b, labels, classes, labels->type, run_weights, tiled, false, buffers, 2);
}

ls_status ls__cpu_accuracy(cpu_builder *b, const cpu_task *task)
{
    return scored(b, task->node, run_accuracy);
}

ls_status ls__cpu_cross_entropy_grad(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *scores = node->in[1], *labels = node->in[2];
    bool tiled = true;
    int buffers[5];
    for (int i = 0; i < 4; i++) {
        tiled = tiled && ls__cpu_tiled(b, node->in[i]);
        LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
    }
    LS_TRY(ls__cpu_write_over(b, node->out[0], CPU_PLAIN, tiled, scores, buffers[1], &buffers[4]));
    return add_loss(b, labels, scores->shape[scores->rank - 1], labels->type,
                    run_cross_entropy_grad, tiled, false, buffers, 5);
}

ls_status ls__cpu_loss_grad(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    bool tiled = ls__cpu_tiled(b, node->in[0]), weighted = node->nin == 2;
    int buffers[2];
    if (weighted) {
        tiled = tiled && ls__cpu_tiled(b, node->in[1]);
        LS_TRY(ls__cpu_read(b, node->in[1], CPU_PLAIN, &buffers[1]));
    }
    LS_TRY(ls__cpu_write(b, node->out[0], CPU_PLAIN, tiled, &buffers[0]));
    return add_loss(b, node->out[0], 1, LS_DTYPE_I32, run_loss_grad, tiled, weighted, buffers,
                    weighted ? 2 : 1);
}
