/* The loops around sgemm_block, and what is asked for ahead.
 *
 * Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008): a panel of b
 * (depth x 48) stays in the first-level cache while eight rows of a after the other go by, a part of
 * a (height x depth) in the second. A panel is packed just before its first use; meanwhile the one
 * after it is on its way from memory, a few lines with every block of c.
 *
 * Workload: 64 to 4,096 rows or columns, of which one is the rows of a micro-batch or tile. */
#include "backend/cpu/sgemm.h"

#include "backend/cpu/ahead.h"

enum {
    PANEL = SGEMM_VECTORS * 16,
    DEPTH = 128,
    A_FLOATS = 96 << 10, /* of a part: 384 KB */
    B_FLOATS = 128 << 10 /* of the panels that one part after the other meets */
};

/* n in equal parts of at most `most`, whole units each. */
static int64_t part_of(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = (n + most - 1) / most;
    int64_t part = ((n + parts - 1) / parts + unit - 1) / unit * unit;
    return part;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

bool ls__sgemm_plan(sgemm *s)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw"))
        return false;
    s->depth = part_of(s->k, DEPTH, 8);
    s->height = part_of(s->m, A_FLOATS / s->depth, SGEMM_ROWS);
    s->width = part_of(s->n, B_FLOATS / s->depth, PANEL);
    return true;
#else
    (void)s;
    return false;
#endif
}

/* With one part of a, a panel is used once. */
static int64_t panels_kept(const sgemm *s)
{
    return s->height < s->m ? s->width : PANEL;
}

size_t ls__sgemm_scratch(const sgemm *s)
{
    return (size_t)(panels_kept(s) * s->depth) * sizeof(float);
}

/* --- loops --- */

/* Where a run is: rows [i, i + m), columns [j, j + n) of c, [p, p + k) of the sums. */
typedef struct place {
    int64_t i, m, j, n, p, k;
} place;

typedef struct job {
    const sgemm *s;
    const float *a, *b, *bias;
    float *c;
    float *panels;
} job;

static const float *b_at(const job *w, int64_t p, int64_t j)
{
    return w->b + (w->s->transpose_b ? j * w->s->b_stride + p : p * w->s->b_stride + j);
}

static const float *a_at(const job *w, int64_t i, int64_t p)
{
    return w->a + (w->s->transpose_a ? p * w->s->a_stride + i : i * w->s->a_stride + p);
}

static void pack_panel(const job *w, const place *at, int64_t j, int64_t columns, float *panel)
{
    if (w->s->transpose_b)
        ls__sgemm_pack_transposed(b_at(w, at->p, j), w->s->b_stride, at->k, columns, panel);
    else
        ls__sgemm_pack_b(b_at(w, at->p, j), w->s->b_stride, at->k, columns, panel);
}

/* The panel that is packed next after columns [j, j + PANEL): in this pass, in the next one, or for
 * the columns after these. */
static ahead panel_after(const job *w, const place *at, int64_t j, int64_t times)
{
    const sgemm *s = w->s;
    int64_t p = at->p, k = at->k;
    j += PANEL;
    if (j >= at->j + at->n) {
        p += at->k;
        j = at->j;
        if (p >= s->k) {
            p = 0;
            j += at->n;
        }
        k = least(s->k - p, s->depth);
    }
    if (j >= s->n) return NOTHING_AHEAD;
    int64_t n = least(s->n - j, PANEL);
    return s->transpose_b ? ask_for(b_at(w, p, j), s->b_stride, n, k, times)
                          : ask_for(b_at(w, p, j), s->b_stride, k, n, times);
}

/* All rows of a's part with one panel. */
static void multiply_panel(const job *w, const place *at, int64_t j, const float *panel,
                           ahead *next_panel, ahead *next_a)
{
    const sgemm *s = w->s;
    int64_t columns = least(at->j + at->n - j, PANEL);
    int vectors = (int)((columns + 15) / 16);
    bool last = at->p + at->k == s->k;
    sgemm_block block = { .a_stride = s->a_stride,
                          .transposed = s->transpose_a,
                          .b = panel,
                          .c_row = s->c_stride,
                          .depth = at->k,
                          .columns = columns,
                          .bias = s->bias && at->p == 0 ? w->bias + j : NULL,
                          .add = s->sum || at->p > 0,
                          .relu = s->relu && last };
    for (int64_t i = 0; i < at->m; i += SGEMM_ROWS) {
        ask(next_panel);
        ask(next_a);
        block.a = a_at(w, at->i + i, at->p);
        block.c = w->c + (at->i + i) * s->c_stride + j;
        ls__sgemm_block(&block, (int)least(at->m - i, SGEMM_ROWS), vectors);
    }
}

/* A part of a with all panels. */
static void multiply_part(const job *w, const place *at)
{
    const sgemm *s = w->s;
    int64_t times = (at->m + SGEMM_ROWS - 1) / SGEMM_ROWS;
    int64_t kept = panels_kept(s) > PANEL;
    ahead next_a = NOTHING_AHEAD;
    if (!s->transpose_a && at->m > SGEMM_ROWS) /* the rows after the eight at hand */
        next_a = ask_for(a_at(w, at->i + SGEMM_ROWS, at->p), s->a_stride, at->m - SGEMM_ROWS, at->k,
                         times - 1);
    for (int64_t j = at->j; j < at->j + at->n; j += PANEL) {
        float *panel = w->panels + kept * (j - at->j) * at->k;
        ahead next_panel = NOTHING_AHEAD;
        if (at->i == 0) {
            pack_panel(w, at, j, least(at->j + at->n - j, PANEL), panel);
            next_panel = panel_after(w, at, j, times);
        }
        multiply_panel(w, at, j, panel, &next_panel, &next_a);
    }
}

void ls__sgemm_run(const sgemm *s, const float *a, const float *b, const float *bias, float *c,
                   float *scratch)
{
    job w = { .s = s, .a = a, .b = b, .bias = bias, .c = c, .panels = scratch };
    place at;
    for (at.j = 0; at.j < s->n; at.j += at.n) {
        at.n = least(s->n - at.j, s->width);
        for (at.p = 0; at.p < s->k; at.p += at.k) {
            at.k = least(s->k - at.p, s->depth);
            for (at.i = 0; at.i < s->m; at.i += at.m) {
                at.m = least(s->m - at.i, s->height);
                multiply_part(&w, &at);
            }
        }
    }
}
