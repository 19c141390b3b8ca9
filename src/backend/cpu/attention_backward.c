/* Attention of one head, backward: scores are computed again from queries and keys, so that only a
 * number per query (logsum) was kept from the forward pass.
 *
 * Tiles of queries are the outer loop: a tile's dq is summed in its panel, dk and dv of all tokens
 * in scratch (tokens x width, which the second-level cache holds), over heads that share them and
 * tiles in order. */
#include "backend/cpu/attention_head.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_math.h"

#include <string.h>

enum { PRODUCTS = 6 /* of a block: two of scores, the pass over them, three of gradients */ };

typedef struct tile {
    int64_t padded;     /* width rounded up to whole vectors */
    int64_t count;      /* queries */
    bool begins;        /* the first queries that see the block at hand */
    float *queries;     /* (width, TILE), scaled */
    float *grads;       /* (width, TILE) of y */
    float *query_rows;  /* (TILE, padded), scaled */
    float *grad_rows;   /* (TILE, padded) */
    float *dq;          /* (width, TILE) */
    float *p, *ds;      /* (KEYS, TILE) */
    float *dk, *dv;     /* (tokens, padded) */
    float logsum[TILE]; /* 0 behind the last query */
    float dots[TILE];   /* of a query's y with its gradient */
} tile;

size_t ls__cpu_attention_grad_scratch(const attention_shape *s)
{
    int64_t padded = padded_width(s);
    return (size_t)(3 * s->width * TILE + 2 * TILE * padded + 2 * KEYS * TILE +
                    2 * s->tokens * padded);
}

static void divide_scratch(tile *t, const attention_shape *s, float *scratch)
{
    int64_t panel = s->width * TILE, rows, all;
    t->padded = padded_width(s);
    rows = TILE * t->padded;
    all = s->tokens * t->padded;
    t->queries = scratch;
    t->grads = t->queries + panel;
    t->dq = t->grads + panel;
    t->query_rows = t->dq + panel;
    t->grad_rows = t->query_rows + rows;
    t->p = t->grad_rows + rows;
    t->ds = t->p + KEYS * TILE;
    t->dk = t->ds + KEYS * TILE;
    t->dv = t->dk + all;
}

/* Of each row of a with its row of b: sixteen sums. */
LS__CPU_CLONES static void multiply_rows(const float *a, const float *b, int64_t row, int64_t rows,
                                         int64_t width, float *sums)
{
    const lanes zero = { 0 };
    for (int64_t r = 0; r < rows; r++, a += row, b += row, sums += LANES) {
        lanes sum = { 0 }, x, y;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            lanes_load(&x, a + i);
            lanes_load(&y, b + i);
            sum = sum + x * y;
        }
        if (i < width) {
            lanes_load_some(&x, a + i, width - i, &zero);
            lanes_load_some(&y, b + i, width - i, &zero);
            sum = sum + x * y;
        }
        lanes_store(sums, &sum);
    }
}

/* out (vectors) = the sum of the panel's sixteen rows, in order */
LS__CPU_CLONES static void add_panel_rows(const float *panel, int64_t vectors, float *out)
{
    for (int64_t at = 0; at < vectors * LANES; at += LANES) {
        lanes sum = { 0 }, x;
        for (int64_t l = 0; l < LANES; l++) {
            lanes_load(&x, panel + l * TILE + at);
            sum = sum + x;
        }
        lanes_store(out + at, &sum);
    }
}

/* t->dots: g.y of each query. p and ds are not in use yet. */
static void dot_rows(const attention_shape *s, tile *t, const float *g, const float *y)
{
    multiply_rows(g, y, s->heads * s->width, t->count, s->width, t->ds);
    ls__cpu_panel_load(t->ds, LANES, t->count, LANES, 1, t->p, TILE);
    add_panel_rows(t->p, (t->count + LANES - 1) / LANES, t->dots);
}

/* Scores become p, and dp becomes ds. */
LANES_INLINE void differentiate_each(float *p, float *ds, int64_t rows, const float *logsums,
                                     const float *dots, const int n)
{
    lanes logsum[PANEL_VECTORS], r[PANEL_VECTORS], s[PANEL_VECTORS], d[PANEL_VECTORS];
    LANES_EACH(v, n) lanes_load(&logsum[v], logsums + v * LANES);
    LANES_EACH(v, n) lanes_load(&r[v], dots + v * LANES);
    for (int64_t i = 0; i < rows; i++, p += TILE, ds += TILE) {
        LANES_EACH(v, n) lanes_load(&s[v], p + v * LANES);
        LANES_EACH(v, n) s[v] = s[v] - logsum[v];
        lanes_exp_falling_each(s, n);
        LANES_EACH(v, n) lanes_load(&d[v], ds + v * LANES);
        LANES_EACH(v, n) d[v] = s[v] * (d[v] - r[v]);
        LANES_EACH(v, n) lanes_store(p + v * LANES, &s[v]);
        LANES_EACH(v, n) lanes_store(ds + v * LANES, &d[v]);
    }
}

LS__CPU_CLONES static void differentiate(float *p, float *ds, int64_t rows, int64_t vectors,
                                         const float *logsums, const float *dots)
{
    if (vectors == 4) differentiate_each(p, ds, rows, logsums, dots, 4);
    if (vectors == 3) differentiate_each(p, ds, rows, logsums, dots, 3);
    if (vectors == 2) differentiate_each(p, ds, rows, logsums, dots, 2);
    if (vectors == 1) differentiate_each(p, ds, rows, logsums, dots, 1);
}

