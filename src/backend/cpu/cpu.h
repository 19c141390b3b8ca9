/* The CPU backend from the inside: a graph becomes a program of steps over tiles of samples.
 *
 * The decision that shapes everything here: a micro-batch is cut into tiles of a few dozen samples,
 * and a tile goes through as many steps as possible, forward and backward, before the next one
 * begins. So activations stay in the caches (oneDNN's convolutions run at 200 to 230 GFLOP/s on a
 * core that gives 140 to 175 on the whole batch), the arena holds one tile's activations per thread
 * and not the batch's, and bits cannot depend on the number of threads: a tile is computed by one
 * thread with one-thread primitives, whichever thread that is.
 *
 * Gradients of parameters are sums over samples. The tiles are dealt to lanes: contiguous runs of
 * tiles, whose number depends on shapes only. A lane adds its tiles' gradients in order in memory
 * of its own; a finisher adds the lanes in order. A thread takes whole lanes.
 *
 *     lane 0                 lane 1                 ...
 *     tile 0, tile 1, ...    tile k, tile k+1, ...       each: step 0, step 1, ..., step n
 *
 * What cannot be cut by samples (an ls_op of the user, sums of parameters) is a whole step: all
 * tiles before it are done when it begins, and it divides its work into tasks itself. */
#ifndef LS_BACKEND_CPU_H
#define LS_BACKEND_CPU_H

#include <dnnl.h>

#include "base/check.h"
#include "base/memory.h"
#include "graph/backend.h"
#include "graph/graph_internal.h"
#include "graph/ops.h"

/* Compiles a function three times and picks one when the plugin is loaded. Bits do not depend on
 * which: sums keep a fixed number of partial sums, and products are not contracted (but in attention
 * and activations, as in products of matrices: machines with fused multiply-add have other bits). Not with Clang
 * 14, whose clones in several files do not link; there the loops are for the least instruction set.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LS__CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LS__CPU_CLONES
#endif

typedef struct cpu_program cpu_program;
typedef struct cpu_step cpu_step;
typedef struct cpu_profile cpu_profile;

/* --- the pool (pool.c): set once by open --- */

typedef struct cpu_pool {
    int threads;
    bool bf16; /* multiplies bf16 numbers */
    int block; /* channels per block of oneDNN's layout here: 16, 8; 1 = plain only */
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* (threads): one each, so that threads share nothing */
} cpu_pool;
const cpu_pool *ls__cpu_pool(void);
ls_status ls__cpu_pool_open(int threads, int device);
/* Calls fn(context, t) for t in [0, threads), one per thread of the pool; on the caller alone when
 * the pool has one thread or parts is 1. */
void ls__cpu_parallel_threads(void (*fn)(void *context, int thread), void *context);
void ls__cpu_parallel(int64_t nchunks, ls__chunk_fn *fn, void *context);

/* --- memory --- */

/* How a tensor's values lie in memory. Blocked: (N, C/block, H, W, block), channels filled up with
 * zeros (oneDNN's aBcd16b or aBcd8b); of tensors of rank 4. Half: plain, as bf16. Rounded: plain, f32
 * that bf16 could hold, for machines that do not multiply bf16. */
typedef enum cpu_layout { CPU_PLAIN, CPU_BLOCKED, CPU_HALF, CPU_ROUNDED, CPU_LAYOUTS } cpu_layout;

typedef enum cpu_space {
    CPU_ARENA,    /* per tile and thread, or whole: the memory plan decides */
    CPU_PARAM,    /* params + offsets[slot] */
    CPU_HALVES,   /* halves + offsets[slot] */
    CPU_GRAD,     /* grads + offsets[slot] */
    CPU_FIELD,    /* fields[slot] */
    CPU_STATE,    /* states[slot] */
    CPU_CONSTANT, /* the graph's */
} cpu_space;

typedef struct cpu_buffer {
    cpu_space space;
    size_t nbytes;     /* of the whole batch; with lanes, of all of them */
    size_t per_sample; /* bytes; 0 = the same for every tile */
    size_t per_lane;   /* bytes; 0 = one for all lanes */
    int slot;
    const void *constant;
    int root;       /* the buffer in whose memory it lies: itself, or its input's when in place */
    bool keep;      /* a result: stays to the end of the run */
    bool temporary; /* of one step, per thread: nbytes is what a thread needs */
    /* the memory plan's */
    bool tiled; /* lies in each thread's scratch; else in the whole part of the arena */
    int64_t offset;
} cpu_buffer;

/* --- steps --- */

enum { CPU_STEP_BUFFERS = LS__MAX_INPUTS + 1 };

