/* rotary: queries and keys turned by their token's position, in place where nobody reads them
 * unturned. Cosines and sines of all positions are computed once, in double precision, when the
 * graph is compiled. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes.h"

#include <math.h>
#include <string.h>

typedef struct rotary {
    cpu_extent rows; /* samples of x */
    int64_t tokens, row;
    int64_t turned, copied; /* heads */
    int64_t half;           /* pairs of a head */
    int64_t positions;
    float *cosine, *sine; /* (positions, half); sine negative for the inverse */
} rotary;

static void free_rotary(void *state)
{
    rotary *r = state;
    ls__free(r->cosine);
    ls__free(r->sine);
    ls__free(r);
}

/* One head of one token; y may be x. */
LS__CPU_CLONES static void turn(const float *x, float *y, const float *cosine, const float *sine,
                                int64_t half)
{
    lanes u, v, c, s;
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        lanes_load(&u, x + i);
        lanes_load(&v, x + half + i);
        lanes_load(&c, cosine + i);
        lanes_load(&s, sine + i);
        lanes first = u * c - v * s, second = u * s + v * c;
        lanes_store(y + i, &first);
        lanes_store(y + half + i, &second);
    }
    for (; i < half; i++) {
        float a = x[i], b = x[half + i];
        y[i] = a * cosine[i] - b * sine[i];
        y[half + i] = a * sine[i] + b * cosine[i];
    }
}

static void turn_token(const rotary *r, const float *x, float *y, int64_t position)
{
    int64_t width = 2 * r->half, values = r->turned * width;
    LS_ASSERT(position >= 0 && position < r->positions);
    for (int64_t h = 0; h < r->turned; h++)
        turn(x + h * width, y + h * width, r->cosine + position * r->half,
             r->sine + position * r->half, r->half);
    if (x != y) memcpy(y + values, x + values, (size_t)(r->copied * width) * sizeof *y);
}

/* Buffers x, y, [position]. */
static void run_rotary(const cpu_call *call)
{
    const rotary *r = call->step->state;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    const int32_t *position = call->step->nbuffers == 3 ? ls__cpu_at(call, 2) : NULL;
    int64_t samples = ls__cpu_extent_rows(call, &r->rows);
    for (int64_t i = 0; i < samples; i++) {
        for (int64_t t = 0; t < r->tokens; t++) {
            int64_t at = (i * r->tokens + t) * r->row;
            turn_token(r, x + at, y + at, (position ? position[i] : 0) + t);
        }
    }
}

static bool fill_angles(rotary *r, const ls__rotary_attributes *a)
{
    size_t count = (size_t)(r->positions * r->half);
    r->cosine = ls__alloc(count, sizeof *r->cosine);
    r->sine = ls__alloc(count, sizeof *r->sine);
    if (!r->cosine || !r->sine) return false;
    for (int64_t i = 0; i < r->half; i++) {
        double speed = pow(a->theta, -2.0 * (double)i / (double)a->width);
        for (int64_t p = 0; p < r->positions; p++) {
            double angle = (double)p * speed;
            r->cosine[p * r->half + i] = (float)cos(angle);
            r->sine[p * r->half + i] = (float)(a->inverse ? -sin(angle) : sin(angle));
        }
    }
    return true;
}

ls_status ls__cpu_rotary(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls__rotary_attributes *a = node->attributes;
    const ls_tensor *x = node->in[0];
    int64_t decode = ls__graph_options_of(b->graph)->decode;
    bool tiled = ls__cpu_tiled(b, x);
    int buffers[3];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    if (node->nin == 2) LS_TRY(ls__cpu_read(b, node->in[1], CPU_PLAIN, &buffers[2]));
    LS_TRY(ls__cpu_write_over(b, task->out, CPU_PLAIN, tiled, x, buffers[0], &buffers[1]));
    rotary *r = ls__alloc(1, sizeof *r);
    if (!r) return LS_ERR_MEMORY;
    *r = (rotary) { .rows = ls__cpu_extent(b, x),
                    .tokens = x->shape[1],
                    .row = x->shape[2],
                    .turned = a->heads + a->kv_heads,
                    .copied = a->kv_heads,
                    .half = a->width / 2,
                    .positions = node->nin == 2 ? decode : x->shape[1] };
    if (!fill_angles(r, a)) {
        free_rotary(r);
        return LS_ERR_MEMORY;
    }
    cpu_step_spec spec = { .run = run_rotary, .state = r, .destroy = free_rotary, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}
