/* Inside a run: its state, by the file that keeps it. */
#ifndef LS_RUN_STATE_H
#define LS_RUN_STATE_H

#include <lockstep/run.h>
#include <lockstep/space.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "record/record.h"
#include "run/chunks.h"
#include "run/judge.h"
#include "run/period.h"
#include "run/run_internal.h"
#include "run/settings.h"
#include "run/share.h"
#include "run/stragglers.h"
#include "run/sums.h"
#include "world/world_internal.h"

/* Bits of the control word that every step's agreement carries. */
enum {
    LS__WORD_ERROR = 1,
    LS__WORD_STOP = 2,
    LS__WORD_LOG = 4, /* these three: rank 0's clock says so */
    LS__WORD_SAVE = 8,
    LS__WORD_VALIDATE = 16,
};

enum { LS__STATE_MAX = 1 << 20, LS__VALUES_KEPT = 64, LS__STOP_TEXT_MAX = 256 };

typedef enum ls__run_phase {
    LS__RUN_CREATED,
    LS__RUN_IN_STEP, /* ls_run_next has returned true */
    LS__RUN_STEPPED, /* ls_space_step has been called */
    LS__RUN_OVER,
} ls__run_phase;

/* Bytes that are saved and restored with the run. */
typedef struct ls__kept {
    char *name;
    void *data;
    size_t nbytes;
} ls__kept;

typedef struct ls__known_value {
    char name[LS__RECORD_NAME_MAX];
    double value;
} ls__known_value;

/* Which micro-batches of a step this rank computes: those of its leaves that hold samples. */
typedef struct ls__share_plan {
    int count;
    int *micro_batches; /* (count) */
} ls__share_plan;

/* Cuts the run into this rank's batches; read by the loader's threads, so it never changes. */
typedef struct ls__run_plan {
    ls__cut cut;
    int begin, end;       /* this rank's leaves */
    int64_t position;     /* of the first step of this start */
    int64_t samples;      /* the run's positions end here */
    int64_t steps;        /* of this start */
    ls__share_plan whole; /* of a whole step */
    ls__share_plan last;  /* of a short last step */
} ls__run_plan;

typedef struct ls__evaluation {
    ls__loader *loader;
    ls_dataset *data;
    char stage[32];
    ls__chunks chunks;
    int64_t own;    /* chunks handed out */
    ls__sums *sums; /* (this rank's chunks) */
    double began;
} ls__evaluation;

/* Bytes of this rank's process, but for what is of_all ranks. */
typedef struct ls__run_memory {
    int64_t resident; /* when the run was created */
    int64_t parameters, gradients, optimizer, snapshot, batches, activations;
    int64_t gradients_of_all, optimizer_of_all;
    int64_t device_state; /* of a device's memory: parameters, gradients, and what it keeps */
    int64_t device;      /* with activations and batches; 0 = devices have no memory of their own */
    int64_t device_peak; /* as peak */
    int64_t predicted;   /* the sum; 0 = there is no step to come */
    int64_t peak;        /* of all ranks, once the run is over */
} ls__run_memory;

typedef struct ls__stopwatch {
    double mark;   /* when the step that is running began */
    double paused; /* of it: validation and saves */
    double seconds;
    int64_t samples, steps;
    float *step_ms; /* ring */
    double recent;  /* moving average of a step's seconds */
    double total;   /* seconds of all steps, the first one too */
} ls__stopwatch;

struct ls_run {
    ls_world *world; /* borrowed */
    ls_comm *comm;
    int rank, size;
    ls_dataset *train; /* borrowed */
    int64_t length;
    ls__settings settings;
    int micro_batches;

    /* clock */
    int64_t step, position; /* finished */
    int64_t updates;        /* steps that changed parameters */
    int64_t start_step;     /* of this start */
    ls__span span;
    ls__tick tick; /* the step just finished */

    /* state of the loop */
    ls__run_phase phase;
    ls_space *space; /* owned */
    ls__loader *loader;
    int64_t batches; /* micro-batches that it has given */
    ls__run_plan plan;
    int next_leaf;
    int64_t step_samples;
    bool leaf_open;
    ls__evaluation *evaluation;

    /* decisions */
    bool stop_asked;
    char stop_text[LS__STOP_TEXT_MAX];
    bool due_log, due_save, due_validation;
    bool improved; /* the validation of this step was the best so far */
    double judged; /* the monitored value of this step; NAN = none */
    int signal;
    ls_stop_reason reason;
    double last_log, last_save, last_validation; /* rank 0's clock */
    ls__judge best, early;

    /* what is logged */
    ls__sums interval; /* agreed, since the last point */
    ls__sums loose;    /* outside micro-batches, until the next agreement */
    bool dropped;
    int nvalues;
    ls__known_value values[LS__VALUES_KEPT];
    int ndeclared;
    ls__known_value declared[LS__VALUES_KEPT]; /* value: its ls_mode */

