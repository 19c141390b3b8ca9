/* bf16 numbers: conversions, and which layouts bf16-mixed asks for.
 *
 * A tensor is kept in as many types as its readers want, and converted once per tile while it is in
 * the cache; parameters once per run, before anything else. So any kernel may read and write f32,
 * and those where it pays have a way of their own for bf16. Where the machine does not multiply bf16
 * the factors of products are f32 numbers that bf16 could hold: the same rounding at f32's speed. */
#include <string.h>

#include "backend/cpu/cpu.h"

enum { CHUNK = 65536 /* elements of a task */ };

typedef struct convert {
    cpu_layout source, target;
    cpu_extent rows;
    int64_t each; /* elements of a row */
} convert;

static inline uint16_t half_of(uint32_t bits)
{
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

LS__CPU_CLONES void ls__cpu_to_half(const float *in, uint16_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, sizeof bits);
        out[i] = half_of(bits);
    }
}

LS__CPU_CLONES void ls__cpu_from_half(const uint16_t *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

LS__CPU_CLONES void ls__cpu_round_floats(const float *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, sizeof bits);
        bits = (uint32_t)half_of(bits) << 16;
        memcpy(out + i, &bits, sizeof bits);
    }
}

static void run_convert(const cpu_call *call)
{
    const convert *c = call->step->state;
    int64_t n = ls__cpu_extent_rows(call, &c->rows) * c->each, from = 0;
    const void *in = ls__cpu_at(call, 0);
    void *out = ls__cpu_at(call, 1);
    if (!call->step->tiled) {
        from = call->task * CHUNK;
        n = n - from < CHUNK ? n - from : CHUNK;
    }
    if (c->target == CPU_HALF)
        ls__cpu_to_half((const float *)in + from, (uint16_t *)out + from, n);
    else if (c->source == CPU_HALF)
        ls__cpu_from_half((const uint16_t *)in + from, (float *)out + from, n);
    else
        ls__cpu_round_floats((const float *)in + from, (float *)out + from, n);
}

ls_status ls__cpu_convert(cpu_builder *b, const ls_tensor *x, int from, cpu_layout source, int to,
                          cpu_layout target, bool tiled)
{
    LS_ASSERT(x->type == LS_DTYPE_F32);
    convert *c = ls__alloc(1, sizeof *c);
    if (!c) return LS_ERR_MEMORY;
    int64_t count = ls__cpu_count(x);
    *c = (convert) { .source = source, .target = target, .rows = ls__cpu_extent(b, x) };
    c->each = c->rows.all ? count / c->rows.all : 0;
    cpu_step_spec spec = { .run = run_convert,
                           .state = c,
                           .destroy = ls__free,
                           .whole = !tiled,
                           .ntasks = tiled ? 0 : (count + CHUNK - 1) / CHUNK,
                           .what = target == CPU_PLAIN ? "to f32" : "to bf16" };
    bool known =
        x->role == LS__ROLE_PARAM || x->role == LS__ROLE_STATISTIC || x->role == LS__ROLE_CONSTANT;
    return known ? ls__cpu_step_first(b, &spec, (int[]) { from, to }, 2)
                 : ls__cpu_step(b, &spec, (int[]) { from, to }, 2);
}

cpu_layout ls__cpu_factor_layout(const ls__node *node, int input)
{
    if (!ls__node_rounds(node, input)) return CPU_PLAIN;
    return ls__cpu_pool()->bf16 ? CPU_HALF : CPU_ROUNDED;
}

cpu_layout ls__cpu_float_layout(const ls__node *node, int input)
{
    return ls__node_rounds(node, input) ? CPU_ROUNDED : CPU_PLAIN;
}

cpu_layout ls__cpu_stored_layout(const ls_tensor *x)
{
    return x->half && ls__cpu_pool()->bf16 ? CPU_HALF : CPU_PLAIN;
}
