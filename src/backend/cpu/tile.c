/* How many samples a tile has, and how many lanes there are: functions of the graph's shapes, so
 * that every process and every number of threads computes the same sums.
 *
 * Measured on convolutions of 16 to 64 channels: 16 to 64 samples, or 1 to 5 MB of input and output
 * of the largest operation, run at the full speed of a core; less has too much overhead per call,
 * more falls out of the caches. */
#include "backend/cpu/cpu.h"

enum { TILE_BYTES = 4 << 20, LARGEST_TILE = 64, MOST_LANES = 8, LANE_BYTES = 64 << 20 };

static size_t node_bytes(const cpu_builder *b, const ls__node *node)
{
    size_t nbytes = 0;
    for (int i = 0; i < node->nin; i++)
        if (node->in[i]->sample_major) nbytes += ls__cpu_nbytes(b->program, node->in[i], CPU_PLAIN);
    for (int i = 0; i < node->nout; i++)
        if (node->out[i]->sample_major)
            nbytes += ls__cpu_nbytes(b->program, node->out[i], CPU_PLAIN);
    return nbytes;
}

static int64_t parameter_bytes(const cpu_builder *b)
{
    int64_t nbytes = 1;
    for (int i = 0; i < b->nparams; i++) nbytes += 4 * ls__cpu_count(b->params[i].tensor);
    return nbytes;
}

void ls__cpu_choose_tile(const cpu_builder *b, cpu_program *p)
{
    size_t most = 1;
    for (int i = 0; i < b->nnodes; i++) {
        size_t nbytes = node_bytes(b, &b->nodes[i]);
        if (nbytes > most) most = nbytes;
    }
    int64_t unit = ls__graph_group(b->graph), per_sample = (int64_t)most / p->batch + 1;
    int64_t tile = TILE_BYTES / per_sample;
    if (tile > LARGEST_TILE) tile = LARGEST_TILE;
    tile = tile / unit * unit;
    p->tile = tile < unit ? unit : tile;
    if (p->tile > p->batch) p->tile = p->batch;
    p->ntiles = (p->batch + p->tile - 1) / p->tile;
    int64_t lanes = LANE_BYTES / parameter_bytes(b);
    if (lanes < 2) lanes = 2;
    if (lanes > MOST_LANES) lanes = MOST_LANES;
    p->lanes = (int)(lanes < p->ntiles ? lanes : p->ntiles);
}
