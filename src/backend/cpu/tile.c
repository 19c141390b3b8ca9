/* How many samples a tile has, how many lanes there are, and which weights are too large for tiles:
 * functions of the graph's shapes, so that every process and every number of threads computes the
 * same sums.
 *
 * Measured on images: 16 to 64 samples, 1 to 5 MB of the largest tensor, run at the full speed of a
 * core. Fewer have too much overhead per call and read all weights too often; with more, or with
 * more than some 20 MB of activations between forward and backward, the caches do not hold them.
 * Where a sample has many rows (a sequence) the tile is about ROWS of them: every tile reads the
 * weights, and reads and writes their gradients, which at 256 rows is some 4 % of its time. The
 * activations of its layers fit no cache, but those of neighbouring steps do.
 *
 * Lanes hold gradients. Where two lanes of them take more memory than the activations of the whole
 * micro-batch (few rows, many parameters), linear layers run as whole steps over blocks of their
 * output instead: then only what lies between them is cut by samples. */
#include "backend/cpu/gemm.h"

enum {
    TENSOR_BYTES = 13 << 18,
    ALL_BYTES = 24 << 20,
    SMALLEST_TILE = 8,
    LARGEST_TILE = 64,
    ROUND_TILE = 16,
    ROWS = 512,
    FEWEST_ROWS = 64, /* of a sequence's tile */
    EVEN_TILES = 2,   /* sequences: two threads have as much to do each */
    MOST_LANES = 8,
    LANE_BYTES = 128 << 20,
    LARGE_BYTES = 4 << 20, /* read too often by tiles of single rows */
    LARGE_FOR_ROWS = 16 << 20,
    LARGE_AMONG_WHOLE = 64 << 10,
    WHOLE_TILES = 8
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
            if (!node->out[k]->sample_major || node->op == &ls__op_reshape) continue;
            if (each > *largest) *largest = each;
            *all += each;
        }
    }
}

/* The most rows that a sample has in a linear layer. */
static int64_t rows_of_sample(const cpu_builder *b)
{
    int64_t most = 1;
    for (int i = 0; i < b->nnodes; i++) {
        if (b->nodes[i].op != &ls__op_linear) continue;
        int64_t rows = b->nodes[i].in[0]->shape[0] / b->program->batch;
        if (rows > most) most = rows;
    }
    return most;
}

static bool is_linear_weight(const cpu_builder *b, const ls_tensor *x)
{
    for (int i = 0; i < b->nnodes; i++)
        if (b->nodes[i].op == &ls__op_linear && b->nodes[i].in[1] == x) return true;
    return false;
}

static int64_t float_bytes(const ls_tensor *x)
{
    return ls__cpu_count(x) * (int64_t)sizeof(float);
}

bool ls__cpu_large_weight(const cpu_builder *b, const ls_tensor *weight)
{
    return weight->rank == 2 && float_bytes(weight) >= b->large_bytes;
}

/* Of parameters whose gradients are summed by lanes. */
static int64_t lane_bytes(const cpu_builder *b, bool weights_only)
{
    int64_t nbytes = 1;
    for (int i = 0; i < b->nparams; i++) {
        const ls_tensor *x = b->params[i].tensor;
        if (ls__cpu_large_weight(b, x) || (weights_only && !is_linear_weight(b, x))) continue;
        nbytes += float_bytes(x);
    }
    return nbytes;
}

static void choose_large(cpu_builder *b, int64_t rows, int64_t all)
{
    b->large_bytes = rows * SMALLEST_TILE >= ROWS ? LARGE_FOR_ROWS : LARGE_BYTES;
    int64_t lanes = 2 * lane_bytes(b, true);
    b->whole_linear = lanes > LANE_BYTES && lanes > all * b->program->batch;
    if (b->whole_linear) b->large_bytes = LARGE_AMONG_WHOLE;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Samples of one row each. */
static int64_t tile_of_rows(int64_t largest, int64_t all)
{
    int64_t tile = least(least(TENSOR_BYTES / largest, ALL_BYTES / all), LARGEST_TILE);
    if (tile > ROUND_TILE) tile = tile / ROUND_TILE * ROUND_TILE;
    return tile < SMALLEST_TILE ? SMALLEST_TILE : tile;
}

static int64_t tile_of_sequences(const cpu_builder *b, int64_t rows, int64_t largest)
{
    int64_t batch = b->program->batch;
    int64_t tile = least(TENSOR_BYTES / largest, ROWS / rows);
    if (tile * rows < FEWEST_ROWS) tile = FEWEST_ROWS / rows;
    if (tile > LARGEST_TILE) tile = LARGEST_TILE;
    if (tile < 1) tile = 1;
    int64_t ntiles = (batch + tile - 1) / tile;
    if (b->whole_linear && ntiles < WHOLE_TILES) ntiles = WHOLE_TILES;
    ntiles = least((ntiles + EVEN_TILES - 1) / EVEN_TILES * EVEN_TILES, batch);
    return (batch + ntiles - 1) / ntiles;
}

static int64_t choose_lanes(const cpu_builder *b, int64_t ntiles)
{
    int64_t most = LANE_BYTES / lane_bytes(b, false), lanes = 2;
    while (2 * lanes <= least(most, MOST_LANES)) lanes *= 2;
    return least(lanes, ntiles);
}

void ls__cpu_choose_tile(cpu_builder *b, cpu_program *p)
{
    int64_t largest, all, unit = ls__graph_group(b->graph), rows = rows_of_sample(b);
    measure_values(b, &largest, &all);
    choose_large(b, rows, all);
    int64_t tile = rows == 1 ? tile_of_rows(largest, all) : tile_of_sequences(b, rows, largest);
    tile = tile / unit * unit;
    p->tile = tile < unit ? unit : tile;
    if (p->tile > p->batch) p->tile = p->batch;
    p->ntiles = (p->batch + p->tile - 1) / p->tile;
    p->lanes = (int)choose_lanes(b, p->ntiles);
}
