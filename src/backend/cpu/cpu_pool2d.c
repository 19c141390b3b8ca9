/* Pools: windows side by side, so that every element of x belongs to one window at most and a
 * gradient is written, never added.
 *
 * All loops run over (image, channel block) planes of (H, W, block), block = 1 in the plain layout;
 * the lanes of a block are the vector. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes.h"

#include <string.h>

typedef struct pool2d {
    cpu_extent rows;
    int64_t size, height, width;   /* of x */
    int64_t out_height, out_width; /* of y */
    int64_t planes;                /* per row */
    int block;
    bool wide_index; /* i32, else u8 */
    float scale;
} pool2d;

/* --- max --- */

/* The largest of a window of x (H, W, block) for every lane; NaN is larger than all. */
static inline __attribute__((always_inline)) void
window_max(const float *x, int size, int64_t width, int block, float *best, int32_t *where)
{
    for (int l = 0; l < block; l++) {
        best[l] = x[l];
        where[l] = 0;
    }
    for (int u = 0; u < size; u++) {
        for (int v = u == 0; v < size; v++) {
            const float *at = x + (u * width + v) * block;
            int32_t k = u * size + v;
            for (int l = 0; l < block; l++) {
                bool larger = (at[l] > best[l]) | ((at[l] != at[l]) & (best[l] == best[l]));
                best[l] = larger ? at[l] : best[l];
                where[l] = larger ? k : where[l];
            }
        }
    }
}

static inline __attribute__((always_inline)) void max_plane(const pool2d *p, int size,
                                                            const float *x, float *y, void *index,
                                                            int64_t first, int block)
{
    float best[LANES];
    int32_t where[LANES];
    for (int64_t i = 0; i < p->out_height; i++) {
        for (int64_t j = 0; j < p->out_width; j++) {
            const float *corner = x + (i * p->width + j) * size * block;
            int64_t at = first + (i * p->out_width + j) * block;
            window_max(corner, size, p->width, block, best, where);
            for (int l = 0; l < block; l++) y[at + l] = best[l];
            if (index && p->wide_index)
                for (int l = 0; l < block; l++) ((int32_t *)index)[at + l] = where[l];
            else if (index)
                for (int l = 0; l < block; l++) ((uint8_t *)index)[at + l] = (uint8_t)where[l];
        }
    }
}

/* Size 2 in blocks of sixteen, which is what most models have, and the rest. */
LS__CPU_CLONES static void max_planes(const pool2d *p, const float *x, float *y, void *index,
                                      int64_t n)
{
    int64_t in = p->height * p->width * p->block, out = p->out_height * p->out_width * p->block;
    for (int64_t i = 0; i < n; i++) {
        if (p->block == LANES && p->size == 2)
            max_plane(p, 2, x + i * in, y, index, i * out, LANES);
        else if (p->block == LANES)
            max_plane(p, (int)p->size, x + i * in, y, index, i * out, LANES);
        else
            max_plane(p, (int)p->size, x + i * in, y, index, i * out, p->block);
    }
}

static void run_max(const cpu_call *call)
{
    const pool2d *p = call->step->state;
    int64_t n = ls__cpu_extent_rows(call, &p->rows) * p->planes;
    void *index = call->step->nbuffers == 3 ? ls__cpu_at(call, 2) : NULL;
    max_planes(p, ls__cpu_at(call, 0), ls__cpu_at(call, 1), index, n);
}

/* --- gradient of max, and of the relu before it --- */

/* What a plane needs; y NULL: no relu. All but dx lie at the same place. */
typedef struct max_grad {
    const float *g, *y;
    const void *index;
    float *dx; /* of the plane */
    int64_t first;
} max_grad;

