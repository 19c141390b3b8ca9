/* Inside a graph: nodes in the order they run, and what a backend needs to compile them.
 *
 * A built graph is a list of nodes: forward, then (in training) backward, emitted by the gradient
 * rules. Node order is the schedule. A backend sees only this file: it decides kernels and layouts,
 * asks ls__memory_plan for offsets, and makes an executable. */
#ifndef LS_GRAPH_INTERNAL_H
#define LS_GRAPH_INTERNAL_H

#include <lockstep/dataset.h>
#include <lockstep/graph.h>
#include <lockstep/metric.h>
#include <lockstep/op.h>

typedef enum ls__role {
    LS__ROLE_INPUT,     /* a batch's field; memory is the batch's */
    LS__ROLE_PARAM,     /* f32; memory is params + offset, handed in at run time */
    LS__ROLE_STATISTIC, /* as a parameter, but its "gradient" is a sum of statistics and its update
                           a moving average (batch norm) */
    LS__ROLE_CONSTANT,  /* values copied into the graph */
    LS__ROLE_STATE,     /* memory that the caller keeps from run to run; decoding only */
    LS__ROLE_VALUE,     /* computed by a node */
} ls__role;

struct ls_tensor {
    ls_graph *graph;
    ls__role role;
    ls_dtype type;
    int rank;
    int64_t shape[LS_MAX_RANK]; /* of the micro-batch it was built for */
    int id;                     /* index in the graph's tensors */
    int node;                   /* the node that computes it; -1 for other roles */
    int slot; /* input: index of the dataset's field; param, statistic: index in the graph's params;
                 state: index in the graph's states */
    const float *values; /* constant */
    bool batched;        /* its first dimension is the micro-batch */
    bool sample_major;   /* its first dimension is the micro-batch or it times something: all values
                            of a sample lie together, in the samples' order */
    bool learned;        /* a parameter has a part in it */
    bool differentiable; /* learned or, if input_gradients asks for them, computed from an f32 input
                            by operations that have a gradient */
    bool half;           /* bf16-mixed: an activation (or its gradient) stored as bf16 */
    const ls_tensor *first; /* computed again (recompute.c): the tensor that this is a copy of */
    ls_tensor *weights; /* of losses and scores whose targets can be ignored: (as they) 1 or 0; else
                            NULL */
};

typedef struct ls__node {
    const ls_op *op;
    void *attributes; /* owned by the graph */
    size_t nbytes;
    ls_tensor **in;
    int nin;
    ls_tensor **out; /* built-in operations may have several outputs (a pool and its indices);
                        ls_op's compute has one */
    int nout;
    bool backward;
    int segment; /* forward: numbered from 1, what the backward pass computes again; 0 = none */
    bool half;   /* bf16-mixed: multiplies bf16 numbers, adds in f32: reads its factors (parameters
                  too) rounded to bf16; see ls__node_rounds */
} ls__node;

/* A parameter or statistic, in the order of first use. */
typedef struct ls__graph_param {
    ls_tensor *tensor;
    const char *name;
    ls_init init;
    ls__role role;
    bool decays;     /* weight decay applies by default: not for biases and norms */
    ls_tensor *grad; /* in training: what is written to grads + offset; NULL = zeros */
    double momentum; /* statistic: new = old + momentum * (sum / weight - old); the gradient is the
                        sum over groups of (samples of the group) * statistic, so that weight =
                        the samples of the global batch */
    int depth;       /* layer of first use, increasing: buckets do not span two */
} ls__graph_param;

typedef enum ls__result_kind {
    LS__RESULT_LOSS,
    LS__RESULT_REPORT,
    LS__RESULT_METRIC,
    LS__RESULT_OUTPUT
} ls__result_kind;

/* What the trainer reads after a run, from the executable's memory. */
typedef struct ls__graph_result {
    ls__result_kind kind;
    const char *name;
    const ls_metric *metric;
    ls_tensor *values[8];
    int nvalues;
    ls_tensor *weights; /* loss, report: of the same shape as values[0], or NULL = 1 each */
} ls__graph_result;

typedef struct ls__graph_options {
    ls_stage stage;
    int64_t batch;          /* samples of the micro-batch */
    const ls_field *fields; /* of the dataset */
    int nfields;
    ls_precision precision; /* ls__graph_precision marks tensors and nodes */
    bool halves;            /* bf16-mixed: runs bring a copy of the parameters in bf16 */
    bool deterministic;     /* no kernels that add in an order of their own */
    int64_t decode; /* predicting token by token: rows of the caches; 0 = not decoding. A sample is
                       then one new token (T = 1) */
    bool input_gradients; /* training: every f32 input's gradient is a result, an output named
                             "gradient of <field>"; for ls_gradient_check */
} ls__graph_options;

/* Runs the step function, differentiates (training), orders, drops what nothing needs. The first
 * latched failure is its error. */
