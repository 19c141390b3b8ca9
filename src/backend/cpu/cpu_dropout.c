/* dropout: the mask is drawn where it is used, sixteen Philox blocks at a time so that the ten
 * rounds vectorize. Nothing is stored for the backward pass. */
#include "backend/cpu/cpu.h"

#include "base/random.h"

enum { BLOCKS = 16, PER_BLOCK = 4 };

typedef struct dropout {
    cpu_extent rows;
    int64_t each; /* elements of a row */
    bool by_sample;
    ls__dropout_attributes attributes;
} dropout;

/* out[word][i]: block first + i of sample */
LS__CPU_CLONES static void draw(const uint32_t key[2], uint32_t first, uint32_t sample,
                                const uint32_t step[2], uint32_t out[PER_BLOCK][BLOCKS])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < BLOCKS; i++) {
        out[0][i] = first + (uint32_t)i;
        out[1][i] = sample;
        out[2][i] = step[0];
        out[3][i] = step[1];
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * out[0][i], c = (uint64_t)0xCD9E8D57u * out[2][i];
            uint32_t x0 = (uint32_t)(c >> 32) ^ out[1][i] ^ k0;
            uint32_t x2 = (uint32_t)(a >> 32) ^ out[3][i] ^ k1;
            out[0][i] = x0;
            out[1][i] = (uint32_t)c;
            out[2][i] = x2;
            out[3][i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* n elements of a sample from element e on; e is a multiple of 64 */
static void mask_run(const dropout *d, const uint32_t key[2], uint32_t sample,
                     const uint32_t step[2], int64_t e, int64_t n, const float *x, float *y)
{
    uint32_t words[PER_BLOCK][BLOCKS];
    draw(key, (uint32_t)(e / PER_BLOCK), sample, step, words);
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = words[i % PER_BLOCK][i / PER_BLOCK];
        y[i] = word >= d->attributes.threshold ? x[i] * d->attributes.factor : 0;
    }
}

/* count elements of one sample, the first of which is element start */
static void mask_sample(const dropout *d, const uint32_t key[2], uint32_t sample,
                        const uint32_t step[2], int64_t count, const float *x, float *y)
{
    const int64_t run = BLOCKS * PER_BLOCK;
    for (int64_t e = 0; e < count; e += run)
        mask_run(d, key, sample, step, e, count - e < run ? count - e : run, x + e, y + e);
}

static void run_dropout(const cpu_call *call)
{
    const dropout *d = call->step->state;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    uint64_t step = (uint64_t)call->context->step;
    uint32_t key[2], steps[2] = { (uint32_t)step, (uint32_t)(step >> 32) };
    ls__dropout_key(&d->attributes, call->context->seed, key);
    int64_t samples = d->by_sample ? call->end - call->begin : d->rows.all;
    int64_t count = d->by_sample ? d->rows.each * d->each : d->each;
    for (int64_t i = 0; i < samples; i++) {
        uint32_t sample = (uint32_t)(call->context->first + call->begin + i);
        mask_sample(d, key, sample, steps, count, x + i * count, y + i * count);
    }
}

ls_status ls__cpu_dropout(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *x = task->node->in[0];
    bool tiled = ls__cpu_tiled(b, x);
    int buffers[2];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_write_over(b, task->out, CPU_PLAIN, tiled, x, buffers[0], &buffers[1]));
    dropout *d = ls__alloc(1, sizeof *d);
    if (!d) return LS_ERR_MEMORY;
    *d = (dropout) { .rows = ls__cpu_extent(b, x),
                     .each = ls__cpu_count(x) / x->shape[0],
                     .by_sample = tiled,
                     .attributes = *(const ls__dropout_attributes *)task->node->attributes };
    cpu_step_spec spec = { .run = run_dropout, .state = d, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, 2);
}
