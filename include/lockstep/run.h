/* Run: one training run. Its folder, clock (the optimizer step), sampler, records, checkpoints and
 * common decisions. ls_fit is written on it, and so is a loop of your own:
 *
 *     while (ls_run_next(run)) {
 *         while (ls_run_micro_batch(run, &batch)) {
 *             ...
 *             ls_space_add(space, NULL, weight);
 *             ls_run_log(run, "loss", loss, weight);
 *         }
 *         ls_space_step(space);
 *     }
 *     ls_check(ls_run_finish(run, NULL));
 *
 * Calls inside the loop return void or bool and latch their first error; ls_run_finish returns it.
 */
#ifndef LOCKSTEP_RUN_H
#define LOCKSTEP_RUN_H

#include <lockstep/base.h>
#include <lockstep/dataset.h>
#include <lockstep/metric.h>
#include <lockstep/optimizer.h>
#include <lockstep/world.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_run ls_run;
typedef void ls_hook(ls_run *run, void *user);

/* Functions called at moments of a run, on every rank; each may be NULL. state (state_size bytes of
 * plain data, at most 1 MiB) is saved and restored; it must be the same on every rank. Steps run on
 * over epoch ends: the step that holds an epoch's last sample ends it. checkpoint_saved: the step's
 * state has been copied and is being written; ls_run_finish waits until it is durable. */
typedef struct ls_callback {
    const char *name;
    void *user, *state;
    size_t state_size;
    ls_hook *fit_begin, *epoch_begin, *step_end, *validation_end, *checkpoint_saved, *epoch_end,
        *fit_end;
} ls_callback;

typedef struct ls_run_options {
    int64_t batch_size; /* samples per optimizer step over all devices; 0 = 32 */
    int micro_batches;  /* the batch is cut into so many; 0 = world size at the first start */
    int64_t max_epochs, max_steps; /* both 0 = one epoch */
    uint64_t seed;                 /* 0 is a seed like any other */
    const char *name;              /* NULL = made up */
    const char *runs_dir;          /* NULL = "runs" */
    const char *resume;      /* NULL = "auto": goes on with this name's newest checkpoint or begins;
                                "none"; or a RUN */
    ls_every log_every;      /* 0 = 50 steps */
    ls_every save_every;     /* 0 = 1 epoch, and at the end; none: only the best, and at a stop by
                                signal */
    ls_every validate_every; /* 0 = 1 epoch, and at the end; none: not at all */
    struct {
        const ls_optimizer *kind; /* NULL = ls_adamw */
        double lr;                /* 0 = the optimizer's own default */
        double weight_decay;      /* 0 = none; of AdamW 0.01, LS_NONE = none */
        double momentum;          /* sgd: 0 = 0.9, LS_NONE = none */
        double beta1, beta2;      /* adamw: 0 = 0.9, 0.999 */
        const void *config;
        const ls_param_rule *rules; /* ended by {0} */
    } optimizer;
    struct {
        ls_schedule kind;
        int64_t warmup_steps; /* lr rises linearly from 0 */
        int64_t step_size;    /* step: lr is multiplied by gamma every so many steps; 0 = a third of
                                 the run */
        double gamma;         /* step: 0 = 0.1 */
        /* A factor of lr; outranks kind. */
        double (*custom)(int64_t step, int64_t steps, void *user);
        void *user;
    } schedule;
    double clip_norm; /* of the whole gradient; 0 = off */
    struct {
        const char *monitor; /* NULL = "val/loss" */
        /* auto: as the metric says; else more is better of names with "accuracy", and less of all
         * others. */
        ls_mode mode;
        int keep_best, keep_last; /* 0 = 1; LS_NONE = all */
    } checkpoint;
    struct {
        const char *monitor; /* NULL = off */
        ls_mode mode;
        int patience;     /* validations without improvement; 0 = 3 */
        double min_delta; /* a smaller step is no improvement */
    } early_stop;
    int64_t norm_group; /* samples of a batch norm's group: the unit in which batches are cut; 0 = 1
                           for loops of one's own; models set it */
    const ls_callback *const *callbacks; /* NULL-ended */
    /* bf16-mixed: matrix products read bf16 and add in f32, activations between them are stored as
     * bf16; parameters, their gradients, the optimizer, norms' sums and losses stay f32. Models. */
    ls_precision precision;
    bool deterministic; /* the same bits on any number of devices. CPUs always give them; several
                           GPUs then add gradients in one fixed order instead of NCCL's, which
                           takes memory for the other ranks' and, between machines, time; and a
                           GPU's attention in bf16 runs by kernels that are slower than cuDNN's */
    bool profile;       /* measures where a step's time goes; see ls_run_result.profiled. Models. */
    struct {
        const char *name; /* "tokens"; NULL = speed is told in samples alone */
        int64_t per_sample;
    } unit;
} ls_run_options;

enum { LS_RUN_NAME_MAX = 256 };

