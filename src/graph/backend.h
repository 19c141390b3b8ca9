/* Backend: where a graph is computed. One table of functions behind which a plugin stands:
 * lockstep_cpu.so, lockstep_cuda.so, lockstep_sim.so (a simulated GPU). */
#ifndef LS_BACKEND_H
#define LS_BACKEND_H

#include "base/parallel.h"
#include "comm/resident.h"
#include "graph/graph_internal.h"

typedef struct ls__executable
    ls__executable; /* a compiled graph: kernels, layouts, memory plan; owned by the backend */

/* Handed in at every run; nothing here is baked into the executable. */
typedef struct ls__run_context {
    const float *params;     /* (count) the flat space: parameters and statistics; a tensor lies at
                            params + offsets[slot] */
    uint64_t params_version; /* another one whenever a value at params may have changed, so that a
                                device keeps its copy; 0 = they may have changed */
    const uint16_t *halves;  /* (count) params as bf16, where the graph's options say so */
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
    ls__resident *resident; /* training state on this backend's device (comm/resident.h): parameters
                               are its own, params and halves are not looked at, and a training run
                               leaves its gradients there, not at grads. NULL = none */
    bool trace;             /* profiling: this run's events are kept too */
    /* Optional: while the device computes, the fields of the next run of this executable, of which
     * the backend may copy what it needs; false = not known. They stay until that run, whose batch is
     * one more. */
    int64_t batch; /* counted from 1; 0 = unknown */
    bool (*ahead)(void *user, void *const **fields);
    void *ahead_user;
} ls__run_context;

/* --- profiles --- */
typedef struct ls__profile_step {
    int node;         /* of the graph: what the step computes */
    int partner;      /* the node that is computed along with it (a relu); -1 = none */
    const char *what; /* NULL = the node itself; else what had to be done for it: "reorder" */
    int64_t calls;
    double seconds; /* of all threads together */
    double nbytes;  /* of what a run of it reads and writes */
    bool beside;    /* while other steps run: its time is no part of the run's */
} ls__profile_step;

typedef struct ls__profile_event {
    int step, thread;
    int64_t begin_ns, end_ns; /* of ls__now_ns */
} ls__profile_event;

typedef struct ls__profile { /* the executable's, until it is read or begun again */
    int threads;
    int64_t runs;
    double seconds; /* of these runs */
    const ls__profile_step *steps;
    int nsteps;
    const ls__profile_event *events; /* by thread, in the order in which they happened */
    int64_t nevents;
} ls__profile;

typedef struct ls__backend {
    const char *name; /* "cpu" */
    /* threads: of this process's pool. device: which of the machine's, counted from 0; of CPUs
     * there is one. Called before anything else; again, with another number of threads, only while
     * there is no executable. */
    ls_status (*open)(int threads, int device);
    ls_status (*compile)(const ls_graph *graph, ls__executable **out);
    void (*destroy)(ls__executable *e);
    size_t (*arena_bytes)(const ls__executable *e);
    /* Of memory of the backend's own that a run's tensors take, shared by all executables; NULL =
     * none: they are in the arena. */
    size_t (*device_bytes)(const ls__executable *e);
    /* Besides: of this executable alone, batches that are copied ahead included. */
    size_t (*device_own_bytes)(const ls__executable *e);
    /* Most that the device's memory in use has grown by since open, as its driver counts. */
    int64_t (*device_peak_bytes)(void);
    /* Fails with LS_ERR_DATA when a label is out of range: the text names the sample by
     * context->samples. */
    ls_status (*run)(ls__executable *e, const ls__run_context *context);
    /* After a run, until the next one that uses the arena: the plain values of a result or of a
     * parameter's gradient. out gets type, shape and data, which the executable or the context
     * owns. */
    ls_status (*read)(ls__executable *e, const ls__run_context *context, const ls_tensor *tensor,
                      ls_array *out);
    /* From here on runs are measured, and the events of those that ask for it kept, at most so many
     * per thread. Called again: begins again. */
    ls_status (*profile_begin)(ls__executable *e, int64_t events);
    void (*profile_read)(ls__executable *e, ls__profile *out);
    bool (*multiplies_bf16)(void); /* in hardware: bf16-mixed is faster than 32 */
    bool (*multiplies_tf32)(void); /* NULL = no: tf32 computes as 32 */
    bool copies_ahead;             /* asks runs for the next batch: ls__run_context.ahead */
    ls__parallel_fn *parallel;
    const ls__resident_table *resident; /* NULL = training state is the host's */
    const char *description;            /* "oneDNN 2.6.3, avx512_core" */
} ls__backend;

/* Opens the plugin beside the library (LOCKSTEP_PLUGIN_DIR first) once per process. threads 0: as
 * it is open already, else 1. */
ls_status ls__backend_open(const char *name, int threads, const ls__backend **out);
/* The same for a device other than the first. A process computes on one device of a kind. */
ls_status ls__backend_open_device(const char *name, int threads, int device,
                                  const ls__backend **out);
/* What a plugin exports; lockstep_cpu.so defines it. */
extern const ls__backend ls__backend_table;

#endif
