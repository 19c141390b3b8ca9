/* What the built-in operations' rules share. */
#ifndef LS_GRAPH_OP_RULE_H
#define LS_GRAPH_OP_RULE_H

#include "graph/graph_internal.h"
#include "graph/ops.h"

/* A shape rule's way to fail: LS_ERR_SHAPE with a text; the inputs are added by the caller. */
#define LS__SHAPE_TRY(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition)) return ls_fail(LS_ERR_SHAPE, __VA_ARGS__);                               \
    } while (0)

static inline bool ls__is_f32(const ls_array *x, int rank)
{
    return x->type == LS_DTYPE_F32 && x->rank == rank;
}

static inline bool ls__same(const ls_array *a, const ls_array *b)
{
    if (a->type != b->type || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

static inline ls_array ls__f32_2(int64_t a, int64_t b)
{
    return (ls_array) { .type = LS_DTYPE_F32, .rank = 2, .shape = { a, b } };
}

static inline ls_array ls__f32_4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (ls_array) { .type = LS_DTYPE_F32, .rank = 4, .shape = { a, b, c, d } };
}

static inline ls_array ls__f32_1(int64_t a)
{
    return (ls_array) { .type = LS_DTYPE_F32, .rank = 1, .shape = { a } };
}

/* For gradient rules: how many inputs the node that computes out has. */
static inline int ls__input_count(const ls_tensor *out)
{
    const ls__node *nodes;
    ls__graph_nodes(out->graph, &nodes);
    return nodes[out->node].nin;
}

#endif
