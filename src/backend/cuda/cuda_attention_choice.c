/* The library's attention is tried before anybody trains with it: it runs once on made-up numbers,
 * with the plan that would be used, and what it leaves in three samples of the batch is compared
 * with our own kernels' results, row by row. So a graph that it understands in another way than we
 * mean it, a layout, a mask or a version with a fault cost speed, and never a training. Memory for
 * it is taken while a graph is compiled, before the arena, and given back; without memory our own
 * kernels run. */
#include "backend/cuda/cuda_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/log.h"

typedef struct choice {
    attention_pass pass;
    attention_shape shape;
    attention_plan *plan; /* NULL = our own kernels */
    size_t nbytes;        /* of its workspace */
    struct choice *next;
} choice;

static choice *choices; /* the process's, as its device */

static bool same(const attention_shape *a, const attention_shape *b)
{
    return a->batch == b->batch && a->tokens == b->tokens && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->width == b->width && a->causal == b->causal &&
           a->scale == b->scale;
}

static choice *find(attention_pass pass, const attention_shape *s)
{
    for (choice *c = choices; c; c = c->next)
        if (c->pass == pass && same(&c->shape, s)) return c;
    return NULL;
}

/* --- the trial's tensors --- */

enum { SAMPLES = 3, TAKEN = 12, POISON = 0xff /* NaN */ };

typedef struct tensors { /* on the device */
    uint16_t *qkv, *y, *g, *dqkv;
    float *logsum;
} tensors;

typedef struct trial {
    attention_shape few;     /* our own kernels see only the samples that are compared */
    int64_t sample[SAMPLES]; /* of the batch: the first, one in the middle, the last */
    tensors own, theirs;
    float *along;
    void *workspace;
    void *taken[TAKEN];
    int ntaken;
    cudaError_t error; /* the first one */
    size_t row;        /* numbers of qkv that belong to a token */
    uint16_t *a, *b;   /* on the host, as large as qkv of a sample: ours, the library's */
    uint32_t random;
} trial;

static cudaStream_t stream(void)
{
    return ls__cuda_device()->stream;
}

static void *take(trial *t, size_t nbytes, int value)
{
    void *data = NULL;
    if (t->error == cudaSuccess) t->error = cudaMalloc(&data, nbytes ? nbytes : 1);
    if (t->error != cudaSuccess) return NULL;
    LS_ASSERT(t->ntaken < TAKEN);
    t->taken[t->ntaken++] = data;
    t->error = cudaMemsetAsync(data, value, nbytes, stream());
    return data;
}

/* What nobody fills is zero in inputs, and NaN where it must be written before it is read. */
static void take_tensors(trial *t, tensors *x, const attention_shape *s, bool backward)
{
    size_t tokens = (size_t)s->batch * (size_t)s->tokens, queries = tokens * (size_t)s->heads;
    size_t qkv = tokens * t->row * sizeof *x->qkv, y = queries * (size_t)s->width * sizeof *x->y;
    x->qkv = take(t, qkv, 0);
    x->y = take(t, y, backward ? 0 : POISON);
    x->logsum = take(t, queries * sizeof *x->logsum, backward ? 0 : POISON);
    if (!backward) return;
    x->g = take(t, y, 0);
    x->dqkv = take(t, qkv, POISON);
}

static ls_status begin(trial *t, const choice *c)
{
    const attention_shape *s = &c->shape;
    bool backward = c->pass == ATTENTION_BACKWARD;
    *t = (trial) { .few = *s, .sample = { 0, s->batch / 2, s->batch - 1 }, .random = 1 };
    t->row = (size_t)(s->heads + 2 * s->kv_heads) * (size_t)s->width;
    if (s->batch < SAMPLES) t->sample[1] = s->batch - 1;
    if (t->few.batch > SAMPLES) t->few.batch = SAMPLES;
    t->a = ls__alloc((size_t)s->tokens * t->row, sizeof *t->a);
    t->b = ls__alloc((size_t)s->tokens * t->row, sizeof *t->b);
    if (!t->a || !t->b) return LS_ERR_MEMORY;
    take_tensors(t, &t->own, &t->few, backward);
    take_tensors(t, &t->theirs, s, backward);
    if (backward)
        t->along = take(t, (size_t)(t->few.batch * s->heads * s->tokens) * sizeof(float), POISON);
    t->workspace = take(t, c->nbytes, POISON);
    LS_CUDA_TRY(t->error, "trying cuDNN's attention");
    return LS_OK;
}

static void end(trial *t)
{
    cudaStreamSynchronize(stream());
    while (t->ntaken) cudaFree(t->taken[--t->ntaken]);
    ls__free(t->a);
    ls__free(t->b);
    cudaGetLastError(); /* a lost GPU tells so again */
}

