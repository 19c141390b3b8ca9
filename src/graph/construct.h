/* A graph while it is being built: what graph.c, apply.c, sink.c, autodiff.c and build.c share. */
#ifndef LS_GRAPH_CONSTRUCT_H
#define LS_GRAPH_CONSTRUCT_H

#include "graph/graph_internal.h"

struct ls_graph {
    ls__graph_options options; /* fields and their names are copies */
    struct ls__owned *owned;   /* every block that lives as long as the graph */

    ls_tensor **tensors;
    int ntensors, tensor_room;
    ls__node *nodes;
    int nnodes, node_room;
    ls__graph_param *params;
    int nparams, param_room;
    ls__graph_result *results;
    int nresults, result_room;
    ls__graph_state *states;
    int nstates, state_room;

    ls_status status; /* the first failure; LS_OK = none */
    char failure[1024];

    const char *layer;  /* whose name a failure carries; NULL = none */
    bool missing_input; /* predicting without one of the fields: NULL is no mistake */
    bool backward;      /* new nodes belong to the backward pass */
    int segment;        /* of new nodes: between ls_recompute_begin and _end; 0 = none */
    ls_tensor **kept;   /* by segment - 1: what ls_recompute_end was given; NULL = not yet */
    int nkept, kept_room;
    int64_t group;     /* see ls__graph_group */
    ls_tensor *losses; /* what ls_minimize was given */
    ls_tensor *loss_weights;
};

/* Zeroed memory that is freed with the graph; NULL after latching LS_ERR_MEMORY. */
void *ls__graph_alloc(ls_graph *g, size_t nbytes);
const char *ls__graph_strdup(ls_graph *g, const char *text);
/* Makes room for one more item of *items; false after latching LS_ERR_MEMORY. */
bool ls__graph_grow(ls_graph *g, void *items, int count, int *room, size_t size);

/* A new tensor, appended; shape.data is not looked at. */
ls_tensor *ls__graph_tensor(ls_graph *g, ls__role role, const ls_array *shape);
int64_t ls__tensor_count(const ls_tensor *x);
ls_array ls__tensor_array(const ls_tensor *x); /* without data */
bool ls__tensor_same_shape(const ls_tensor *a, const ls_tensor *b);
/* True when a NULL may pass in silence: something failed already, or it comes from a field that the
 * data lacks when predicting. */
bool ls__graph_forgives_null(const ls_graph *g);

/* Computes a segment's nodes again: appends copies that read each other; clones[id] is the copy of
 * that tensor, or NULL where the tensor itself stays. clones: (tensors of the forward pass) */
void ls__graph_recompute(ls_graph *g, int segment, ls_tensor **clones);
/* bf16-mixed: marks nodes and tensors half (precision.c). */
void ls__graph_precision(ls_graph *g);
/* The backward pass: appends nodes, sets every parameter's grad. */
void ls__graph_differentiate(ls_graph *g);

#endif
