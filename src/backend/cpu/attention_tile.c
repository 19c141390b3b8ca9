/* What attention's two directions share: which queries see which keys, and the products of a block
 * of keys with a tile of queries. */
#include "backend/cpu/attention_head.h"
#include "backend/cpu/cpu.h"

#include <math.h>

attention_ahead ls__cpu_attention_ahead(const attention_shape *s, int64_t head, int64_t step,
                                        bool last, int64_t first, int products)
{
    bool wraps = head + step >= s->heads;
    int64_t rows = s->tokens - first < TILE ? s->tokens - first : TILE;
    int64_t groups =
        s->causal ? first / KEYS + (rows + LANES - 1) / LANES : (s->tokens + KEYS - 1) / KEYS;
    attention_ahead next = { .head = head + step - (wraps ? s->heads : 0),
                             .token = first + (wraps ? s->tokens : 0),
                             .rows = wraps && last ? 0 : rows,
                             .times = products * groups };
    next.kv_head = next.head / (s->heads / s->kv_heads);
    return next;
}

bool ls__cpu_attention_block(const attention_shape *s, int64_t t, int64_t first,
                             attention_ahead *next, attention_block *out)
{
    int64_t queries = s->tokens - t < TILE ? s->tokens - t : TILE;
    int64_t keys = s->tokens - first < KEYS ? s->tokens - first : KEYS;
    *out = (attention_block) { .first = first,
                               .keys = keys,
                               .vectors = (queries + LANES - 1) / LANES,
                               .diagonal = s->causal && first == t,
                               .next = next };
    return keys > 0 && (!s->causal || first <= t);
}

LS__CPU_CLONES void ls__cpu_attention_hide(const attention_block *b, float *scores)
{
    const lanes hidden = LANES_OF(-INFINITY);
    for (int64_t i = 0; i < b->keys; i++)
        lanes_store_some(scores + i * TILE + i / LANES * LANES, &hidden, i % LANES);
}

void ls__cpu_attention_scores(const attention_shape *s, const attention_block *b, const float *x,
                              const float *panel, float *scores)
{
    FOR_GROUPS(b, group, size, vector)
    ls__cpu_panel_product(&(panel_product) { .a = x + (b->first + group) * s->row,
                                             .a_row = s->row,
                                             .a_step = 1,
                                             .b = panel + vector * LANES,
                                             .b_row = TILE,
                                             .c = scores + group * TILE + vector * LANES,
                                             .c_row = TILE,
                                             .m = group_keys(b, group, size),
                                             .k = s->width,
                                             .vectors = b->vectors - vector });
}

void ls__cpu_attention_gather(const attention_shape *s, const attention_block *b, const float *x,
                              const float *scores, float *sums)
{
    FOR_GROUPS(b, group, size, vector)
    ls__cpu_panel_product(&(panel_product) { .a = x + (b->first + group) * s->row,
                                             .a_row = 1,
                                             .a_step = s->row,
                                             .b = scores + group * TILE + vector * LANES,
                                             .b_row = TILE,
                                             .c = sums + vector * LANES,
                                             .c_row = TILE,
                                             .m = s->width,
                                             .k = group_keys(b, group, size),
                                             .vectors = b->vectors - vector,
                                             .add = b->first + group > 0 });
}
