/* Memory that is needed soon, asked for a few rows at a time while the registers are busy. */
#ifndef LS_BACKEND_CPU_AHEAD_H
#define LS_BACKEND_CPU_AHEAD_H

#include <stdint.h>

/* A part of a matrix, some rows of which are asked for at a time. */
typedef struct ahead {
    const char *at;
    int64_t stride; /* bytes */
    int64_t rows;   /* left */
    int64_t each;   /* at a time */
    int64_t bytes;  /* of a row */
} ahead;

#define NOTHING_AHEAD ((ahead) { .rows = 0 })

static inline ahead ask_for(const float *x, int64_t stride, int64_t rows, int64_t columns,
                            int64_t times)
{
    return (ahead) { .at = (const char *)x,
                     .stride = stride * (int64_t)sizeof *x,
                     .rows = rows,
                     .each = (rows + times - 1) / times,
                     .bytes = columns * (int64_t)sizeof *x };
}

static inline void ask(ahead *p)
{
    enum { LINE = 64 };
    int64_t n = p->rows < p->each ? p->rows : p->each;
    p->rows -= n;
    for (; n > 0; n--, p->at += p->stride)
        for (int64_t i = 0; i < p->bytes; i += LINE) __builtin_prefetch(p->at + i);
}

#endif