/* Numbers within 2, the same for both. count: of a sample */
static ls_status fill(trial *t, uint16_t *own, uint16_t *theirs, size_t count)
{
    for (int i = 0; i < t->few.batch; i++) {
        for (size_t k = 0; k < count; k++) {
            t->random = t->random * 1664525u + 1013904223u;
            float x = (float)(int32_t)t->random * 0x1p-30f;
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            t->a[k] = (uint16_t)(bits >> 16);
        }
        size_t nbytes = count * sizeof *own;
        LS_TRY(ls__cuda_upload(ls__cuda_device(), own + (size_t)i * count, t->a, nbytes));
        LS_TRY(ls__cuda_upload(ls__cuda_device(), theirs + (size_t)t->sample[i] * count, t->a,
                               nbytes));
    }
    return LS_OK;
}

/* Sample i of a tensor, nbytes of it, as both have it: to a and b. */
static ls_status fetch(trial *t, int i, const void *own, const void *theirs, size_t nbytes)
{
    const char *from[] = { (const char *)own + (size_t)i * nbytes,
                           (const char *)theirs + (size_t)t->sample[i] * nbytes };
    LS_CUDA_TRY(cudaMemcpyAsync(t->a, from[0], nbytes, cudaMemcpyDeviceToHost, stream()),
                "copying from it");
    LS_CUDA_TRY(cudaMemcpyAsync(t->b, from[1], nbytes, cudaMemcpyDeviceToHost, stream()),
                "copying from it");
    LS_CUDA_TRY(cudaStreamSynchronize(stream()), "trying cuDNN's attention");
    return LS_OK;
}

/* --- comparing --- */

static double number(uint16_t half)
{
    float x;
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Heads' rows of `width` numbers. Both round to bf16 here and there; a wrong sum is far beyond that,
 * and a NaN is near nothing. The floor is for rows that are zero but for rounding. */
static ls_status compare_rows(trial *t, const uint16_t *own, const uint16_t *theirs, int columns,
                              const char *const names[], const int begins[])
{
    const int width = t->few.width;
    const int64_t rows = t->few.tokens * columns;
    for (int i = 0; i < t->few.batch; i++) {
        LS_TRY(fetch(t, i, own, theirs, (size_t)(rows * width) * sizeof *own));
        for (int64_t r = 0; r < rows; r++) {
            double norm = 0, apart = 0;
            for (int64_t k = r * width; k < (r + 1) * width; k++) {
                double x = number(t->a[k]), d = number(t->b[k]) - x;
                norm += x * x;
                apart += d * d;
            }
            if (sqrt(apart) <= sqrt(norm) / 32 + 0x1p-10) continue;
            int column = (int)(r % columns), which = 0;
            while (names[which + 1] && column >= begins[which + 1]) which++;
            return ls_fail(LS_ERR_INTERNAL,
                           "its %s is wrong by %.3g of %.3g at sample %lld, token %lld, head %d",
                           names[which], sqrt(apart), sqrt(norm), (long long)t->sample[i],
                           (long long)(r / columns), column - begins[which]);
        }
    }
    return LS_OK;
}

static ls_status compare_sums(trial *t)
{
    const int64_t n = t->few.heads * t->few.tokens;
    const float *a = (const float *)(const void *)t->a, *b = (const float *)(const void *)t->b;
    for (int i = 0; i < t->few.batch; i++) {
        LS_TRY(fetch(t, i, t->own.logsum, t->theirs.logsum, (size_t)n * sizeof *a));
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(a[k] - b[k]) <= 0x1p-8f))
                return ls_fail(LS_ERR_INTERNAL,
                               "its sum of weights is %g, not %g, at sample %lld, token %lld, "
                               "head %lld",
                               (double)b[k], (double)a[k], (long long)t->sample[i],
                               (long long)(k % t->few.tokens), (long long)(k / t->few.tokens));
    }
    return LS_OK;
}

/* --- the trial --- */

static device_in in(const uint16_t *x)
{
    return (device_in) { .data = x, .half = true };
}

static device_out out(uint16_t *x)
{
    return (device_out) { .data = x, .half = true };
}

static ls_status try_forward(trial *t, const choice *c)
{
    static const char *const names[] = { "y", NULL };
    static const int begins[] = { 0 };
    LS_TRY(fill(t, t->own.qkv, t->theirs.qkv, (size_t)t->few.tokens * t->row));
    ls__launch_attention(&t->few, in(t->own.qkv), out(t->own.y), t->own.logsum, stream());
    LS_TRY(ls__vendor_attention(c->plan, t->theirs.qkv, t->theirs.y, t->theirs.logsum, t->workspace,
                                stream()));
    LS_TRY(compare_rows(t, t->own.y, t->theirs.y, t->few.heads, names, begins));
    return compare_sums(t);
}