/* Why a run ended: X(name, text in documents) */
#define LS_STOP_REASON_MAP(X)                                                                      \
    X(NONE, "none")                                                                                \
    X(MAX_STEPS, "max_steps")                                                                      \
    X(MAX_EPOCHS, "max_epochs")                                                                    \
    X(EARLY_STOP, "early_stop")                                                                    \
    X(REQUESTED, "requested")                                                                      \
    X(SIGNAL, "signal")                                                                            \
    X(FINISHED_BEFORE, "finished_before")
typedef enum ls_stop_reason {
#define LS_STOP_REASON_ENUM(name, text) LS_STOP_##name,
    LS_STOP_REASON_MAP(LS_STOP_REASON_ENUM)
#undef LS_STOP_REASON_ENUM
} ls_stop_reason;
const char *ls_stop_reason_name(ls_stop_reason reason);

typedef struct ls_run_result {
    int64_t steps, epochs; /* finished since the run's first start */
    ls_stop_reason reason;
    int world_size, micro_batches;
    ls_values train, val;              /* last values, names without their stage: "loss" */
    double best;                       /* of the monitored metric; NAN if none */
    char best_checkpoint[LS_PATH_MAX]; /* "" if none */
    struct {
        char name[16]; /* "" = none */
        int64_t per_sample;
    } unit;
    char name[LS_RUN_NAME_MAX];
    char folder[LS_PATH_MAX];
    /* Of this start, without validation and saves; the first step counts for the median only. 0 =
     * there was no step. */
    double samples_per_s, step_ms_median, step_ms_p95;
    /* XXH3-64 of all parameters' bytes in the order of their names, without running statistics. */
    uint64_t weights_xxh3;
    /* Most resident memory of any rank's process so far, shared memory that it touched included
     * (getrusage's ru_maxrss); and what was predicted before the first step, 0 = there was none. */
    int64_t peak_rss_bytes, memory_predicted_bytes;
    /* The same of memory of a device's own (a GPU's): by how much more of it was in use at most than
     * when it was opened, as its driver counts; 0 = devices have none. */
    int64_t device_peak_bytes, device_predicted_bytes;
    /* folder holds profile.json (lockstep.profile/1) and trace.json (for Perfetto or
     * chrome://tracing) of this start: time, GFLOP/s and GB/s of rank 0 by operation. */
    bool profiled;
} ls_run_result;

/* What a program prints on stdout at its end: with --json the document lockstep.fit/1 on one line,
 * otherwise a summary for people. test: values of an evaluation at the end, or NULL. "" on ranks
 * other than 0; NULL when out of memory. Freed by free(). */
char *ls_run_result_text(const ls_world *world, const ls_run_result *result, const ls_values *test);

/* Samples of one micro-batch, or of one chunk of an evaluation. */
typedef struct ls_batch {
    int64_t count;
    const int64_t *samples; /* (count) indices into the dataset */
    void *const *fields;    /* per field of the dataset: (count, ...) */
    int64_t first; /* position of its first sample in the global batch, or in the dataset */
} ls_batch;

/* [all] Flags of the command line outrank options. Borrows world, train, and what options' pointers
 * point to. */
LS_NODISCARD ls_status ls_run_create(ls_world *world, ls_dataset *train,
                                     const ls_run_options *options, ls_run **out);
/* More state to save and restore, the same on every rank, at most 1 MiB; before the first
 * ls_run_next. */
void ls_run_keep(ls_run *run, const char *name, void *data, size_t nbytes);
/* [all] The first call loads; later ones log, save and stop. false = over, or failed: see finish. */
bool ls_run_next(ls_run *run);
/* This rank's next part of the step; false = done. */
bool ls_run_micro_batch(ls_run *run, ls_batch *out);
/* After ls_space_step: the same answer on every rank. */
bool ls_run_due_validation(ls_run *run);
/* [all] Walks this rank's chunks of data; metrics logged meanwhile go to stage; false = each sample
 * has been seen once and metrics are final. */
bool ls_run_evaluate(ls_run *run, ls_dataset *data, const char *stage, ls_batch *out);
/* Any rank, any order, cannot fail: the weighted mean by name, over ranks and micro-batches. A name
 * without '/' gets the stage's prefix. At most 32 names of 63 bytes. Inside a micro-batch the sum's
 * bits do not depend on the number of devices. */
void ls_run_log(ls_run *run, const char *name, double value, double weight);
/* The last agreed value, by its full name, "val/loss"; NAN if none. */
double ls_run_metric(const ls_run *run, const char *name);
/* Any rank asks; all stop after the same step. */
void ls_run_stop(ls_run *run, const char *reason);
int64_t ls_run_step(const ls_run *run); /* finished optimizer steps */
int64_t ls_run_epoch(const ls_run *run);
const char *ls_run_folder(const ls_run *run);
/* [all] Saves and frees; out may be NULL. Returns the first latched error. */
LS_NODISCARD ls_status ls_run_finish(ls_run *run, ls_run_result *out);

#ifdef __cplusplus
}
#endif
#endif
