/* The heart of panel_product, for registers of BLOCK floats: panel_product.c includes this once for
 * each width that machines have. The compiler would split wider vectors, but not keep them in
 * registers. Functions end in _BLOCK. */
#define BLOCK_JOIN_(name, n) name##_##n
#define BLOCK_JOIN(name, n)  BLOCK_JOIN_(name, n)
#define BLOCK_VECTOR         BLOCK_JOIN(vector, BLOCK)

typedef float BLOCK_VECTOR __attribute__((vector_size(BLOCK * sizeof(float))));

/* rows x vectors of c at (i, column), added up in registers; rows <= 8 and vectors <= 4 are
 * constants where this is inlined. */
LANES_INLINE void BLOCK_JOIN(product_block, BLOCK)(const panel_product *p, int64_t i,
                                                   int64_t column, const int rows,
                                                   const int vectors)
{
    BLOCK_VECTOR sum[8][4], x[4];
    const float *a = p->a + i * p->a_row, *b = p->b + column;
    float *c = p->c + i * p->c_row + column;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = (BLOCK_VECTOR) { 0 };
            if (p->add) memcpy(&sum[r][v], c + r * p->c_row + v * BLOCK, sizeof sum[r][v]);
        }
    for (int64_t k = 0; k < p->k; k++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) memcpy(&x[v], b + v * BLOCK, sizeof x[v]);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * p->a_row] * x[v];
        a += p->a_step;
        b += p->b_row;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            memcpy(c + r * p->c_row + v * BLOCK, &sum[r][v], sizeof sum[r][v]);
}

/* Columns [column, column + vectors BLOCK), `tall` rows at a time, what is left one by one. */
LANES_INLINE void BLOCK_JOIN(product_columns, BLOCK)(const panel_product *p, int64_t column,
                                                     const int tall, const int vectors)
{
    int64_t i = 0;
    for (; i + tall <= p->m; i += tall)
        BLOCK_JOIN(product_block, BLOCK)(p, i, column, tall, vectors);
    for (; tall > 4 && i + 4 <= p->m; i += 4)
        BLOCK_JOIN(product_block, BLOCK)(p, i, column, 4, vectors);
    for (; i < p->m; i++) BLOCK_JOIN(product_block, BLOCK)(p, i, column, 1, vectors);
}

#undef BLOCK_VECTOR
#undef BLOCK_JOIN
#undef BLOCK_JOIN_
#undef BLOCK
