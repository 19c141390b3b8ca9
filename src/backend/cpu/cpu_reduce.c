/* Sums of the lanes' parts of a gradient, lane after lane, cut into chunks that threads share. */
#include "backend/cpu/cpu.h"

#include <string.h>

enum { CHUNK = 16384 }; /* floats: 64 KB, a few of which fit a second-level cache */

typedef struct lane_sum {
    int lanes;
    int64_t count;
    size_t stride; /* bytes from lane to lane */
} lane_sum;

LS__CPU_CLONES void ls__cpu_add_floats(float *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] += x[i];
}

LS__CPU_CLONES static void add_two(float *out, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}

static void run_lane_sum(const cpu_call *call)
{
    const lane_sum *s = call->step->state;
    const char *parts = ls__cpu_at(call, 0);
    float *out = ls__cpu_at(call, 1);
    int64_t begin = call->task * CHUNK;
    int64_t n = s->count - begin < CHUNK ? s->count - begin : CHUNK;
    const float *first = (const float *)parts + begin;
    const float *second = (const float *)(parts + s->stride) + begin;
    if (s->lanes == 1) {
        memcpy(out + begin, first, (size_t)n * sizeof *out);
        return;
    }
    add_two(out + begin, first, second, n);
    for (int lane = 2; lane < s->lanes; lane++)
        ls__cpu_add_floats(out + begin, (const float *)(parts + (size_t)lane * s->stride) + begin,
                           n);
}

ls_status ls__cpu_finish_sum(cpu_builder *b, int lanes, int out, int64_t count,
                             const ls_tensor *written)
{
    lane_sum *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = (lane_sum) { .lanes = b->program->lanes,
                      .count = count,
                      .stride = b->program->buffers[lanes].per_lane };
    cpu_step_spec spec = { .run = run_lane_sum,
                           .state = s,
                           .destroy = ls__free,
                           .whole = true,
                           .ntasks = (count + CHUNK - 1) / CHUNK,
                           .what = "sum" };
    return ls__cpu_finish(b, &spec, (int[]) { lanes, out }, 2, &written, written ? 1 : 0);
}

ls_status ls__cpu_sum_target(cpu_builder *b, const ls_tensor *out, bool tiled, int *buffer)
{
    int final;
    LS_TRY(ls__cpu_write(b, out, CPU_PLAIN, false, &final));
    *buffer = final;
    if (!tiled || b->program->lanes == 1) return LS_OK;
    size_t each = ((size_t)ls__cpu_count(out) * sizeof(float) + 63) / 64 * 64;
    LS_TRY(ls__cpu_shared(b, each * (size_t)b->program->lanes, each, buffer));
    return ls__cpu_finish_sum(b, *buffer, final, ls__cpu_count(out), out);
}
