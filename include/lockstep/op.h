/* Operations of one's own: shape rule, CPU kernel and gradient in one table. Ours are written with
 * it too. */
#ifndef LOCKSTEP_OP_H
#define LOCKSTEP_OP_H

#include <lockstep/base.h>
#include <lockstep/dataset.h>
#include <lockstep/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_op_call {
    const ls_array *in; /* in the shape rule and flops their data is NULL */
    int nin;
    ls_array *out;
    const void *attributes; /* the bytes given to ls_apply */
    int64_t begin,
        end; /* compute: rows of out, along its first dimension, to fill; a scalar is one row */
} ls_op_call;

typedef struct ls_op {
    const char *name;
    ls_status (*shape)(const ls_op_call *call,
                       ls_array *out); /* sets out's type, rank and shape, or fails with a text */
    void (*compute)(const ls_op_call *call); /* by several threads on disjoint rows; NULL = the
                                                backend has its own */
    /* Builds grads_in[i], the gradient for in[i], from operations (a second ls_op of your own among
     * them); a slot left NULL has none. NULL = not differentiable. */
    void (*gradient)(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                     const void *attributes, ls_tensor **grads_in);
    double (*flops)(const ls_op_call *call); /* for profiles and plans; NULL = one per element */
} ls_op;

/* Applies op; attributes (nbytes of plain data) are copied. op must outlive the graph. */
ls_tensor *ls_apply(const ls_op *op, const void *attributes, size_t nbytes, ls_tensor *const *in,
                    int nin);

/* Compares the gradients of a step function's parameters, and of f32 inputs, on a few samples of
 * data with finite differences; the error (LS_ERR_ARG) names the parameter and element that is
 * furthest off. tolerance is relative to a parameter's largest gradient; 1e-3 is a good one. Every
 * rank may call it; it does not communicate. */
LS_NODISCARD ls_status ls_gradient_check(ls_step_fn *step, void *user, ls_dataset *data,
                                         double tolerance);

#ifdef __cplusplus
}
#endif
#endif