static inline __attribute__((always_inline)) void max_grad_plane(const pool2d *p, int size,
                                                                 const max_grad *m, int block)
{
    float g[LANES];
    int32_t where[LANES];
    for (int64_t i = 0; i < p->out_height; i++) {
        for (int64_t j = 0; j < p->out_width; j++) {
            int64_t at = m->first + (i * p->out_width + j) * block;
            float *corner = m->dx + (i * p->width + j) * size * block;
            for (int l = 0; l < block; l++)
                where[l] = p->wide_index ? ((const int32_t *)m->index)[at + l]
                                         : (int32_t)((const uint8_t *)m->index)[at + l];
            for (int l = 0; l < block; l++) g[l] = m->y && m->y[at + l] <= 0 ? 0 : m->g[at + l];
            for (int k = 0; k < size * size; k++) {
                float *to = corner + (k / size * p->width + k % size) * block;
                for (int l = 0; l < block; l++) to[l] = where[l] == k ? g[l] : 0;
            }
        }
    }
}

typedef uint8_t lanes_u8 __attribute__((vector_size(LANES)));

/* The same for blocks of sixteen and an index of bytes. */
LANES_INLINE void max_grad_plane_16(const pool2d *p, int size, const max_grad *m)
{
    lanes_u8 narrow;
    lanes g, y, zero = { 0 };
    for (int64_t i = 0; i < p->out_height; i++) {
        for (int64_t j = 0; j < p->out_width; j++) {
            int64_t at = m->first + (i * p->out_width + j) * LANES;
            float *corner = m->dx + (i * p->width + j) * size * LANES;
            memcpy(&narrow, (const uint8_t *)m->index + at, sizeof narrow);
            lanes_i32 where = __builtin_convertvector(narrow, lanes_i32);
            lanes_load(&g, m->g + at);
            if (m->y) {
                lanes_load(&y, m->y + at);
                lanes_i32 dead = y <= zero;
                g = (lanes)((lanes_i32)g & ~dead);
            }
            for (int k = 0; k < size * size; k++) {
                lanes_i32 here = where == k;
                lanes to = (lanes)((lanes_i32)g & here);
                lanes_store(corner + (k / size * p->width + k % size) * LANES, &to);
            }
        }
    }
}

LS__CPU_CLONES static void max_grad_planes(const pool2d *p, max_grad m, int64_t n)
{
    int64_t in = p->height * p->width * p->block, out = p->out_height * p->out_width * p->block;
    for (int64_t i = 0; i < n; i++, m.dx += in, m.first += out) {
        if (p->block == LANES && p->size == 2)
            max_grad_plane_16(p, 2, &m);
        else if (p->block == LANES && !p->wide_index)
            max_grad_plane_16(p, (int)p->size, &m);
        else
            max_grad_plane(p, (int)p->size, &m, p->block);
    }
}

/* What no window covers has gradient 0. */
static void clear_rest(const pool2d *p, float *dx, int64_t planes)
{
    bool covered = p->out_height * p->size == p->height && p->out_width * p->size == p->width;
    if (!covered) memset(dx, 0, (size_t)(planes * p->height * p->width * p->block) * sizeof *dx);
}

static void run_max_grad(const cpu_call *call)
{
    const pool2d *p = call->step->state;
    int64_t n = ls__cpu_extent_rows(call, &p->rows) * p->planes;
    max_grad m = { .g = ls__cpu_at(call, 0),
                   .index = ls__cpu_at(call, 1),
                   .dx = ls__cpu_at(call, 2) };
    if (call->step->nbuffers == 4) m.y = ls__cpu_at(call, 3);
    clear_rest(p, m.dx, n);
    max_grad_planes(p, m, n);
}

/* --- average --- */

LS__CPU_CLONES static void avg_plane(const pool2d *p, const float *x, float *y)
{
    int block = p->block;
    for (int64_t i = 0; i < p->out_height; i++) {
        for (int64_t j = 0; j < p->out_width; j++) {
            const float *corner = x + (i * p->width + j) * p->size * block;
            float *at = y + (i * p->out_width + j) * block;
            for (int l = 0; l < block; l++) at[l] = 0;
            for (int64_t u = 0; u < p->size; u++)
                for (int64_t v = 0; v < p->size; v++)
                    for (int l = 0; l < block; l++) at[l] += corner[(u * p->width + v) * block + l];
            for (int l = 0; l < block; l++) at[l] *= p->scale;
        }
    }
}

