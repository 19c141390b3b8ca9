/* Between the plain and the blocked layout: a transposition of (block, H W) per channel block.
 *
 * Where a tensor needs both layouts it is copied once per tile, while it is in the cache. */
#include "backend/cpu/cpu.h"

typedef struct reorder {
    cpu_extent rows;
    int64_t channels, space; /* space = H W */
    int block;
    bool to_blocked;
} reorder;

/* in: (lanes, space), out: (space, block) */
LS__CPU_CLONES static void block_channels(const float *in, float *out, int64_t space, int lanes,
                                          int block)
{
    for (int64_t s = 0; s < space; s++)
        for (int l = 0; l < lanes; l++) out[s * block + l] = in[l * space + s];
    for (int64_t s = 0; s < space && lanes < block; s++)
        for (int l = lanes; l < block; l++) out[s * block + l] = 0;
}

/* in: (space, block), out: (lanes, space) */
LS__CPU_CLONES static void unblock_channels(const float *in, float *out, int64_t space, int lanes,
                                            int block)
{
    for (int l = 0; l < lanes; l++)
        for (int64_t s = 0; s < space; s++) out[l * space + s] = in[s * block + l];
}

static void run_reorder(const cpu_call *call)
{
    const reorder *r = call->step->state;
    const float *in = ls__cpu_at(call, 0);
    float *out = ls__cpu_at(call, 1);
    int64_t rows = ls__cpu_extent_rows(call, &r->rows);
    int64_t blocks = (r->channels + r->block - 1) / r->block;
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t c = 0; c < blocks; c++) {
            int64_t plain = (n * r->channels + c * r->block) * r->space;
            int64_t blocked = (n * blocks + c) * r->block * r->space;
            int64_t rest = r->channels - c * r->block;
            int lanes = rest < r->block ? (int)rest : r->block;
            if (r->to_blocked)
                block_channels(in + plain, out + blocked, r->space, lanes, r->block);
            else
                unblock_channels(in + blocked, out + plain, r->space, lanes, r->block);
        }
    }
}

ls_status ls__cpu_reorder(cpu_builder *b, const ls_tensor *x, int from, int to, cpu_layout target,
                          bool tiled)
{
    LS_ASSERT(x->rank == 4 && x->type == LS_DTYPE_F32);
    reorder *r = ls__alloc(1, sizeof *r);
    if (!r) return LS_ERR_MEMORY;
    *r = (reorder) { .rows = ls__cpu_extent(b, x),
                     .channels = x->shape[1],
                     .space = x->shape[2] * x->shape[3],
                     .block = b->program->block,
                     .to_blocked = target == CPU_BLOCKED };
    cpu_step_spec spec = {
        .run = run_reorder, .state = r, .destroy = ls__free, .whole = !tiled, .what = "reorder"
    };
    return ls__cpu_step(b, &spec, (int[]) { from, to }, 2);
}
