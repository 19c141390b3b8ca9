/* Cross-entropy, accuracy, and the seed of the backward pass, row by row.
 *
 * exp is our own, so that loops over many classes vectorize: Cody and Waite's reduction and a
 * polynomial, within 2 units of the last place of libm's; log, once per row, is libm's in fp64. */
#include "backend/cpu/cpu_loss.h"
#include "backend/cpu/integers.h"

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

/* --- exponentials --- */

/* For x <= 88; NaN stays. exp(x) = 2^n exp(r), |r| <= log(2) / 2. */
static inline __attribute__((always_inline)) float exp_of(float x)
{
    const float round = 12582912.0f; /* 1.5 2^23: adding it rounds to an integer */
    float low = x < -87.0f ? -87.0f : x;
    float n = low * 1.44269504f + round - round;
    float r = low - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float e = p * r * r + r + 1.0f;
    union {
        uint32_t bits;
        float value;
    } power = { .bits = (uint32_t)((int32_t)(n == n ? n : 0) + 127) << 23 };
    float result = e * power.value;
    return x < -87.0f ? 0 : result;
}

enum { PARTS = 16 };

LS__CPU_CLONES double ls__cpu_sum_exp(const float *x, int64_t n, float most)
{
    float part[PARTS] = { 0 };
    int64_t i = 0;
    for (; i + PARTS <= n; i += PARTS)
        for (int l = 0; l < PARTS; l++) part[l] += exp_of(x[i + l] - most);
    double sum = 0;
    for (int l = 0; l < PARTS; l++) sum += (double)part[l];
    for (; i < n; i++) sum += (double)exp_of(x[i] - most);
    return sum;
}

LS__CPU_CLONES void ls__cpu_scores_grad(const float *x, int64_t n, float logsum, float g, float *dx)
{
    for (int64_t i = 0; i < n; i++) dx[i] = exp_of(x[i] - logsum) * g;
}

LS__CPU_CLONES float ls__cpu_largest(const float *x, int64_t n)
{
    float part[PARTS], most;
    int nan = 0;
    for (int l = 0; l < PARTS; l++) part[l] = x[0];
    int64_t i = 0;
    for (; i + PARTS <= n; i += PARTS) {
        for (int l = 0; l < PARTS; l++) {
            part[l] = x[i + l] > part[l] ? x[i + l] : part[l];
            nan |= x[i + l] != x[i + l];
        }
    }
    most = part[0];
    for (int l = 1; l < PARTS; l++) most = part[l] > most ? part[l] : most;
    for (; i < n; i++) {
        most = x[i] > most ? x[i] : most;
        nan |= x[i] != x[i];
    }
    return nan ? NAN : most;
}

/* NaN if there is one. */
static float largest(const float *x, int64_t n, int64_t *where)
{
    float most = x[0];
    *where = 0;
    for (int64_t i = 1; i < n; i++) {
        if (!(x[i] > most || (x[i] != x[i] && most == most))) continue;
        most = x[i];
        *where = i;
    }
    return most;
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
        float most = ls__cpu_largest(x, s->classes);
        double sum = (double)most + log(ls__cpu_sum_exp(x, s->classes, most));
        int64_t label = label_at(s, labels, i);
        bool counts = label_counts(call, i, label);
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
    int64_t n = targets_of(call), where;
    for (int64_t i = 0; i < n; i++) {
        int64_t label = label_at(s, labels, i);
        bool counts = label_counts(call, i, label);
        largest(scores + i * s->classes, s->classes, &where);
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
