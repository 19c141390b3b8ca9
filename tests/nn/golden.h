/* Golden files and a way to run a step function on any backend with values by name. */
#ifndef LS_TESTS_GOLDEN_H
#define LS_TESTS_GOLDEN_H

#include "graph/backend.h"

enum { GOLDEN_ARRAYS = 48 };

typedef struct golden_array {
    char name[64];
    ls_array array; /* its data aligned to 64 */
} golden_array;

typedef struct golden {
    char *file;     /* all of it */
    void *metadata; /* json_t */
    golden_array arrays[GOLDEN_ARRAYS];
    int count;
} golden;

/* Fails the test when the file is not as make_golden.py writes it. */
void golden_load(golden *g, const char *path);
void golden_free(golden *g);
const ls_array *golden_find(const golden *g, const char *kind, const char *name); /* NULL = none */
const char *golden_text(const golden *g, const char *key);                        /* NULL = none */
int64_t golden_int(const golden *g, const char *key);                             /* 0 = none */

/* --- a step function on a backend --- */
typedef struct execution {
    const ls__backend *backend;
    ls_graph *graph;
    ls__executable *executable;
    ls__run_context context;
    int64_t *offsets;
    int64_t count; /* floats of params and grads */
    float *params, *grads;
    void **fields;
    void *arena;
    size_t arena_bytes;
} execution;

/* The backend that LS_TEST_BACKEND names, else the CPU's with so many threads. */
const ls__backend *execution_backend(int threads);
/* Builds and compiles; parameters begin as for training with seed 0. Any error fails the test. */
void execution_open(execution *e, const ls__backend *backend, ls_step_fn *step, void *user,
                    const ls__graph_options *options);
void execution_close(execution *e);
ls_status execution_run(execution *e);
float *execution_param(execution *e, const char *name, int64_t *count); /* NULL = none */
float *execution_grad(execution *e, const char *name, int64_t *count);
/* A result's values, by name; its weights. */
ls_array execution_result(execution *e, const char *name);
ls_array execution_weights(execution *e, const char *name);

extern const ls__backend reference_backend; /* the double-precision executor of tests/graph */

#endif
