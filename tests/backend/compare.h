/* A graph run by a backend and by the reference executor, side by side. The backend is the one that
 * LS_TEST_BACKEND names, else the CPU's. */
#ifndef LS_TESTS_COMPARE_H
#define LS_TESTS_COMPARE_H

#include "graph/backend.h"
#include "graph/reference.h"

typedef struct compare_options {
    ls_step_fn *step;
    void *user;
    ls_stage stage;
    int64_t batch;
    const ls_field *fields;
    int nfields;
    double tolerance; /* relative to the largest value of a tensor; 0 = 2e-5 */
    int64_t run_step, first;
    int classes; /* of integer fields: labels in [first_label, first_label + classes) */
    int first_label;
    int tokens;      /* of other integer fields: [0, tokens); 0 = 256 */
    int misaligned;  /* floats by which params, grads and fields are moved off their alignment */
    int64_t ignored; /* every so many labels are -100; 0 = none */
    bool input_gradients;
    ls_precision precision;
    bool loose; /* also by a library whose bits may vary; a graph is built deterministic else */
} compare_options;

/* What a run of the backend left: copies. */
typedef struct outcome {
    float *grads; /* (count) */
    int64_t count;
    float *results; /* (nresults) all values of all results, one after the other */
    int64_t nresults;
    size_t memory; /* bytes of a run's tensors */
} outcome;

/* The backend with this many threads: the first call of a process decides. */
const ls__backend *compare_backend(int threads);
/* How many of n batch sizes to test. The last and largest ones are there for the CPU's tiles and
 * lanes; a simulated GPU, with a sanitizer above all, would take minutes over them. */
size_t compare_batches(size_t n);
bool compare_on_cpu(void);
/* Every combination of what is tested: false under the address sanitizer, where each value of each
 * choice comes once and not with every other (LS_LONG=1: true there too). */
bool compare_in_full(void);
/* Bytes of a run's tensors, wherever the backend keeps them. */
size_t compare_memory(const ls__executable *e);
/* Builds, runs, checks sentinels behind arena and gradients. */
outcome compare_run_backend(const compare_options *o);
void compare_free(outcome *o);
/* Runs both and fails the test where they differ. */
void compare_with_reference(const compare_options *o);
/* As run_backend, expecting it to fail with this status and text. */
void compare_run_fails(const compare_options *o, int32_t bad_label, int64_t at, ls_status status,
                       const char *text);
/* The checksum of all bits of an outcome. */
uint64_t compare_checksum(const outcome *o);

#endif
