/* Space: the parameters, gradients and optimizer of a run as flat arrays.
 *
 * Parameters are shared by the ranks of a machine. A step sums the gradients of all micro-batches
 * in one fixed tree, and each rank updates its own slice of the shared parameters, so the
 * optimizer's work and state are divided by the number of ranks. */
#ifndef LOCKSTEP_SPACE_H
#define LOCKSTEP_SPACE_H

#include <lockstep/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_space ls_space;
typedef struct ls_model ls_model;

typedef struct ls_param_spec {
    const char *name;
    int64_t count;
} ls_param_spec;

typedef struct ls_space_options {
    const ls_param_spec *params; /* for models by hand */
    int nparams;
    ls_model *model; /* or a graph's */
    float *values; /* NULL = allocated here, shared, exchanged without a copy; else your array, one
                      copy more */
} ls_space_options;

/* [all] One space per run, before the first ls_run_next; it is freed by ls_run_finish. Rank 0's
 * values count. Weight decay applies to all parameters by hand but those whose name ends with
 * "bias"; a rule of the optimizer outranks that. */
LS_NODISCARD ls_status ls_space_create(ls_run *run, const ls_space_options *options,
                                       ls_space **out);
/* (count) Write them before the first step only: rank 0, or every rank the same, since they may lie
 * in memory that ranks share. */
float *ls_space_values(ls_space *space);
/* (count) Zero when a micro-batch begins. NULL for a graph's model: see ls_model_gradients. */
float *ls_space_grads(ls_space *space);
int64_t ls_space_count(const ls_space *space);
/* Ends a micro-batch: its gradient is a mean over weight targets. grads NULL = those in
 * ls_space_grads. */
void ls_space_add(ls_space *space, const float *grads, double weight);
/* [all] The weighted mean over the global batch, clipped, then the update; lr by the run's
 * schedule. */
void ls_space_step(ls_space *space);

#ifdef __cplusplus
}
#endif
#endif
