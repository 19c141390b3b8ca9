/* Graph: what is computed. A step function describes one micro-batch; it is called once per stage
 * and shape, and must be pure.
 *
 * Nothing here aborts or returns a status: a NULL tensor or shapes that do not fit latch the first
 * failure in the graph, with operation, name and shapes; NULL in gives NULL out; the failure is
 * reported once, when the graph is built. Tensors live as long as their graph. */
#ifndef LOCKSTEP_GRAPH_H
#define LOCKSTEP_GRAPH_H

#include <lockstep/base.h>
#include <lockstep/metric.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_graph ls_graph;
typedef struct ls_tensor ls_tensor;
typedef enum ls_stage { LS_STAGE_TRAIN, LS_STAGE_EVALUATE, LS_STAGE_PREDICT } ls_stage;
typedef void ls_step_fn(ls_graph *g, void *user);

ls_stage ls_graph_stage(const ls_graph *g);
const char *ls_name(ls_graph *g, const char *format, ...)
    LS_PRINTF(2, 3); /* "block%d.fc"; lives as long as g */

/* (B, ...) the dataset's field of that name, batched. NULL without an error when predicting and the
 * data has no such field. */
ls_tensor *ls_input(ls_graph *g, const char *field);

/* How a parameter begins; a function of (seed, name). */
typedef enum ls_init_kind {
    LS_INIT_ZEROS,
    LS_INIT_CONSTANT,
    LS_INIT_UNIFORM, /* in [-scale, scale) */
    LS_INIT_NORMAL,  /* deviation scale */
} ls_init_kind;
typedef struct ls_init {
    ls_init_kind kind;
    double scale; /* constant: the value */
} ls_init;

/* A parameter, created on first use; the same name is the same tensor (tied weights). init NULL =
 * zeros. */
ls_tensor *ls_param(ls_graph *g, const char *name, const ls_init *init, int rank,
                    const int64_t *shape);
ls_tensor *ls_constant(ls_graph *g, const float *values, int rank,
                       const int64_t *shape); /* values are copied */

int ls_tensor_rank(const ls_tensor *x);
int64_t ls_tensor_dim(const ls_tensor *x, int i); /* i < 0 counts from the end; 0 for NULL */
ls_dtype ls_tensor_dtype(const ls_tensor *x);

/* Everything computed between begin and end is forgotten after the forward pass and computed again
 * when the backward pass needs it, but for x, which ls_recompute_end returns: a transformer's block
 * then keeps one tensor instead of a dozen, for a third more work. The same bits. Not nested. */
void ls_recompute_begin(ls_graph *g);
ls_tensor *ls_recompute_end(ls_tensor *x);

/* The objective: the weighted mean of the losses over the whole global batch, sum of weight * loss
 * divided by sum of weights. One loss per target, not reduced: a scalar is an error that says so.
 * weights (f32, of the losses' shape) must depend on inputs only; NULL = 1 each. Targets ignored by
 * ls_cross_entropy weigh 0 in any case. Once per step function. */
void ls_minimize(ls_graph *g, ls_tensor *losses, ls_tensor *weights);
/* Reports the mean over all values of the stage: "accuracy" becomes train/accuracy and
 * val/accuracy. values: (B, ...), not reduced; targets ignored by ls_cross_entropy or ls_accuracy
 * do not count. The objective reports itself as "loss". */
void ls_report(ls_graph *g, const char *name, ls_tensor *values);
void ls_report_metric(ls_graph *g, const ls_metric *metric, ls_tensor *const *values, int nvalues);
/* What ls_predict hands out: (B, ...), one row per sample. */
void ls_output(ls_graph *g, const char *name, ls_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