/* sums (keys, padded) += scores (keys, queries) rows (queries, padded); = with the first queries that
 * see the block */
static void scatter(const attention_block *b, const tile *t, const float *scores, const float *rows,
                    float *sums)
{
    FOR_GROUPS(b, group, size, vector)
    ls__cpu_panel_product(&(panel_product) { .a = scores + group * TILE + vector * LANES,
                                             .a_row = TILE,
                                             .a_step = 1,
                                             .b = rows + vector * LANES * t->padded,
                                             .b_row = t->padded,
                                             .c = sums + (b->first + group) * t->padded,
                                             .c_row = t->padded,
                                             .m = group_keys(b, group, size),
                                             .k = t->count - vector * LANES,
                                             .vectors = t->padded / LANES,
                                             .add = !t->begins });
}

static void differentiate_block(const attention_shape *s, tile *t, const attention_block *b,
                                const float *keys, const float *values)
{
    ls__cpu_attention_scores(s, b, keys, t->queries, t->p);
    ls__cpu_attention_scores(s, b, values, t->grads, t->ds);
    if (b->diagonal) ls__cpu_attention_hide(b, t->p);
    FOR_GROUPS(b, group, size, vector)
    {
        int64_t at = group * TILE + vector * LANES;
        differentiate(t->p + at, t->ds + at, group_keys(b, group, size), b->vectors - vector,
                      t->logsum + vector * LANES, t->dots + vector * LANES);
    }
    ls__cpu_attention_gather(s, b, keys, t->ds, t->dq);
    scatter(b, t, t->ds, t->query_rows, t->dk);
    scatter(b, t, t->p, t->grad_rows, t->dv);
}

/* g, y: the head's columns of the tile's first query. */
static void begin(const attention_shape *s, tile *t, const float *queries, const float *g,
                  const float *y, const float *logsum)
{
    int64_t y_row = s->heads * s->width;
    ls__cpu_panel_load(queries, s->row, t->count, s->width, s->scale, t->queries, TILE);
    ls__cpu_panel_copy(queries, s->row, t->count, s->width, s->scale, t->query_rows, t->padded);
    ls__cpu_panel_load(g, y_row, t->count, s->width, 1, t->grads, TILE);
    ls__cpu_panel_copy(g, y_row, t->count, s->width, 1, t->grad_rows, t->padded);
    for (int64_t i = 0; i < TILE; i++) t->logsum[i] = i < t->count ? logsum[i] : 0;
    dot_rows(s, t, g, y);
}

static void copy_rows(const float *x, int64_t x_row, int64_t rows, int64_t width, float *y,
                      int64_t y_row)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * y_row, x + r * x_row, (size_t)width * sizeof *y);
}

static attention_ahead expect(const attention_shape *s, const float *g, const float *qkv,
                              const float *y, const float *dqkv, int64_t head, bool last,
                              int64_t first)
{
    attention_ahead next =
        ls__cpu_attention_ahead(s, head, s->heads / s->kv_heads, last, first, PRODUCTS);
    int64_t query = next.head * s->width, key = (s->heads + next.kv_head) * s->width;
    int64_t value = key + s->kv_heads * s->width, row = s->heads * s->width;
    const float *packed[] = { qkv, dqkv };
    for (int i = 0; i < 2; i++) {
        ask_for_head(&next, s, packed[i], s->row, query);
        ask_for_head(&next, s, packed[i], s->row, key);
        ask_for_head(&next, s, packed[i], s->row, value);
    }
    ask_for_head(&next, s, g, row, query);
    ask_for_head(&next, s, y, row, query);
    return next;
}

void ls__cpu_attention_grad_group(const attention_shape *s, const float *g, const float *qkv,
                                  const float *y, const float *logsum, int64_t kv_head, bool last,
                                  float *dqkv, float *scratch)
{
    int64_t shared = s->heads / s->kv_heads, width = s->width;
    int64_t key_at = (s->heads + kv_head) * width, value_at = key_at + s->kv_heads * width;
    float scales[TILE];
    tile t;
    divide_scratch(&t, s, scratch);
    for (int i = 0; i < TILE; i++) scales[i] = s->scale;
    for (int64_t head = kv_head * shared; head < (kv_head + 1) * shared; head++) {
        for (int64_t first = 0; first < s->tokens; first += TILE) {
            int64_t at = (first * s->heads + head) * width;
            int64_t query = first * s->row + head * width;
            t.count = s->tokens - first < TILE ? s->tokens - first : TILE;
            begin(s, &t, qkv + query, g + at, y + at, logsum + head * s->tokens + first);
            attention_ahead next = expect(s, g, qkv, y, dqkv, head, last, first);
            attention_block b;
            for (int64_t key = 0; ls__cpu_attention_block(s, first, key, &next, &b); key += KEYS) {
                t.begins = head == kv_head * shared && (s->causal ? b.diagonal : first == 0);
                differentiate_block(s, &t, &b, qkv + key_at, qkv + value_at);
            }
            ls__cpu_panel_store(t.dq, TILE, t.count, width, scales, dqkv + query, s->row);
        }
    }
    copy_rows(t.dk, t.padded, s->tokens, width, dqkv + key_at, s->row);
    copy_rows(t.dv, t.padded, s->tokens, width, dqkv + value_at, s->row);
}
