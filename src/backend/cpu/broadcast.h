/* Loops over a shape of which operands span some dimensions only: broadcasting, and sums that undo
 * it. Neighbouring dimensions that the same operands span become one loop. */
#ifndef LS_BACKEND_CPU_BROADCAST_H
#define LS_BACKEND_CPU_BROADCAST_H

#include "backend/cpu/cpu.h"

typedef struct cpu_broadcast {
    int rank; /* at least 1 */
    int64_t size[LS_MAX_RANK];
    bool spans[2][LS_MAX_RANK]; /* operand by dimension; false: it has extent 1 there */
} cpu_broadcast;

typedef struct cpu_loops {
    int n; /* at least 1; the last is the innermost */
    int64_t size[LS_MAX_RANK];
    int64_t stride[2][LS_MAX_RANK]; /* elements; 0 = not spanned */
    int64_t index[LS_MAX_RANK];     /* of the loops but the innermost */
    int64_t offset[2];              /* elements, where the innermost loop begins */
} cpu_loops;

/* a and b (NULL = none) within a shape that both broadcast to. */
void ls__cpu_broadcast(cpu_broadcast *s, const ls_tensor *shape, const ls_tensor *a,
                       const ls_tensor *b);
/* The loops over so many rows of the first dimension, at their begin. */
void ls__cpu_loops(cpu_loops *l, const cpu_broadcast *s, int64_t rows);
/* On to the next innermost loop; false after the last. */
bool ls__cpu_loops_next(cpu_loops *l);

#endif
