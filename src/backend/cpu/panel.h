/* Small matrices in the cache, as attention multiplies them: products of a matrix as it lies with a
 * panel of whole lanes, and transposition into and out of such panels. No packing, no scratch, no
 * call costs more than its floating-point operations. */
#ifndef LS_BACKEND_CPU_PANEL_H
#define LS_BACKEND_CPU_PANEL_H

#include <stdbool.h>

#include "backend/cpu/lanes.h"

enum { PANEL_VECTORS = 4, PANEL_COLUMNS = PANEL_VECTORS * LANES };

/* c (m, columns) = a (m,k) b (k, columns), or added to c. Every element is one sum over k in order,
 * so its bits depend on nothing else. */
typedef struct panel_product {
    const float *a;
    int64_t a_row, a_step; /* element (i,k) of a is a[i a_row + k a_step] */
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    int64_t m, k;
    int64_t vectors; /* columns / LANES */
    bool add;
} panel_product;
void ls__cpu_panel_product(const panel_product *p);

/* panel (columns, rows rounded up to LANES): panel[c][r] = factor x[r][c]; zeros behind the last
 * row. A row of panel is panel_row floats. */
void ls__cpu_panel_load(const float *x, int64_t x_row, int64_t rows, int64_t columns, float factor,
                        float *panel, int64_t panel_row);
/* y[r][c] = factor[r] panel[c][r] */
void ls__cpu_panel_store(const float *panel, int64_t panel_row, int64_t rows, int64_t columns,
                         const float *factor, float *y, int64_t y_row);
/* rows (rows, columns rounded up to LANES) = factor x, zeros behind the last column. */
void ls__cpu_panel_copy(const float *x, int64_t x_row, int64_t rows, int64_t columns, float factor,
                        float *copy, int64_t copy_row);

#endif