LS__CPU_CLONES static void avg_grad_plane(const pool2d *p, const float *g, float *dx)
{
    int block = p->block;
    for (int64_t i = 0; i < p->out_height * p->size; i++) {
        for (int64_t j = 0; j < p->out_width * p->size; j++) {
            const float *at = g + (i / p->size * p->out_width + j / p->size) * block;
            float *to = dx + (i * p->width + j) * block;
            for (int l = 0; l < block; l++) to[l] = at[l] * p->scale;
        }
    }
}

static void run_avg(const cpu_call *call)
{
    const pool2d *p = call->step->state;
    int64_t n = ls__cpu_extent_rows(call, &p->rows) * p->planes;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    for (int64_t i = 0; i < n; i++)
        avg_plane(p, x + i * p->height * p->width * p->block,
                  y + i * p->out_height * p->out_width * p->block);
}

static void run_avg_grad(const cpu_call *call)
{
    const pool2d *p = call->step->state;
    int64_t n = ls__cpu_extent_rows(call, &p->rows) * p->planes;
    const float *g = ls__cpu_at(call, 0);
    float *dx = ls__cpu_at(call, 1);
    clear_rest(p, dx, n);
    for (int64_t i = 0; i < n; i++)
        avg_grad_plane(p, g + i * p->out_height * p->out_width * p->block,
                       dx + i * p->height * p->width * p->block);
}

/* --- the global average: (B,C,H,W) -> (B,C), of whose channels the last block has only some --- */

LS__CPU_CLONES static void mean_plane(const float *x, int64_t space, int block, float *mean)
{
    double sum[16] = { 0 };
    for (int64_t s = 0; s < space; s++)
        for (int l = 0; l < block; l++) sum[l] += (double)x[s * block + l];
    for (int l = 0; l < block; l++) mean[l] = (float)(sum[l] / (double)space);
}

LS__CPU_CLONES static void fill_plane(float *x, int64_t space, int block, const float *value)
{
    for (int64_t s = 0; s < space; s++)
        for (int l = 0; l < block; l++) x[s * block + l] = value[l];
}

static int lanes_of(const pool2d *p, int64_t channels, int64_t plane)
{
    int64_t rest = channels - plane * p->block;
    return rest < p->block ? (int)rest : p->block;
}

static void run_global(const cpu_call *call)
{
    const pool2d *p = call->step->state;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1), mean[16];
    int64_t rows = ls__cpu_extent_rows(call, &p->rows), space = p->height * p->width;
    int64_t channels = p->out_width;
    for (int64_t i = 0; i < rows * p->planes; i++) {
        int64_t plane = i % p->planes;
        mean_plane(x + i * space * p->block, space, p->block, mean);
        memcpy(y + i / p->planes * channels + plane * p->block, mean,
               (size_t)lanes_of(p, channels, plane) * sizeof *mean);
    }
}

static void run_global_grad(const cpu_call *call)
{
    const pool2d *p = call->step->state;
    const float *g = ls__cpu_at(call, 0);
    float *dx = ls__cpu_at(call, 1);
    int64_t rows = ls__cpu_extent_rows(call, &p->rows), space = p->height * p->width;
    int64_t channels = p->out_width;
    for (int64_t i = 0; i < rows * p->planes; i++) {
        int64_t plane = i % p->planes;
        float value[16] = { 0 };
        const float *at = g + i / p->planes * channels + plane * p->block;
        for (int l = 0; l < lanes_of(p, channels, plane); l++) value[l] = at[l] / (float)space;
        fill_plane(dx + i * space * p->block, space, p->block, value);
    }
}

/* --- lowering --- */

/* x: the larger tensor; channels: of both. */
static pool2d *make_pool(const cpu_builder *b, const cpu_task *task, const ls_tensor *rows,
                         int64_t channels, cpu_layout layout)
{
    const ls__pool2d_attributes *a = task->node->attributes;
    pool2d *p = ls__alloc(1, sizeof *p);
    if (!p) return NULL;
    p->rows = ls__cpu_extent(b, rows);
    p->size = a->size;
    p->height = a->height;
    p->width = a->width;
    p->block = layout == CPU_BLOCKED ? b->program->block : 1;
    p->planes = (channels + p->block - 1) / p->block;
    p->wide_index = a->size > 16;
    if (a->size) {
        p->out_height = a->height / a->size;
        p->out_width = a->width / a->size;
        p->scale = 1.0f / (float)(a->size * a->size);
    } else {
        p->out_width = channels; /* of the global pool's rows */
    }
    return p;
}

