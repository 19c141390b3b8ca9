/* A compiled graph, shared by the files that make and run it. */
#ifndef LS_BACKEND_CUDA_EXECUTABLE_H
#define LS_BACKEND_CUDA_EXECUTABLE_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_device.h"

typedef enum cuda_space {
    CUDA_NOWHERE, /* nobody reads it */
    CUDA_ARENA,
    CUDA_PARAM,
    CUDA_GRAD,
    CUDA_CONSTANT, /* the executable's own memory */
} cuda_space;

typedef struct cuda_place { /* of a tensor on the device */
    cuda_space space;
    int piece;      /* arena: of the memory plan */
    int slot;       /* parameters, gradients */
    int64_t offset; /* constants: bytes */
} cuda_place;

/* An output that is computed as f32 and stored as bf16. */
typedef struct cuda_rounding {
    int output;
    size_t offset; /* in the step's workspace */
} cuda_rounding;

typedef struct cuda_step {
    const ls__node *node;
    const cuda_op *op;         /* NULL: the user's, computed on the host */
    struct cuda_user_op *user; /* then */
    size_t own_bytes;          /* of the workspace: what the operation asked for */
    int workspace;             /* piece of the memory plan; -1 = none */
    cuda_rounding roundings[LS__MAX_OUTPUTS];
    int nroundings;
    cuda_call call; /* pointers are the last bind's */
    void *rounded[LS__MAX_OUTPUTS];
} cuda_step;

/* A table's gradient, by node, that adds itself to another of the same parameter; the sum's node is
 * no step. */
typedef struct cuda_sum {
    int node, sum;
} cuda_sum;

/* A tensor that travels at the begin or at the end of a run, through pinned memory. */
typedef struct cuda_travel {
    const ls_tensor *tensor;
    size_t nbytes, at; /* bytes; at: in the pinned memory */
    void *device;      /* the last bind's */
} cuda_travel;

/* A stretch of steps: up to `end`, from where the one before ended. As one launch it is captured in
 * the second run since the last bind. */
typedef struct cuda_cut {
    int end;
    int bucket; /* behind it the gradients of these buckets, from it on, are complete; -1 = none */
    cudaGraphExec_t captured; /* NULL = not yet */
} cuda_cut;

struct ls__executable {
    const ls_graph *graph;
    ls_tensor *const *tensors;
    const ls__graph_param *params;
    int ntensors, nparams;
    int *root;         /* (ntensors) the tensor in whose memory it lies */
    cuda_place *place; /* (ntensors) of roots */

    cuda_step *steps;
    int nsteps;
    cuda_sum *sums;
    int nsums;

    /* The plan: pieces of the arena, or, where the device keeps them apart, memory of their own. */
    ls__lifetime *pieces;
    int npieces;
    size_t arena_bytes;
    void **apart; /* (npieces) or NULL */
    char *constants;
    size_t constants_bytes;

    cuda_travel *in, *out, *states; /* fields; results; both ways */
    int nin, nout, nstates;
    int *result; /* (ntensors) index in out by root; -1 */
    char *pinned;
    size_t pinned_bytes;
    cuda_values *values;      /* on the device */
    cuda_values *host_values; /* pinned: [0] goes there, [1] comes back */

    uint64_t generation; /* of the device's blocks at the last bind; 0 = never */
    int64_t *offsets;    /* (nparams) at the last bind */
    float *base, *grads; /* the flat spaces on the device at the last bind */
    uint16_t *halves;    /* NULL = there is no copy in bf16 */
    void **peeked;       /* (ntensors) copies for read, of what is on the device only; or NULL */
    int64_t extent;      /* floats of the flat space up to the last parameter's end */
    cuda_stretch *stretches; /* (nstretches) the gradients that are computed, by place */
    int nstretches;

    cuda_cut *cuts; /* (ncuts) of the last bind; together all steps */
    int ncuts;
    bool ran;          /* step by step, since that bind */
    bool not_captured; /* it cannot be, or was tried in vain */

    struct cuda_ahead *ahead; /* NULL = no batch was copied ahead yet */
    bool not_ahead;           /* and none will be */

    struct cuda_profile *profile; /* NULL = not measured */
};

/* --- cuda_ops.c --- */
const cuda_op *ls__cuda_op(const ls_op *op); /* NULL = none */

