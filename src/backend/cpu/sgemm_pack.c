/* Panels of b in the order in which sgemm_block reads them. */
#include "backend/cpu/lanes.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/sgemm.h"

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