static ls_status add_pool(cpu_builder *b, const cpu_task *task, int64_t channels, cpu_layout layout,
                          void (*run)(const cpu_call *call), const int *buffers, int n, bool tiled)
{
    pool2d *p = make_pool(b, task, task->node->in[0], channels, layout);
    if (!p) return LS_ERR_MEMORY;
    cpu_step_spec spec = { .run = run, .state = p, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, n);
}

ls_status ls__cpu_max_pool2d(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0];
    cpu_layout layout = ls__cpu_layout_of(b, x);
    bool tiled = ls__cpu_tiled(b, x);
    int buffers[3];
    LS_TRY(ls__cpu_read(b, x, layout, &buffers[0]));
    for (int i = 0; i < node->nout; i++)
        LS_TRY(ls__cpu_write(b, node->out[i], layout, tiled, &buffers[1 + i]));
    return add_pool(b, task, x->shape[1], layout, run_max, buffers, 1 + node->nout, tiled);
}

ls_status ls__cpu_max_pool2d_grad(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *g = node->in[0], *index = node->in[1];
    cpu_layout layout = ls__cpu_layout_of(b, index);
    bool tiled = ls__cpu_tiled(b, g) && ls__cpu_tiled(b, index);
    int buffers[4];
    LS_TRY(ls__cpu_read(b, g, layout, &buffers[0]));
    LS_TRY(ls__cpu_read(b, index, layout, &buffers[1]));
    if (task->pooled) LS_TRY(ls__cpu_read(b, task->pooled, layout, &buffers[3]));
    LS_TRY(ls__cpu_write(b, task->out, layout, tiled, &buffers[2]));
    int n = task->pooled ? 4 : 3;
    return add_pool(b, task, g->shape[1], layout, run_max_grad, buffers, n, tiled);
}

static ls_status one_to_one(cpu_builder *b, const cpu_task *task, cpu_layout in, cpu_layout out,
                            void (*run)(const cpu_call *call))
{
    const ls_tensor *x = task->node->in[0];
    bool tiled = ls__cpu_tiled(b, x);
    int buffers[2];
    LS_TRY(ls__cpu_read(b, x, in, &buffers[0]));
    LS_TRY(ls__cpu_write(b, task->out, out, tiled, &buffers[1]));
    cpu_layout layout = in == CPU_BLOCKED ? in : out;
    return add_pool(b, task, x->shape[1], layout, run, buffers, 2, tiled);
}

ls_status ls__cpu_avg_pool2d(cpu_builder *b, const cpu_task *task)
{
    cpu_layout layout = ls__cpu_layout_of(b, task->node->in[0]);
    return one_to_one(b, task, layout, layout, run_avg);
}

ls_status ls__cpu_avg_pool2d_grad(cpu_builder *b, const cpu_task *task)
{
    bool gradient = ls__cpu_gradient_slot(b, task->out) >= 0; /* x is a parameter: plain */
    cpu_layout layout = gradient ? CPU_PLAIN : ls__cpu_layout_of(b, task->node->in[0]);
    return one_to_one(b, task, layout, layout, run_avg_grad);
}

ls_status ls__cpu_global_avg_pool2d(cpu_builder *b, const cpu_task *task)
{
    return one_to_one(b, task, ls__cpu_layout_of(b, task->node->in[0]), CPU_PLAIN, run_global);
}

ls_status ls__cpu_global_avg_pool2d_grad(cpu_builder *b, const cpu_task *task)
{
    bool gradient = ls__cpu_gradient_slot(b, task->out) >= 0;
    cpu_layout out = b->program->block > 1 && !gradient ? CPU_BLOCKED : CPU_PLAIN;
    return one_to_one(b, task, CPU_PLAIN, out, run_global_grad);
}