/* What went wrong in one thread. */
typedef struct cpu_failure {
    int64_t sample;   /* of the first impossible label or token, in the micro-batch; -1 = none */
    const char *what; /* "label" */
    int64_t value, limit; /* not in [0, limit) */
    dnnl_status_t dnnl;   /* the first that is not success */
} cpu_failure;

/* One call of a step: a tile's, or a task's of a whole step. */
typedef struct cpu_call {
    const cpu_program *program;
    const cpu_step *step;
    const ls__run_context *context;
    char *const *base; /* per buffer; NULL for tiled ones */
    char *scratch;     /* this thread's */
    cpu_failure *failure;
    int64_t begin, end; /* samples; all of them in a whole step */
    int64_t task;       /* whole steps: in [0, ntasks) */
    int thread, lane;
    bool tail;        /* the short last tile */
    bool lane_begins; /* the lane's first tile: set, do not add */
} cpu_call;

struct cpu_step {
    void (*run)(const cpu_call *call);
    void *state;
    void (*destroy)(void *state);
    bool tiled;
    int64_t ntasks; /* of a whole step */
    int buffers[CPU_STEP_BUFFERS];
    int nbuffers;
    int node;         /* what it computes */
    int partner;      /* along with this one; -1 */
    const char *what; /* NULL = just that; else what it does for it */
};

struct cpu_program {
    int threads, block;
    int64_t batch;
    int64_t tile;   /* samples; at most batch */
    int64_t ntiles; /* the last may be short */
    int lanes;
    cpu_step *steps;
    int nsteps;
    cpu_buffer *buffers;
    int nbuffers;
    size_t whole_bytes;    /* of the arena's first part */
    size_t scratch_bytes;  /* of each thread's part behind it */
    cpu_failure *failures; /* (threads) */
    cpu_profile *profile;  /* NULL = nobody wants to know */
};

static inline void *ls__cpu_at(const cpu_call *call, int i)
{
    const cpu_buffer *b = &call->program->buffers[call->step->buffers[i]];
    if (b->tiled) return call->scratch + b->offset;
    return call->base[call->step->buffers[i]] + (size_t)call->begin * b->per_sample +
           (size_t)call->lane * b->per_lane;
}

/* Runs every step for every tile. */
ls_status ls__cpu_program_run(const cpu_program *p, char **base, const ls__run_context *context);
/* Runs a step and, with a profile, measures it (profile.c). */
struct cpu_profile {
    int threads;
    int64_t runs, ns;          /* of all of them */
    int64_t *step_ns;          /* (threads, steps) */
    int64_t *calls;            /* (threads, steps) */
    ls__profile_step *steps;   /* (steps) */
    ls__profile_event *events; /* (threads, room) */
    int64_t room;
    int64_t *nevents; /* (threads) */
};
void ls__cpu_measure(const cpu_call *call);
static inline void ls__cpu_run_step(const cpu_call *call)
{
    if (call->program->profile)
        ls__cpu_measure(call);
    else
        call->step->run(call);
}
void ls__cpu_profile_free(cpu_profile *profile);
/* Lifetimes, who shares whose memory, offsets, arena. */
ls_status ls__cpu_plan_memory(cpu_program *p);

/* --- building --- */

typedef struct cpu_value {   /* of a tensor */
    int buffer[CPU_LAYOUTS]; /* by layout; -1 = not there */
    bool tiled;              /* cut by samples */
} cpu_value;

static inline cpu_value ls__cpu_plain_value(int buffer, bool tiled)
{
    return (cpu_value) { .buffer = { buffer, -1, -1, -1 }, .tiled = tiled };
}

typedef struct cpu_builder {
    const ls_graph *graph;
    cpu_program *program;
    const ls__node *nodes;
    int nnodes;
    ls_tensor *const *tensors;
    int ntensors;
    const ls__graph_param *params;
    int nparams;
    cpu_value *values;  /* (tensors) */
    int *root;          /* (tensors) the tensor whose elements a reshape shows */
    int *reads;         /* (tensors) by root: reads to come; results count one that never comes */
    int *readers;       /* (tensors) nodes that read it, results counted */
    int *reader;        /* (tensors) the last node that reads it; -1 */
    int *slot;          /* (tensors) the parameter in whose gradient's place it lies; -1 */
    int *partner;       /* (nodes) the node that is lowered with this one; -1 */
    bool *absorbed;     /* (nodes) is some node's partner */
    cpu_step *prologue; /* before all others: parameters packed */
    int nprologue, prologue_room;
    cpu_step *finishers; /* whole steps that wait until the tiles are done */
    int nfinishers, finisher_room;
    bool *unfinished;       /* (tensors) written by a finisher to come */
    int64_t large_bytes;    /* of weights that are not for tiles (tile.c) */
    bool whole_linear;      /* linear layers run as whole steps */
    struct cpu_head *heads; /* head.h */
    int nheads;
    struct cpu_packed *packed;
    int npacked, packed_room;
    int step_room, buffer_room;
    int current; /* the node that is being lowered */
} cpu_builder;