ls_status ls__graph_build(ls_step_fn *step, void *user, const ls__graph_options *options,
                          ls_graph **out);
void ls__graph_destroy(ls_graph *g);

int ls__graph_nodes(const ls_graph *g, const ls__node **nodes);
int ls__graph_tensors(const ls_graph *g, ls_tensor *const **tensors);
int ls__graph_params(const ls_graph *g, const ls__graph_param **params);
/* States: memory that outlives a run, zero before the first. Their first dimension is the batch. */
typedef struct ls__graph_state {
    const char *name; /* "position", "block0.cache" */
    ls_tensor *tensor;
} ls__graph_state;
int ls__graph_states(const ls_graph *g, const ls__graph_state **states);
int ls__graph_results(const ls_graph *g, const ls__graph_result **results);
const ls__graph_options *ls__graph_options_of(const ls_graph *g);
/* The least common multiple of the batch norms' groups; 1 when there is none: the unit in which
 * batches may be cut. */
int64_t ls__graph_group(const ls_graph *g);
/* bf16-mixed: whether the node reads this input rounded to bf16; else as it is (a bias). */
bool ls__node_rounds(const ls__node *node, int input);
double ls__graph_flops(const ls_graph *g);
double ls__node_flops(const ls__node *node);

/* Fills a parameter's first values: a function of (seed, name). out: (count of the tensor) */
void ls__graph_init_param(const ls__graph_param *param, uint64_t seed, float *out);

/* --- for the operations' own files --- */
/* Latches a failure; returns NULL so that a rule can end with it. */
ls_tensor *ls__graph_fail(ls_graph *g, ls_status status, const char *format, ...) LS_PRINTF(3, 4);
/* As ls_apply with several outputs; the shape rule fills an array of LS__MAX_OUTPUTS, of which nout
 * are made. On failure all are NULL. */
enum { LS__MAX_INPUTS = 16, LS__MAX_OUTPUTS = 5 };
void ls__apply_multi(const ls_op *op, const void *attributes, size_t nbytes, ls_tensor *const *in,
                     int nin, ls_tensor **out, int nout);
/* The layer that failures name from here on; NULL = none. The text must stay until then. */
void ls__graph_layer(ls_graph *g, const char *name);
/* "(B,16,3,3)", "fc1.weight (256,784)": for messages. */
enum { LS__TENSOR_TEXT = 256 };
const char *ls__tensor_text(const ls_tensor *x, char out[LS__TENSOR_TEXT]);
/* Output i of the node that computes out; NULL when it has no such output. */
ls_tensor *ls__graph_sibling(const ls_tensor *out, int i);
/* A running statistic (count), and in training the sum that moves it. */
ls_tensor *ls__graph_statistic(ls_graph *g, const char *name, double first, double momentum,
                               int64_t count);
void ls__graph_statistic_sum(ls_graph *g, ls_tensor *statistic, ls_tensor *sum);
/* Decoding: how many tokens each sample has behind it, (B) i32, the state "position"; NULL when not
 * decoding. The caller counts it up. */
ls_tensor *ls__graph_position(ls_graph *g);
/* Decoding: the state of that name, f32 or i32; the same name is the same state. shape without the
 * batch. */
ls_tensor *ls__graph_state_tensor(ls_graph *g, const char *name, ls_dtype type, int rank,
                                  const int64_t *shape);
/* Micro-batches must begin at multiples of so many samples. */
void ls__graph_needs_group(ls_graph *g, int64_t group);

/* --- memory plan --- */
/* A piece of memory that is alive from node `begin` to node `end`, both included. */
typedef struct ls__lifetime {
    size_t nbytes;
    int begin, end;
    int64_t offset; /* out: multiple of 64; -1 for nbytes 0 */
} ls__lifetime;
/* Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
 * 2020); returns the arena's bytes, SIZE_MAX when there is no memory to plan with. */
size_t ls__memory_plan(ls__lifetime *pieces, int n);

/* Whether a node may write its first output into the memory of in[input]: its kernel reads an
 * element before it writes it, and the layouts agree. Asked only where nobody reads that input
 * later and it has as many bytes. */
typedef bool ls__alias_fn(void *user, const ls__node *node, int input);
/* For each tensor (by id): root is the id of the tensor in whose memory it lies: its own; its
 * input's for a reshape or (alias may be NULL = never) in place. pieces: bytes and lifetime of
 * roots that nodes compute, 0 bytes for all others; results and parameters' gradients live to the
 * end. A backend with other layouts corrects the bytes; one that writes a gradient straight into
 * the gradient space sets them to 0. Then ls__memory_plan. root, pieces: (tensors of the graph) */
void ls__graph_liveness(const ls_graph *g, ls__alias_fn *alias, void *user, int *root,
                        ls__lifetime *pieces);

#endif
