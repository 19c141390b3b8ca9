/* Trainer: models made of a step function, and what people do with them, in any order, any number
 * of times. */
#ifndef LOCKSTEP_TRAINER_H
#define LOCKSTEP_TRAINER_H

#include <lockstep/graph.h>
#include <lockstep/metric.h>
#include <lockstep/run.h>
#include <lockstep/space.h>

#ifdef __cplusplus
extern "C" {
#endif

/* user must outlive the model. */
LS_NODISCARD ls_status ls_model_create(ls_world *world, ls_step_fn *step, void *user,
                                       ls_model **out);
void ls_model_destroy(ls_model *model);

/* [all] from: a RUN (name or path, with @last, @best or @STEP), a checkpoint's folder, or a
 * .safetensors file. */
LS_NODISCARD ls_status ls_model_load(ls_model *model, const char *from);
/* [all] Weights only, as safetensors. */
LS_NODISCARD ls_status ls_model_save(ls_model *model, const char *path);

/* [all] Trains; afterwards the model holds the last weights. val may be NULL. out may be NULL. */
LS_NODISCARD ls_status ls_fit(ls_model *model, ls_dataset *train, ls_dataset *val,
                              const ls_run_options *options, ls_run_result *out);
/* [all] Every sample counts exactly once, on any number of devices: out holds "loss" and the
 * reports. */
LS_NODISCARD ls_status ls_evaluate(ls_model *model, ls_dataset *data, ls_values *out);

/* One sample's outputs, by ls_output's names. */
typedef struct ls_outputs ls_outputs;
const ls_array *
ls_outputs_get(const ls_outputs *outputs,
               const char *name); /* without the batch dimension; NULL if there is none */
typedef void ls_predict_fn(void *user, int64_t index, const ls_outputs *outputs);
/* [all] Calls each once per sample of data, in increasing order on each rank, on the rank that
 * computed it. */
LS_NODISCARD ls_status ls_predict(ls_model *model, ls_dataset *data, ls_predict_fn *each,
                                  void *user);

/* A graph model in a loop of your own, on a space made with .model: computes the gradients of one
 * micro-batch into the space and ends the micro-batch there; logs "loss" and the reports. A model
 * with batch norm needs the run's norm_group. Metrics with a state of their own (ls_report_metric)
 * are for evaluations: they are not computed in training. */
void ls_model_gradients(ls_model *model, ls_space *space, const ls_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