/* Translates the nodes into b->program's steps (lower.c). */
ls_status ls__cpu_lower(cpu_builder *b);
/* Samples per tile and lanes: functions of the graph's shapes (tile.c). */
void ls__cpu_choose_tile(cpu_builder *b, cpu_program *p);

ls_status ls__cpu_builder_init(cpu_builder *b, const ls_graph *graph, cpu_program *program);
/* All nodes are lowered: puts prologue and finishers in their places. */
ls_status ls__cpu_close(cpu_builder *b);
void ls__cpu_builder_free(cpu_builder *b);
void ls__cpu_program_free(cpu_program *p);

/* Where x is in this layout; reordered first if need be. */
ls_status ls__cpu_read(cpu_builder *b, const ls_tensor *x, cpu_layout layout, int *buffer);
/* Sees to it that x is there row by row, as f32 or bf16. */
ls_status ls__cpu_make_plain(cpu_builder *b, const ls_tensor *x);
/* Memory for x, about to be computed by a tiled or a whole step. */
ls_status ls__cpu_write(cpu_builder *b, const ls_tensor *x, cpu_layout layout, bool tiled,
                        int *buffer);
/* As write; in the memory of in's buffer when nobody reads that any more. */
ls_status ls__cpu_write_over(cpu_builder *b, const ls_tensor *x, cpu_layout layout, bool tiled,
                             const ls_tensor *in, int in_buffer, int *buffer);
/* Memory of a step's own, per thread. */
ls_status ls__cpu_temporary(cpu_builder *b, size_t nbytes, int *buffer);
/* Memory that is the same for all tiles; from its first to its last step. */
ls_status ls__cpu_shared(cpu_builder *b, size_t nbytes, size_t per_lane, int *buffer);
/* The layout that x has, the blocked one if both. */
cpu_layout ls__cpu_layout_of(const cpu_builder *b, const ls_tensor *x);
bool ls__cpu_tiled(const cpu_builder *b, const ls_tensor *x);

/* The parameter whose gradient x is, or becomes when others are added in place; -1. */
int ls__cpu_gradient_slot(const cpu_builder *b, const ls_tensor *x);

/* Appends a step; takes state over, on failure too. buffers: read and written by the step, in the
 * order that ls__cpu_at counts. */
typedef struct cpu_step_spec {
    void (*run)(const cpu_call *call);
    void *state;
    void (*destroy)(void *state);
    bool whole;
    int64_t ntasks; /* 0 = 1 */
    const char
        *what; /* for profiles: NULL = what the node computes; else what must be done for it */
} cpu_step_spec;
ls_status ls__cpu_step(cpu_builder *b, const cpu_step_spec *spec, const int *buffers, int n);
/* As step, before all others: reads parameters and constants only. */
ls_status ls__cpu_step_first(cpu_builder *b, const cpu_step_spec *spec, const int *buffers, int n);
/* A whole step that runs when the tiles are done, before anybody reads the tensors it writes. */
ls_status ls__cpu_finish(cpu_builder *b, const cpu_step_spec *spec, const int *buffers, int n,
                         const ls_tensor *const *written, int nwritten);

/* Rows of x (its first dimension) for a tile and for the short last one; for a whole step all and
 * none. */
void ls__cpu_rows(const cpu_builder *b, const ls_tensor *x, bool tiled, int64_t rows[2]);
/* How many rows a call has of a tensor. */
typedef struct cpu_extent {
    int64_t each; /* of a sample */
    int64_t all;
} cpu_extent;
cpu_extent ls__cpu_extent(const cpu_builder *b, const ls_tensor *x);
static inline int64_t ls__cpu_extent_rows(const cpu_call *call, const cpu_extent *x)
{
    return call->step->tiled ? (call->end - call->begin) * x->each : x->all;
}

/* Bytes of x in a layout. */
size_t ls__cpu_nbytes(const cpu_program *p, const ls_tensor *x, cpu_layout layout);
static inline int64_t ls__cpu_count(const ls_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->shape[i];
    return count;
}

/* --- one node, one function; op_kernels.c has the table --- */

