/* Backend: where a graph is computed. One table of functions behind which a plugin stands:
 * lockstep_cpu.so today. */
#ifndef LS_BACKEND_H
#define LS_BACKEND_H

#include "base/parallel.h"
#include "graph/graph_internal.h"

typedef struct ls__executable
    ls__executable; /* a compiled graph: kernels, layouts, memory plan; owned by the backend */

/* Handed in at every run; nothing here is baked into the executable. */
typedef struct ls__run_context {
    const float *params; /* (count) the flat space: parameters and statistics; a tensor lies at
                            params + offsets[slot] */
    float *grads; /* (count) training: every parameter's and statistic's gradient is written, zeros
                     included */
    const int64_t *offsets; /* (params of the graph) */
    void *const *fields;    /* per field of the dataset: (batch, ...) */
    void *const *states;    /* per state of the graph: (batch, ...); NULL when there is none */
    void *arena;            /* at least ls__executable's arena bytes, aligned to 64 */
    uint64_t seed;
    int64_t step;           /* of dropout's key */
    int64_t first;          /* position of the micro-batch's first sample in the global batch */
    const int64_t *samples; /* (batch) indices into the dataset, for messages; NULL = positions in
                               the micro-batch */
    double grad_seed; /* training: the gradient of each loss is grad_seed * its weight (1 but for
                         tests) */
} ls__run_context;

typedef struct ls__backend {
    const char *name; /* "cpu" */
    /* threads: of this process's pool. Called before anything else; again, with another number,
     * only while there is no executable. */
    ls_status (*open)(int threads);
    ls_status (*compile)(const ls_graph *graph, ls__executable **out);
    void (*destroy)(ls__executable *e);
    size_t (*arena_bytes)(const ls__executable *e);
    /* Fails with LS_ERR_DATA when a label is out of range: the text names the sample by
     * context->samples. */
    ls_status (*run)(ls__executable *e, const ls__run_context *context);
    /* After a run, until the next one that uses the arena: the plain values of a result or of a
     * parameter's gradient. out gets type, shape and data, which the executable or the context
     * owns. */
    ls_status (*read)(ls__executable *e, const ls__run_context *context, const ls_tensor *tensor,
                      ls_array *out);
    ls__parallel_fn *parallel;
    const char *description; /* "oneDNN 2.6.3, avx512_core" */
} ls__backend;

/* Opens the plugin beside the library (LOCKSTEP_PLUGIN_DIR first) once per process. threads 0: as
 * it is open already, else 1. */
ls_status ls__backend_open(const char *name, int threads, const ls__backend **out);
/* What a plugin exports; lockstep_cpu.so defines it. */
extern const ls__backend ls__backend_table;

#endif
