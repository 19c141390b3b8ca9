/* A plain executor of graphs in double precision: what the built-in operations mean, in the
 * simplest loops, straight from src/graph/ops.h. Slow, exact enough for finite differences with
 * 1e-6. */
#ifndef LS_TESTS_REFERENCE_H
#define LS_TESTS_REFERENCE_H

#include "graph/graph_internal.h"

typedef struct reference {
    const ls_graph *graph;
    double **values; /* by tensor id: (count of the tensor) */
    void **blocks;   /* what values own */
    uint64_t seed;
    int64_t step, first;
    double grad_seed;
    bool on_gpus; /* libraries there round the bias of a product that is stored as bf16, and
                   * convolutions multiply f32 */
} reference;

/* One call of an operation, its arrays as doubles. */
typedef struct reference_call {
    const ls__node *node;
    const double *in[LS__MAX_INPUTS];
    double *out[LS__MAX_OUTPUTS];
    const reference *run;
} reference_call;

/* All inputs, parameters and statistics are zero at first: fill reference_of's arrays. */
reference *reference_create(const ls_graph *graph);
void reference_destroy(reference *r);
double *reference_of(reference *r, const ls_tensor *x);
/* Puts the tensors of the graph's nodes where the plan says: piece by root, in an arena of doubles
 * at twice the planned offsets. */
void reference_use_arena(reference *r, const int *root, const ls__lifetime *pieces, double *arena);
/* LS_ERR_DATA for a label out of range. */
ls_status reference_run(reference *r);

/* Small positive and negative numbers, the same for the same seed. */
void reference_fill(double *values, int64_t count, uint64_t seed, double scale);
int64_t reference_count(const ls_tensor *x);
const ls__graph_param *reference_param(const ls_graph *g, const char *name);
const ls__graph_result *reference_result(const ls_graph *g, const char *name);
ls_tensor *reference_input(const ls_graph *g, const char *field);

/* In helper_reference_image.c: true when the node's operation is one of images. */
bool reference_image_op(const reference_call *c);
/* In helper_reference_general.c: alike, element by element with broadcasting, reductions, moves. */
bool reference_general_op(const reference_call *c);
/* In helper_reference_attention.c: as image_op, of attention, rotary and softmax. */
bool reference_attention_op(const reference_call *c);
/* In helper_reference_transformer.c: embeddings, norms over rows, activations. */
bool reference_transformer_op(const reference_call *c, ls_status *status);

#endif