typedef struct cpu_task {
    const ls__node *node;
    ls_tensor *out; /* the node's first output, or its partner's */
    bool relu;      /* the partner is the relu behind it */
    /* max_pool2d_grad: the partner is the gradient of the relu before the pool. Where the pool's
     * output is 0 so was the relu's. */
    const ls_tensor *pooled;
    const ls_tensor *onto; /* embedding_grad: the partner adds it to this, in place */
} cpu_task;
typedef ls_status cpu_lower_fn(cpu_builder *b, const cpu_task *task);

cpu_lower_fn ls__cpu_linear, ls__cpu_linear_grad_x, ls__cpu_linear_grad_weight;
cpu_lower_fn ls__cpu_conv2d, ls__cpu_conv2d_grad_x, ls__cpu_conv2d_grad_weight;
cpu_lower_fn ls__cpu_max_pool2d, ls__cpu_max_pool2d_grad, ls__cpu_avg_pool2d,
    ls__cpu_avg_pool2d_grad, ls__cpu_global_avg_pool2d, ls__cpu_global_avg_pool2d_grad;
cpu_lower_fn ls__cpu_batch_norm, ls__cpu_batch_norm_grad, ls__cpu_batch_norm_inference;
cpu_lower_fn ls__cpu_relu, ls__cpu_relu_grad, ls__cpu_add, ls__cpu_mul, ls__cpu_scale, ls__cpu_copy;
cpu_lower_fn ls__cpu_dropout;
cpu_lower_fn ls__cpu_cross_entropy, ls__cpu_cross_entropy_grad, ls__cpu_accuracy, ls__cpu_loss_grad;
cpu_lower_fn ls__cpu_embedding, ls__cpu_embedding_grad, ls__cpu_position_embedding,
    ls__cpu_position_embedding_grad;
cpu_lower_fn ls__cpu_layer_norm, ls__cpu_layer_norm_grad, ls__cpu_rms_norm, ls__cpu_rms_norm_grad;
cpu_lower_fn ls__cpu_activation, ls__cpu_activation_grad;
cpu_lower_fn ls__cpu_rotary, ls__cpu_attention, ls__cpu_attention_grad, ls__cpu_attention_cached;
cpu_lower_fn ls__cpu_softmax, ls__cpu_softmax_grad;
cpu_lower_fn ls__cpu_sub, ls__cpu_div, ls__cpu_sum_to, ls__cpu_reduce, ls__cpu_reduce_grad;
cpu_lower_fn ls__cpu_transpose, ls__cpu_slice, ls__cpu_slice_grad, ls__cpu_concat;
cpu_lower_fn ls__cpu_elementwise_loss, ls__cpu_elementwise_loss_grad;
cpu_lower_fn ls__cpu_user_op;

/* --- bf16-mixed (half.c) --- */
/* The layout in which a node's kernel takes in[input], and in which it had best write x. */
cpu_layout ls__cpu_factor_layout(const ls__node *node, int input);
cpu_layout ls__cpu_stored_layout(const ls_tensor *x);
/* As factor_layout, for a kernel that multiplies f32. */
cpu_layout ls__cpu_float_layout(const ls__node *node, int input);
/* Between plain, half and rounded; of parameters and constants before all other steps. */
ls_status ls__cpu_convert(cpu_builder *b, const ls_tensor *x, int from, cpu_layout source, int to,
                          cpu_layout target, bool tiled);
void ls__cpu_to_half(const float *in, uint16_t *out, int64_t n); /* to nearest even */
void ls__cpu_from_half(const uint16_t *in, float *out, int64_t n);
void ls__cpu_round_floats(const float *in, float *out, int64_t n); /* to what bf16 could hold */

/* Blocked to plain and back (reorder.c). */
ls_status ls__cpu_reorder(cpu_builder *b, const ls_tensor *x, int from, int to, cpu_layout target,
                          bool tiled);
/* out += x */
void ls__cpu_add_floats(float *out, const float *x, int64_t n);
/* out = the sum of the lanes' parts, in order, count floats each (cpu_reduce.c); a finisher. */
ls_status ls__cpu_finish_sum(cpu_builder *b, int lanes, int out, int64_t count,
                             const ls_tensor *written);
/* Where a step that sums over samples writes out (a parameter's gradient): memory of each lane and a
 * finisher when the step is tiled; out itself when it is whole or there is one lane. In a tiled step
 * the lane's first tile sets it, the others add. */
ls_status ls__cpu_sum_target(cpu_builder *b, const ls_tensor *out, bool tiled, int *buffer);

#endif
