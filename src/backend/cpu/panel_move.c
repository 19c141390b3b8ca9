/* Into panels and out of them: transposition by blocks of sixteen by sixteen, in registers. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/panel.h"

#define INTERLEAVE_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define INTERLEAVE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

/* Row i of the lower half beside row i of the upper half: four times, and rows are columns. */
LANES_INLINE void interleave(const lanes from[LANES], lanes to[LANES])
{
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
        to[2 * i] = __builtin_shufflevector(from[i], from[i + LANES / 2], INTERLEAVE_LOW);
        to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + LANES / 2], INTERLEAVE_HIGH);
    }
}

LANES_INLINE void transpose(lanes block[LANES])
{
    lanes other[LANES];
    interleave(block, other);
    interleave(other, block);
    interleave(block, other);
    interleave(other, block);
}

LANES_INLINE int64_t at_most_lanes(int64_t n)
{
    return n < LANES ? n : LANES;
}

/* A block inside a matrix, or at its edge: what is not there is 0. */
LANES_INLINE void load_block(const float *x, int64_t row, int64_t rows, int64_t columns,
                             lanes block[LANES])
{
    const lanes zero = { 0 };
    if (rows == LANES && columns == LANES) {
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) lanes_load(&block[r], x + r * row);
        return;
    }
    for (int r = 0; r < LANES; r++) {
        block[r] = zero;
        if (r < rows) lanes_load_some(&block[r], x + r * row, columns, &zero);
    }
}

LANES_INLINE void store_block(const lanes block[LANES], int64_t rows, int64_t columns, float *y,
                              int64_t row)
{
    if (rows == LANES && columns == LANES) {
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) lanes_store(y + r * row, &block[r]);
        return;
    }
    for (int r = 0; r < LANES; r++)
        if (r < rows) lanes_store_some(y + r * row, &block[r], columns);
}

/* One block of panel_load, the constants of a whole one known. */
LANES_INLINE void load_transposed(const float *x, int64_t x_row, int64_t rows, int64_t columns,
                                  float factor, float *panel, int64_t panel_row)
{
    lanes block[LANES];
    load_block(x, x_row, rows, columns, block);
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) block[i] = block[i] * factor;
    store_block(block, columns, LANES, panel, panel_row);
}

LS__CPU_CLONES void ls__cpu_panel_load(const float *x, int64_t x_row, int64_t rows, int64_t columns,
                                       float factor, float *panel, int64_t panel_row)
{
    for (int64_t r = 0; r < rows; r += LANES) {
        int64_t high = at_most_lanes(rows - r);
        for (int64_t c = 0; c < columns; c += LANES) {
            int64_t wide = at_most_lanes(columns - c);
            const float *from = x + r * x_row + c;
            float *to = panel + c * panel_row + r;
            if (high == LANES && wide == LANES)
                load_transposed(from, x_row, LANES, LANES, factor, to, panel_row);
            else
                load_transposed(from, x_row, high, wide, factor, to, panel_row);
        }
    }
}

/* One block of panel_store. */
LANES_INLINE void store_transposed(const float *panel, int64_t panel_row, int64_t rows,
                                   int64_t columns, const lanes *factors, float *y, int64_t y_row)
{
    lanes block[LANES];
    load_block(panel, panel_row, columns, LANES, block);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) block[i] = block[i] * *factors;
    transpose(block);
    store_block(block, rows, columns, y, y_row);
}

LS__CPU_CLONES void ls__cpu_panel_store(const float *panel, int64_t panel_row, int64_t rows,
                                        int64_t columns, const float *factor, float *y,
                                        int64_t y_row)
{
    for (int64_t r = 0; r < rows; r += LANES) {
        int64_t high = at_most_lanes(rows - r);
        lanes factors;
        lanes_load(&factors, factor + r);
        for (int64_t c = 0; c < columns; c += LANES) {
            int64_t wide = at_most_lanes(columns - c);
            const float *from = panel + c * panel_row + r;
            float *to = y + r * y_row + c;
            if (high == LANES && wide == LANES)
                store_transposed(from, panel_row, LANES, LANES, &factors, to, y_row);
            else
                store_transposed(from, panel_row, high, wide, &factors, to, y_row);
        }
    }
}

LS__CPU_CLONES void ls__cpu_panel_copy(const float *x, int64_t x_row, int64_t rows, int64_t columns,
                                       float factor, float *copy, int64_t copy_row)
{
    const lanes zero = { 0 };
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c += LANES) {
            lanes v;
            if (columns - c >= LANES)
                lanes_load(&v, x + r * x_row + c);
            else
                lanes_load_some(&v, x + r * x_row + c, columns - c, &zero);
            v = v * factor;
            lanes_store(copy + r * copy_row + c, &v);
        }
    }
}
