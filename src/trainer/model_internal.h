/* Inside a model: the table of its parameters, its weights between runs, and what has been built
 * from its step function. */
#ifndef LS_TRAINER_MODEL_INTERNAL_H
#define LS_TRAINER_MODEL_INTERNAL_H

#include <lockstep/trainer.h>

#include "checkpoint/checkpoint.h"
#include "graph/backend.h"
#include "metric/metric_internal.h"
#include "run/chunks.h"
#include "run/run_internal.h"

/* A graph compiled for one stage and number of samples. */
typedef struct ls__built {
    ls_graph *graph;
    ls__executable *executable; /* NULL = built, not compiled */
    int64_t *offsets;           /* (params of the graph) in the model's flat space */
    bool fits;                  /* into the table; else it is only kept for its names */
    struct ls__built *next;
} ls__built;

/* Weights by name, as a file brought them: kept until the table says where they belong. */
typedef struct ls__loaded {
    ls__saved_tensor *tensors; /* names owned */
    int ntensors;
    float *values;
    int64_t count;
    bool exact; /* a tensor that the model lacks is an error */
    char from[LS_PATH_MAX];
} ls__loaded;

struct ls_model {
    ls_world *world; /* borrowed */
    ls_step_fn *step;
    void *user;
    const ls__backend *backend; /* NULL = not opened yet */

    /* The table: parameters and statistics in the order of first use, each aligned to 64 bytes. */
    ls__space_tensor *tensors;       /* names belong to the graph */
    const ls__graph_param **origins; /* what each was first seen as */
    int ntensors;
    int64_t count;

    float *values;           /* (count) the weights between runs; NULL = none yet */
    uint64_t params_version; /* another one whenever weights may have changed, here or in a space */
    int64_t version_step;    /* of the run, at that moment; -1 = another reason */
    ls__loaded *loaded;

    ls__built *built;
    ls_precision precision;
    bool halves;        /* the run in hand keeps its parameters in bf16 too */
    bool deterministic; /* as the run says */
    bool profiling;     /* what is compiled is measured */
    bool tracing;
    void *arena; /* shared by all builds: one runs at a time */
    size_t arena_bytes;
};

/* --- model.c --- */
/* Weights may have changed, whoever holds them: devices copy them again. */
void ls__model_changed(ls_model *model);
/* The same, when it has not been called in this step of a run: weights change between steps. */
void ls__model_at_step(ls_model *model, int64_t step);

/* --- model_built.c --- */
/* The graph for a stage, samples, and fields of data, built and (compile) compiled on first use.
 * The first one makes the table. */
ls_status ls__model_build(ls_model *model, ls_stage stage, int64_t samples, const ls_dataset *data,
                          bool compile, ls__built **out);
/* The same for whatever options. */
ls_status ls__model_build_as(ls_model *model, const ls__graph_options *options, bool compile,
                             ls__built **out);
ls_status ls__model_open_backend(ls_model *model);
void ls__model_free_built(ls_model *model);

typedef struct ls__model_call {
    const float *params;    /* the flat space */
    const uint16_t *halves; /* the same as bf16; NULL = the model is built without */
    ls__resident *resident; /* or there; then params only stands for it */
    float *grads;           /* training */
    const ls_batch *batch;
    uint64_t seed;
    int64_t step;
    const ls_dataset *data;
    const char *stage;                               /* "train": for messages */
    int64_t number;                                  /* of the batch, counted from 1; 0 = unknown */
    bool (*ahead)(void *user, void *const **fields); /* of the next one: ls__run_context */
    void *ahead_user;
} ls__model_call;
/* Runs it; context is for reading results until the next run. */
ls_status ls__model_run(ls_model *model, ls__built *built, const ls__model_call *call,
                        ls__run_context *context);
/* Adds what a result's tensors hold to a metric's state. */
ls_status ls__model_read(ls_model *model, ls__built *built, const ls__run_context *context,
                         const ls__graph_result *result, void *state);
const ls_metric *ls__result_metric(const ls__graph_result *result);

/* --- fit_profile.c --- */
ls_status ls__model_profile(ls_model *model, ls__built *built); /* of what was just compiled */
/* Measures from here on, from 0. */
ls_status ls__fit_profile_begin(ls_model *model, ls_run *run);
/* Between steps: the first one, which makes what later ones reuse, does not count, and the next few
 * are traced. */
ls_status ls__fit_profile_step(ls_model *model, ls_run *run, int64_t steps);
/* Writes profile.json and trace.json into the run's folder, on rank 0. */
ls_status ls__fit_profile_end(ls_model *model, ls_run *run);

/* --- model_table.c --- */
/* Enters a graph's parameters; offsets (params of the graph) tells where each lies. */
ls_status ls__model_table(ls_model *model, const ls_graph *graph, int64_t *offsets);
ls_status ls__model_saved(const ls_model *model, ls__saved_tensor **out); /* freed by ls__free */
/* Weights of a run's end become the model's. */
ls_status ls__model_keep(ls_model *model, const float *params);
/* For a space: first values, from the model's weights or by (seed, name). user is the model. */
void ls__model_init(void *user, uint64_t seed, float *values);

/* --- model_weights.c --- */
ls_status ls__model_apply_loaded(ls_model *model); /* once the table is there */
/* What a file brought becomes the model's weights, or is freed with an error. */
ls_status ls__model_take_loaded(ls_model *model, ls__loaded *loaded);
void ls__loaded_free(ls__loaded *loaded);

/* --- space_of_model.c --- */
ls_status ls__model_space(ls_model *model, ls_run *run, ls_space **out); /* [all] */
/* The run's model.prepare; user is the model. */
ls_status ls__model_prepare(void *user, ls_run *run, ls__model_memory *out);
int64_t ls__model_device_peak(void *user); /* the same of its device_peak */

/* --- evaluate.c --- */
/* [all] Every sample of data once. params: the flat space, or resident where it really is. out, modes: (LS_VALUES_MAX) values and
 * which way is better. stage: for messages. */
ls_status ls__model_evaluate(ls_model *model, ls_dataset *data, const float *params,
                             ls__resident *resident, const char *stage, ls_values *out,
                             ls_mode *modes);
/* What an evaluation (or a training, without metrics of their own state) will report. */
ls_status ls__model_names(ls_model *model, ls_stage stage, const ls_dataset *data, ls_values *names,
                          ls_mode *modes);

#endif