    /* what is saved */
    int nkept;
    ls__kept *kept;
    ls__run_folder folder;
    ls__checkpointer *checkpointer;
    int64_t saved_step; /* -1 = none by this start */
    char resumed_path[LS_PATH_MAX];
    json_t *resumed; /* trainer.json of resumed_path; NULL = begins */

    ls__record_log *record; /* rank 0 */
    double started, last_heartbeat, last_position, last_progress;
    ls__stopwatch watch;
    ls__stragglers stragglers;
    ls__spent spent;
    bool profiled; /* profile.json is of this start */
    bool loaded;   /* the space holds what a checkpoint or the model gave */
    ls__run_memory memory;
    ls__run_model model;

    ls_status status;
    bool shared; /* every rank knows the failure */
    char text[2048];
};

/* --- run_create.c --- */
void ls__run_free(ls_run *run); /* [all] NULL is fine */

/* --- run_failure.c --- */
/* [all] Meets the other ranks: a failure of one becomes everybody's, a signal too. True when
 * there is none. */
bool ls__run_meet(ls_run *run);
bool ls__run_over(const ls_run *run); /* a shared failure or the end: nothing more happens */

/* --- run_open.c --- */
ls_status ls__run_open(ls_run *run); /* [all] name, folder, checkpoint, micro-batches */

/* --- run_begin.c --- */
void ls__run_begin(ls_run *run); /* [all] the first ls_run_next */

/* --- run_loop.c --- */
/* [all] Everything behind the step that is done: callbacks, log, save, stop. False when the run is
 * over. */
bool ls__run_after_step(ls_run *run);

/* --- run_plan.c --- */
ls_status ls__run_plan_make(ls_run *run);
void ls__run_plan_free(ls__run_plan *plan);
bool ls__run_plan_batch(void *plan, int64_t k, int64_t *begin, int64_t *count);

/* --- run_log.c --- */
void ls__run_gather_loose(ls_run *run); /* [all] */
void ls__run_log_point(ls_run *run);    /* the interval becomes values, recorded and judged */
void ls__run_know(ls_run *run, const char *name, double value);
/* Judges values by name; an unknown monitor of this stage is a failure. */
void ls__run_judge(ls_run *run, const char *stage);
void ls__run_progress(ls_run *run, const char *stage);

/* --- run_save.c --- */
ls_status ls__run_checkpointer_make(ls_run *run);
void ls__run_save(ls_run *run); /* [all] */

/* --- trainer_json.c --- */
json_t *ls__trainer_json(ls_run *run); /* NULL when out of memory */
ls_status ls__trainer_json_check(const json_t *document, const char *path);
/* Clock, judges, sums and values; then kept state and callbacks'. */
ls_status ls__trainer_json_restore(ls_run *run);

/* --- run_json.c --- */
void ls__run_json(ls_run *run, const char *status); /* rank 0: writes run.json */

/* --- run_memory.c --- */
void ls__run_memory_begin(ls_run *run);
/* Before the first step. */
void ls__run_memory_plan(ls_run *run, const ls__model_memory *model);
void ls__run_memory_tell(const ls_run *run);
bool ls__run_saves(const ls_run *run);             /* not only at a stop by signal */
char *ls__megabytes(int64_t nbytes, char out[32]); /* "312 MB" */

/* --- stopwatch.c --- */
ls_status ls__stopwatch_make(ls__stopwatch *watch);
void ls__stopwatch_start(ls__stopwatch *watch);
void ls__stopwatch_pause(ls__stopwatch *watch, double seconds);
void ls__stopwatch_step(ls__stopwatch *watch, int64_t samples);
void ls__stopwatch_result(ls__stopwatch *watch, ls_run_result *out);

/* --- spent.c --- */
int64_t ls__spent_begin(const ls_run *run);
void ls__spent_end(ls_run *run, ls__spent_kind kind, int64_t began);

/* --- profile_text.c --- */
json_t *ls__profile_read(const ls_run_result *result);      /* NULL = there is none */
void ls__profile_put(ls__text *out, const json_t *profile); /* the table for people */

/* --- callbacks --- */
typedef enum ls__hook {
    LS__HOOK_FIT_BEGIN,
    LS__HOOK_EPOCH_BEGIN,
    LS__HOOK_STEP_END,
    LS__HOOK_VALIDATION_END,
    LS__HOOK_CHECKPOINT_SAVED,
    LS__HOOK_EPOCH_END,
    LS__HOOK_FIT_END,
} ls__hook;
void ls__run_call(ls_run *run, ls__hook hook);

#endif
