/* A loop of one's own on a world of threads: a linear model by hand, run on any number of ranks in
 * the test's process. Asserts may not be used in threads, so what ranks find is looked at afterwards. */
#ifndef LS_TESTS_HELPER_LOOP_H
#define LS_TESTS_HELPER_LOOP_H

#include <lockstep/lockstep.h>

#include "testing.h"

enum { LOOP_FEATURES = 9, LOOP_RANKS_MAX = 6, LOOP_VALUES = LOOP_FEATURES + 1 };

typedef struct loop_options {
    ls_run_options run;
    int64_t samples, val_samples; /* 0 = 100, none */
    bool own_array;               /* values live in the caller's array */
    bool grads_argument;          /* gradients are handed in, not written in place */
    int64_t bad_read;             /* this sample cannot be read; 0 = none */
    int64_t nan_at;               /* the gradient of this step is not a number; 0 = none */
    int64_t zero_weight_at;       /* this step's weights are 0; 0 = none */
    int64_t leave_at;             /* break before this step is computed; 0 = never */
    int64_t leave_behind;         /* break behind this step; 0 = never */
    int slow_ms;                  /* rank 1 sleeps so long in each micro-batch */
    long fail_allocation;         /* the n-th from the run's creation on; 0 = none */
    bool no_space, no_step, two_adds, skip_micro_batch; /* mistakes */
} loop_options;

typedef struct loop_outcome {
    ls_status status; /* of the first call that failed */
    char text[512];
    ls_run_result result;
    float values[LOOP_VALUES];
    int64_t kept;     /* counts steps, saved with the run */
    int64_t called;   /* a callback's state: counts epochs */
    double val_loss;  /* last */
    int64_t seen;     /* validation samples of this rank */
    int64_t began_at; /* first step of this start */
} loop_outcome;

/* Runs it on `size` ranks; outcomes: (size). */
void loop_run(int size, const loop_options *options, loop_outcome *outcomes);
/* As above; all must succeed and agree; the outcome of rank 0. */
loop_outcome loop_run_ok(int size, const loop_options *options);

char *loop_folder_make(void);
void loop_folder_remove(char *folder);

#endif
