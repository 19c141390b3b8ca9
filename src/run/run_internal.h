/* What the trainer asks of the run beyond the public loop. */
#ifndef LS_RUN_INTERNAL_H
#define LS_RUN_INTERNAL_H

#include <lockstep/run.h>
#include <lockstep/space.h>

#include "base/json.h"
#include "base/parallel.h"
#include "comm/resident.h"

/* A tensor of a space, as the trainer describes a model to it. */
typedef struct ls__space_tensor {
    const char *name;
    int rank;
    int64_t shape[LS_MAX_RANK];
    int64_t offset;  /* elements */
    bool decays;     /* weight decay applies by default */
    bool statistic;  /* moving average instead of the optimizer */
    double momentum; /* of a statistic */
    int depth;       /* for buckets */
} ls__space_tensor;

typedef struct ls__space_description {
    const ls__space_tensor *tensors;
    int ntensors;
    int64_t count;
    void (*init)(void *user, uint64_t seed,
                 float *values); /* rank 0, when no checkpoint is loaded */
    void *user;
    bool halves; /* keep a copy of the parameters in bf16 */
    ls__parallel_fn *parallel;
    const ls__resident_table *resident; /* of the model's device; NULL = the host keeps the state */
} ls__space_description;

ls_status ls__space_create_by_hand(ls_run *run, const ls_param_spec *params, int nparams,
                                   float *values, ls_space **out); /* [all] */
ls_status ls__space_create_described(ls_run *run, const ls__space_description *description,
                                     ls_space **out); /* [all] */
float *ls__space_leaf(
    ls_space *space); /* where the micro-batch's gradients go; all of it is written by the caller */
void ls__space_leaf_done(ls_space *space,
                         double weight);        /* gradients are sums over weight targets */
const float *ls__space_params(ls_space *space); /* waits until every owner has committed */
/* Where the parameters really are, when a device keeps them; ls__space_params is then only the place
 * of their copy. NULL = on the host. */
ls__resident *ls__space_resident(const ls_space *space);
const uint16_t *ls__space_halves(const ls_space *space); /* of the same moment; NULL = none */

const ls_run_options *ls__run_options(const ls_run *run); /* resolved: flags, defaults */
ls_dataset *ls__run_train(const ls_run *run);
ls_run *ls__space_run(const ls_space *space);
void ls__run_fail(ls_run *run, ls_status status);        /* latches; the text is the thread's */
void ls__run_fail_shared(ls_run *run, ls_status status); /* every rank knows it already */
void ls__run_log_sum(ls_run *run, const char *name, double sum, double weight); /* as ls_run_log */

/* --- profiles (spent.c) --- */
typedef enum ls__spent_kind {
    LS__SPENT_DATA,      /* waiting for the loader */
    LS__SPENT_EXCHANGE,  /* sums of micro-batches, agreement, waiting for other ranks' commits */
    LS__SPENT_OPTIMIZER, /* commit: sums over ranks and the update, one pass */
    LS__SPENT_KINDS
} ls__spent_kind;
const char *ls__spent_name(ls__spent_kind kind);
enum { LS__SPANS_MAX = 512 };
typedef struct ls__span_of_time {
    ls__spent_kind kind;
    int64_t begin_ns, end_ns;
} ls__span_of_time;
typedef struct ls__spent {
    bool on, tracing;
    double seconds[LS__SPENT_KINDS];
    ls__span_of_time spans[LS__SPANS_MAX]; /* while tracing */
    int nspans;
    int64_t step, steps; /* the first, how many */
    double began, total; /* seconds of these steps, without validation and saves */
} ls__spent;
void ls__run_profile_begin(ls_run *run); /* measures from here on, from 0; between steps */
void ls__run_profile_trace(ls_run *run, bool tracing);
/* The run's result says that it was profiled. The answer is the run's. */
const ls__spent *ls__run_profile_end(ls_run *run);

/* Bytes that a rank's steps take. */
typedef struct ls__model_memory {
    int64_t activations; /* of the largest graph */
    bool on_device;      /* they lie there, in memory of its own */
    int64_t batches;     /* then: those copied ahead, and constants */
} ls__model_memory;

/* A model's part in a run; each may be NULL. */
typedef struct ls__run_model {
    void *user;
    bool peeks; /* ls__run_peek will be called */
    /* Before the first step: graphs for this rank's micro-batches (ls__run_batch_sizes) are
     * compiled, so that no step does. */
    ls_status (*prepare)(void *user, ls_run *run, ls__model_memory *out);
    /* Most that was taken of the memory of a device's own so far; 0 = it has none. */
    int64_t (*device_peak)(void *user);
    /* At the end, when the optimizer's memory is given back: copies what the run has learned. */
    ls_status (*keep)(void *user, const float *params);
} ls__run_model;
void ls__run_with_model(ls_run *run, const ls__run_model *model);
/* The micro-batch that ls_run_micro_batch will give next, in this step or a later one, if it is there
 * already; its fields stay until then and through it. */
bool ls__run_peek(ls_run *run, ls_batch *out);
int64_t ls__run_batches(const ls_run *run); /* given so far: the number of the present one */
/* The different numbers of samples of this rank's micro-batches, the largest first; how many. */
enum { LS__BATCH_SIZES_MAX = 4 };
int ls__run_batch_sizes(const ls_run *run, int64_t sizes[LS__BATCH_SIZES_MAX]);

/* Time that is not a step's. */
double ls__run_pause_begin(ls_run *run);
void ls__run_pause_end(ls_run *run, double began);
/* Before the first step: a metric that there will be, so that an unknown --monitor is refused
 * early. */
void ls__run_declare(ls_run *run, const char *stage, const char *name, ls_mode better);
/* Values of an evaluation, already merged and the same on every rank: recorded and judged (best,
 * early stop). */
void ls__run_validated(ls_run *run, const char *stage, const ls_values *values,
                       const ls_mode *modes);

#endif
