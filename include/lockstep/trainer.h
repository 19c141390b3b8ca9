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

/* What it computes in outside of training, until a run sets it (ls_run_options.precision); at first
 * 32. */
void ls_model_set_precision(ls_model *model, ls_precision precision);

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

/* Names of another program's weights. "*" stands for the same digits in both names; transpose: a
 * matrix lies the other way round there. model NULL: there, but not wanted here. Ended by {0}. The
 * first rule that fits counts. */
typedef struct ls_weight_rule {
    const char *file, *model;
    bool transpose;
} ls_weight_rule;
/* [all] As ls_model_load and ls_model_save, under other names. A parameter that no tensor is for, or
 * a tensor that no rule names, is an error. */
LS_NODISCARD ls_status ls_model_load_as(ls_model *model, const char *path,
                                        const ls_weight_rule *rules);
LS_NODISCARD ls_status ls_model_save_as(ls_model *model, const char *path,
                                        const ls_weight_rule *rules);

/* Decoding: a model of tokens (its step function reads "tokens" (B,T) and hands out "scores"
 * (B,T,V)) one token after another, with the keys and values of earlier ones kept by ls_attention.
 * On the calling rank alone. */
typedef struct ls_decoder ls_decoder;
/* batch texts side by side, each of at most context tokens. The model needs weights (ls_fit or
 * ls_model_load) and must outlive the decoder; what it learns later counts from the next step on. */
LS_NODISCARD ls_status ls_decoder_create(ls_model *model, int64_t batch, int64_t context,
                                         ls_decoder **out);
/* One more token of each text, tokens (batch); *scores (batch,V) of the next one, valid until the
 * model is used again. A token that the model does not know is LS_ERR_DATA, a text longer than
 * context LS_ERR_ARG; neither counts as a step. */
LS_NODISCARD ls_status ls_decoder_step(ls_decoder *decoder, const int32_t *tokens,
                                       const float **scores);
/* The same with count more tokens of each text, tokens (batch,count), such as a prompt: many at a time
 * go through the model together. None counts when one is at fault. */
LS_NODISCARD ls_status ls_decoder_read(ls_decoder *decoder, const int32_t *tokens, int64_t count,
                                       const float **scores);
void ls_decoder_reset(ls_decoder *decoder);               /* new texts */
int64_t ls_decoder_position(const ls_decoder *decoder);   /* tokens so far */
int64_t ls_decoder_vocabulary(const ls_decoder *decoder); /* V */
void ls_decoder_destroy(ls_decoder *decoder);

/* Draws one of count scores with probability exp(score / temperature) / sum. temperature 0: the
 * largest (the first of equals); top_k 0: of all, else of the top_k largest (of equals the first).
 * A NaN or -infinity is never drawn; infinity always is. With nothing to draw from: 0. */
int32_t ls_sample(const float *scores, int64_t count, double temperature, int64_t top_k,
                  ls_rng *rng);

#ifdef __cplusplus
}
#endif
#endif