/* Both begin from our own forward pass. */
static ls_status give_forward(trial *t)
{
    size_t queries = (size_t)(t->few.heads * t->few.tokens), y = queries * (size_t)t->few.width;
    for (int i = 0; i < t->few.batch; i++) {
        size_t from = (size_t)i, to = (size_t)t->sample[i];
        LS_CUDA_TRY(cudaMemcpyAsync(t->theirs.y + to * y, t->own.y + from * y, y * sizeof *t->own.y,
                                    cudaMemcpyDeviceToDevice, stream()),
                    "copying on it");
        LS_CUDA_TRY(cudaMemcpyAsync(t->theirs.logsum + to * queries, t->own.logsum + from * queries,
                                    queries * sizeof *t->own.logsum, cudaMemcpyDeviceToDevice,
                                    stream()),
                    "copying on it");
    }
    return LS_OK;
}

static attention_backward backward(const tensors *x, float *along)
{
    return (attention_backward) { .g = in(x->g),
                                  .qkv = in(x->qkv),
                                  .y = in(x->y),
                                  .logsum = x->logsum,
                                  .dqkv = out(x->dqkv),
                                  .along = along };
}

static ls_status try_backward(trial *t, const choice *c)
{
    static const char *const names[] = { "dq", "dk", "dv", NULL };
    const int heads = t->few.heads, kv_heads = t->few.kv_heads;
    const int begins[] = { 0, heads, heads + kv_heads };
    const attention_backward own = backward(&t->own, t->along);
    const attention_backward theirs = backward(&t->theirs, t->workspace);
    LS_TRY(fill(t, t->own.qkv, t->theirs.qkv, (size_t)t->few.tokens * t->row));
    LS_TRY(fill(t, t->own.g, t->theirs.g, (size_t)(t->few.tokens * heads * t->few.width)));
    ls__launch_attention(&t->few, own.qkv, out(t->own.y), t->own.logsum, stream());
    LS_TRY(give_forward(t));
    ls__launch_attention_grad(&t->few, &own, stream());
    LS_TRY(ls__vendor_attention_grad(c->plan, &theirs, t->workspace, stream()));
    return compare_rows(t, t->own.dqkv, t->theirs.dqkv, heads + 2 * kv_heads, names, begins);
}

static ls_status try_library(choice *c)
{
    trial t;
    LS_TRY(ls__vendor_attention_plan(c->pass, &c->shape, &c->plan, &c->nbytes));
    ls_status status = begin(&t, c);
    if (status == LS_OK)
        status = c->pass == ATTENTION_FORWARD ? try_forward(&t, c) : try_backward(&t, c);
    end(&t);
    return status;
}

/* --- choosing --- */

static void tell(const choice *c, ls__log_level level, const char *how, const char *why)
{
    const attention_shape *s = &c->shape;
    ls__log(level, "attention of (%lld,%lld) tokens, %d heads of %d, %s pass: %s%s",
            (long long)s->batch, (long long)s->tokens, s->heads, s->width,
            c->pass == ATTENTION_FORWARD ? "forward" : "backward", how, why);
}

static void refuse(choice *c, ls_status why)
{
    c->plan = NULL;
    c->nbytes = 0;
    tell(c, why == LS_ERR_UNSUPPORTED ? LS__LOG_INFO : LS__LOG_WARN,
         "by Lockstep's own kernels, which are slower; cuDNN's are not used: ", ls_error_text());
}

size_t ls__cuda_attention_choose(attention_pass pass, const attention_shape *s)
{
    const char *wanted = getenv("LOCKSTEP_CUDNN_ATTENTION");
    if ((wanted && strcmp(wanted, "0") == 0) || !ls__vendor_attention_is_here()) return 0;
    choice *c = find(pass, s);
    if (c) return c->nbytes;
    c = ls__alloc(1, sizeof *c);
    if (!c) return 0; /* our own kernels need none */
    *c = (choice) { .pass = pass, .shape = *s, .next = choices };
    choices = c;
    ls_status status = try_library(c);
    if (status == LS_OK)
        tell(c, LS__LOG_INFO, "by cuDNN", "");
    else
        refuse(c, status);
    return c->nbytes;
}

const attention_plan *ls__cuda_attention_plan(attention_pass pass, const attention_shape *s)
{
    const choice *c = find(pass, s);
    return c ? c->plan : NULL;
}

void ls__cuda_attention_refuse(attention_pass pass, const attention_shape *s)
{
    refuse(find(pass, s), LS_ERR_INTERNAL);
}
