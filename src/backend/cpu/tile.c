/* How many samples a tile has, and how many lanes there are: functions of the graph's shapes, so
 * that every process and every number of threads computes the same sums.
 *
 * Measured on the recipe's models: 16 to 64 samples, 1 to 5 MB of the largest tensor, run at the
 * full speed of a core. Fewer have too much overhead per call and read all weights too often; with
 * more, or with more than some 20 MB of activations between forward and backward, the caches do not
 * hold them. */
#include "backend/cpu/gemm.h"

enum {
    TENSOR_BYTES = 13 << 18,
    ALL_BYTES = 24 << 20,
    SMALLEST_TILE = 8,
    LARGEST_TILE = 64,
    ROUND_TILE = 16,
    MOST_LANES = 8,
    LANE_BYTES = 128 << 20
};

/* Bytes of what the forward pass computes per sample: of the largest tensor, of all. */
static void measure_values(const cpu_builder *b, int64_t *largest, int64_t *all)
{
    *largest = *all = 1;
    for (int i = 0; i < b->nnodes; i++) {
        const ls__node *node = &b->nodes[i];
        for (int k = 0; k < node->nout && !node->backward; k++) {
            size_t nbytes = ls__cpu_nbytes(b->program, node->out[k], CPU_PLAIN);
            int64_t each = (int64_t)nbytes / b->program->batch;
            if (!node->out[k]->sample_major) continue;
            if (each > *largest) *largest = each;
            *all += each;
        }
    }
}

/* Of parameters whose gradients are summed by lanes. */
static int64_t lane_bytes(const cpu_builder *b)
{
    int64_t nbytes = 1;
    for (int i = 0; i < b->nparams; i++)
        if (!ls__cpu_large_weight(b->params[i].tensor))
            nbytes += 4 * ls__cpu_count(b->params[i].tensor);
    return nbytes;
}

void ls__cpu_choose_tile(const cpu_builder *b, cpu_program *p)
{
    int64_t largest, all, unit = ls__graph_group(b->graph);
    measure_values(b, &largest, &all);
    int64_t tile = TENSOR_BYTES / largest;
    if (tile > ALL_BYTES / all) tile = ALL_BYTES / all;
    if (tile > LARGEST_TILE) tile = LARGEST_TILE;
    if (tile > ROUND_TILE) tile = tile / ROUND_TILE * ROUND_TILE;
    if (tile < SMALLEST_TILE) tile = SMALLEST_TILE;
    tile = tile / unit * unit;
    p->tile = tile < unit ? unit : tile;
    if (p->tile > p->batch) p->tile = p->batch;
    p->ntiles = (p->batch + p->tile - 1) / p->tile;
    int64_t lanes = LANE_BYTES / lane_bytes(b);
    if (lanes < 2) lanes = 2;
    if (lanes > MOST_LANES) lanes = MOST_LANES;
    p->lanes = (int)(lanes < p->ntiles ? lanes : p->ntiles);
}
