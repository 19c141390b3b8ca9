/* Parts of matrices in the order in which sgemm_block reads them. Whole lines are read, row by row,
 * and rows to come are asked for: rows of a large matrix lie on a page each. */
#include "backend/cpu/lanes.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/sgemm.h"

enum { AHEAD = 16 /* rows */ };

/* SGEMM_GROUP columns become four panels. */
SGEMM_TARGET static void pack_group(const float *x, int64_t stride, int64_t rows, float *panels)
{
    enum { PANELS = SGEMM_GROUP / SGEMM_ROWS };
    const int64_t panel = rows * SGEMM_ROWS;
    for (int64_t r = 0; r < rows; r++, x += stride, panels += SGEMM_ROWS) {
        __builtin_prefetch(x + AHEAD * stride);
        __builtin_prefetch(x + AHEAD * stride + LANES);
#pragma GCC unroll 4
        for (int i = 0; i < PANELS; i++)
            memcpy(panels + i * panel, x + i * SGEMM_ROWS, SGEMM_ROWS * sizeof *x);
    }
}

void ls__sgemm_pack_a(const float *x, int64_t stride, int64_t rows, int64_t columns, float *panels)
{
    int64_t at = 0;
    for (; at + SGEMM_GROUP <= columns; at += SGEMM_GROUP)
        pack_group(x + at, stride, rows, panels + at * rows);
    for (; at < columns; at += SGEMM_ROWS) {
        int64_t n = columns - at < SGEMM_ROWS ? columns - at : SGEMM_ROWS;
        float *to = panels + at * rows;
        for (int64_t r = 0; r < rows; r++, to += SGEMM_ROWS)
            memcpy(to, x + r * stride + at, (size_t)n * sizeof *to);
    }
}

/* vectors: a constant where this is inlined. */
LANES_INLINE void copy_rows(const float *x, int64_t stride, int64_t rows, float *panel,
                            const int vectors)
{
    for (int64_t r = 0; r < rows; r++, x += stride, panel += vectors * LANES) {
        lanes v[SGEMM_VECTORS];
#pragma GCC unroll 3
        for (int i = 0; i < vectors; i++) __builtin_prefetch(x + AHEAD * stride + i * LANES);
#pragma GCC unroll 3
        for (int i = 0; i < vectors; i++) lanes_load(&v[i], x + i * LANES);
#pragma GCC unroll 3
        for (int i = 0; i < vectors; i++) lanes_store(panel + i * LANES, &v[i]);
    }
}

SGEMM_TARGET void ls__sgemm_pack_b(const float *x, int64_t stride, int64_t rows, int64_t columns,
                                   float *panel)
{
    int64_t padded = (columns + LANES - 1) / LANES * LANES;
    if (padded > columns)
        ls__cpu_panel_copy(x, stride, rows, columns, 1, panel, padded);
    else if (columns == LANES)
        copy_rows(x, stride, rows, panel, 1);
    else if (columns == 2 * LANES)
        copy_rows(x, stride, rows, panel, 2);
    else
        copy_rows(x, stride, rows, panel, SGEMM_VECTORS);
}

void ls__sgemm_pack_transposed(const float *x, int64_t stride, int64_t rows, int64_t columns,
                               float *panel)
{
    int64_t padded = (columns + LANES - 1) / LANES * LANES;
    ls__cpu_panel_load(x, stride, columns, rows, 1, panel, padded);
}