/* --- cuda_compile.c --- */
ls_status ls__cuda_compile(const ls_graph *graph, ls__executable **out);
void ls__cuda_destroy(ls__executable *e);
size_t ls__cuda_arena_bytes(const ls__executable *e);
size_t ls__cuda_device_bytes(const ls__executable *e);
size_t ls__cuda_own_bytes(const ls__executable *e);
size_t ls__cuda_stored_bytes(const ls_tensor *x); /* on the device */

/* --- cuda_plan.c --- */
/* Decides where every tensor lies; steps know their workspaces already. */
ls_status ls__cuda_plan(ls__executable *e);

/* --- cuda_sums.c --- */
ls_status ls__cuda_find_sums(ls__executable *e);
bool ls__cuda_is_absorbed(const ls__executable *e, int node); /* a sum that is no step */
bool ls__cuda_adds(const ls__executable *e, int node);        /* to what lies at its output */
/* The parts of a sum lie where it lies; roots and pieces are known. */
void ls__cuda_join_sums(ls__executable *e);

/* --- cuda_bind.c --- */
/* Makes room for the flat spaces and sets all pointers, when something has moved. */
ls_status ls__cuda_bind(ls__executable *e, const ls__run_context *context);
void *ls__cuda_at(const ls__executable *e, const ls_tensor *x); /* on the device */

/* --- cuda_run.c --- */
ls_status ls__cuda_run(ls__executable *e, const ls__run_context *context);
ls_status ls__cuda_read(ls__executable *e, const ls__run_context *context, const ls_tensor *tensor,
                        ls_array *out);
ls_status ls__cuda_run_step(ls__executable *e, cuda_step *step);

/* --- cuda_cuts.c --- */
/* One stretch, or one for each bucket of gradients that is exchanged with other ranks. */
ls_status ls__cuda_cut_steps(ls__executable *e, const ls__run_context *context);

/* --- cuda_capture.c --- */
/* Runs the steps: one by one at first, then as a graph. */
ls_status ls__cuda_compute(ls__executable *e, const ls__run_context *context);
/* Pointers are about to change, or the executable goes. */
void ls__cuda_forget_capture(ls__executable *e);

/* --- cuda_ahead.c --- */
/* Brings the batch to its tensors if it was copied ahead; *taken says so. */
ls_status ls__cuda_ahead_take(ls__executable *e, const ls__run_context *context, bool *taken);
/* While the device computes: copies the next batch. */
ls_status ls__cuda_ahead_start(ls__executable *e, const ls__run_context *context);
/* Of the copy that the last run began, when runs are measured: when it began and how long it took;
 * 0 = there was none. */
ls_status ls__cuda_ahead_time(const ls__executable *e, cudaEvent_t since, double *begin_ms,
                              double *ms);
void ls__cuda_ahead_free(struct cuda_ahead *ahead);
size_t ls__cuda_ahead_bytes(const ls__executable *e); /* of the device */

/* --- cuda_failure.c --- */
/* Positions of a decoder, which the host knows before the run: none beyond its table. */
ls_status ls__cuda_check_positions(const ls__executable *e, const ls__run_context *context);
/* A run has met an impossible label or token: finds it, and says so. */
ls_status ls__cuda_explain(ls__executable *e, const ls__run_context *context,
                           unsigned long long failure);

/* --- cuda_user_op.c --- */
ls_status ls__cuda_user_op_create(const ls__node *node, struct cuda_user_op **out);
void ls__cuda_user_op_destroy(struct cuda_user_op *user);
ls_status ls__cuda_user_op_run(struct cuda_user_op *user, const cuda_call *call);

/* --- cuda_profile.c --- */
ls_status ls__cuda_profile_begin(ls__executable *e, int64_t events);
void ls__cuda_profile_read(ls__executable *e, ls__profile *out);
void ls__cuda_profile_free(struct cuda_profile *profile);
/* Marks of a run that is measured, in order: its begin, behind the copies to the device, behind
 * each step, behind the copies from it. Nothing when it is not. */
ls_status ls__cuda_mark(ls__executable *e, int mark);
/* The run is over: adds its times up. */
ls_status ls__cuda_profile_add(ls__executable *e, const ls__run_context *context, int64_t begin_ns);

#endif
