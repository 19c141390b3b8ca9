/* Parts of matrices in the order in which sgemm_block reads them. Whole lines are read, row by row,
 * and rows to come are asked for: rows of a large matrix lie on a page each. */
#include "backend/cpu/lanes.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/sgemm.h"

enum { AHEAD = 16 /* rows */, GROUP = 2 * LANES /* columns of a: two lines */ };

/* GROUP columns become four panels. */
static void pack_group(const float *x, int64_t stride, int64_t rows, float *panels)
{
    enum { PANELS = GROUP / SGEMM_ROWS };
    const int64_t panel = rows * SGEMM_ROWS;
    for (int64_t r = 0; r < rows; r++, x += stride, panels += SGEMM_ROWS) {
        __builtin_prefetch(x + AHEAD * stride);
        __builtin_prefetch(x + AHEAD * stride + LANES);
        for (int i = 0; i < PANELS; i++)
            memcpy(panels + i * panel, x + i * SGEMM_ROWS, SGEMM_ROWS * sizeof *x);
    }
}

void ls__sgemm_pack_a(const float *x, int64_t stride, int64_t rows, int64_t columns, float *panels)
{
    int64_t at = 0;
    for (; at + GROUP <= columns; at += GROUP) pack_group(x + at, stride, rows, panels + at * rows);
    for (; at < columns; at += SGEMM_ROWS) {
        int64_t n = columns - at < SGEMM_ROWS ? columns - at : SGEMM_ROWS;
        float *to = panels + at * rows;
        for (int64_t r = 0; r < rows; r++, to += SGEMM_ROWS)
            memcpy(to, x + r * stride + at, (size_t)n * sizeof *to);
    }
}

void ls__sgemm_pack_b(const float *x, int64_t stride, int64_t rows, int64_t columns, float *panel)
{
    int64_t padded = (columns + LANES - 1) / LANES * LANES;
    if (padded > columns) {
        ls__cpu_panel_copy(x, stride, rows, columns, 1, panel, padded);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(panel + r * padded, x + r * stride, (size_t)columns * sizeof *x);
}

void ls__sgemm_pack_transposed(const float *x, int64_t stride, int64_t rows, int64_t columns,
                               float *panel)
{
    int64_t padded = (columns + LANES - 1) / LANES * LANES;
    ls__cpu_panel_load(x, stride, columns, rows, 1, panel, padded);
}
