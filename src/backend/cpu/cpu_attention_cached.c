/* attention_cached: the new tokens of each text against all keys and values so far, as decoding
 * wants it: one token after another, so a query is a row and the work is reading the cache once.
 *
 * Heads that share keys and values are one unit; units know nothing of each other and are tasks of a
 * whole step. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_math.h"

#include <math.h>
#include <string.h>

typedef struct cached {
    int64_t heads, kv_heads, width;
    int64_t tokens, row; /* of qkv */
    int64_t capacity;    /* rows of a text's cache */
    float scale;
} cached;

/* s[u] = scale q.k[u] for n rows of keys; the largest. */
LS__CPU_CLONES static float score(const float *q, const float *keys, int64_t row, int64_t width,
                                  float scale, int64_t n, float *s)
{
    const lanes zero = { 0 };
    float most = -INFINITY;
    for (int64_t u = 0; u < n; u++) {
        const float *k = keys + u * row;
        lanes sum = { 0 }, a, b;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            lanes_load(&a, q + i);
            lanes_load(&b, k + i);
            sum = sum + a * b;
        }
        if (i < width) {
            lanes_load_some(&a, q + i, width - i, &zero);
            lanes_load_some(&b, k + i, width - i, &zero);
            sum = sum + a * b;
        }
        float parts[LANES], total = 0;
        lanes_store(parts, &sum);
        for (int l = 0; l < LANES; l++) total += parts[l];
        s[u] = scale * total;
        most = s[u] > most ? s[u] : most;
    }
    return most;
}

/* s becomes exp(s - most) / sum; it has room for whole lanes. */
LS__CPU_CLONES static void normalize(float *s, int64_t n, float most)
{
    int64_t whole = (n + LANES - 1) / LANES * LANES;
    lanes v;
    double sum = 0;
    for (int64_t u = n; u < whole; u++) s[u] = -INFINITY;
    for (int64_t u = 0; u < whole; u += LANES) {
        lanes_load(&v, s + u);
        v = v - most;
        lanes_exp_falling(&v);
        lanes_store(s + u, &v);
    }
    for (int64_t u = 0; u < n; u++) sum += (double)s[u];
    float inverse = (float)(1 / sum);
    for (int64_t u = 0; u < n; u++) s[u] *= inverse;
}

/* y = sum over u of p[u] values[u] */
LS__CPU_CLONES static void gather(const float *p, const float *values, int64_t row, int64_t width,
                                  int64_t n, float *y)
{
    for (int64_t i = 0; i < width; i += LANES) {
        const lanes zero = { 0 };
        int64_t wide = width - i < LANES ? width - i : LANES;
        lanes sum = { 0 }, v;
        for (int64_t u = 0; u < n; u++) {
            if (wide == LANES)
                lanes_load(&v, values + u * row + i);
            else
                lanes_load_some(&v, values + u * row + i, wide, &zero);
            sum = sum + v * p[u];
        }
        lanes_store_some(y + i, &sum, wide);
    }
}

/* One text's heads of queries that share keys and values of kv_head. */
static void attend(const cached *a, const float *qkv, float *cache, int64_t position,
                   int64_t kv_head, float *y, float *scores)
{
    int64_t shared = a->heads / a->kv_heads, width = a->width, row = 2 * a->kv_heads * width;
    size_t nbytes = (size_t)width * sizeof(float);
    float *keys = cache + kv_head * width, *values = keys + a->kv_heads * width;
    LS_ASSERT(position >= 0 && position + a->tokens <= a->capacity);
    for (int64_t t = 0; t < a->tokens; t++) {
        const float *token = qkv + t * a->row, *key = token + (a->heads + kv_head) * width;
        int64_t n = position + t + 1;
        memcpy(keys + (n - 1) * row, key, nbytes);
        memcpy(values + (n - 1) * row, key + a->kv_heads * width, nbytes);
        for (int64_t h = kv_head * shared; h < (kv_head + 1) * shared; h++) {
            float most = score(token + h * width, keys, row, width, a->scale, n, scores);
            normalize(scores, n, most);
            gather(scores, values, row, width, n, y + (t * a->heads + h) * width);
        }
    }
}

/* Buffers qkv, cache, position, scratch, y. */
static void run_cached(const cpu_call *call)
{
    const cached *a = call->step->state;
    int64_t sample = call->task / a->kv_heads, kv_head = call->task % a->kv_heads;
    const float *qkv = ls__cpu_at(call, 0);
    float *cache = ls__cpu_at(call, 1), *y = ls__cpu_at(call, 4);
    const int32_t *position = ls__cpu_at(call, 2);
    attend(a, qkv + sample * a->tokens * a->row,
           cache + sample * a->capacity * 2 * a->kv_heads * a->width, position[sample], kv_head,
           y + sample * a->tokens * a->heads * a->width, ls__cpu_at(call, 3));
}

ls_status ls__cpu_attention_cached(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls__attention_attributes *attributes = node->attributes;
    const ls_tensor *qkv = node->in[0], *cache = node->in[1];
    size_t scores = (size_t)(cache->shape[1] + LANES) * sizeof(float);
    int buffers[5];
    for (int i = 0; i < 3; i++)
        LS_TRY(ls__cpu_read(b, node->in[i], ls__cpu_float_layout(node, i), &buffers[i]));
    LS_TRY(ls__cpu_temporary(b, scores, &buffers[3]));
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, ls__cpu_tiled(b, qkv), &buffers[4]));
    cached *a = ls__alloc(1, sizeof *a);
    if (!a) return LS_ERR_MEMORY;
    *a = (cached) { .heads = attributes->heads,
                    .kv_heads = attributes->kv_heads,
                    .width = attributes->width,
                    .tokens = qkv->shape[1],
                    .row = qkv->shape[2],
                    .capacity = cache->shape[1],
                    .scale = (float)attributes->scale };
    cpu_step_spec spec = { .run = run_cached,
                           .state = a,
                           .destroy = ls__free,
                           .whole = true,
                           .ntasks = qkv->shape[0] * attributes->kv_heads };
    return ls__cpu_step(b, &spec, buffers, 5);
}
