/* Resident: the training state of a space where a device keeps it, and the exchange with it.
 *
 * On a device as fast as a GPU neither gradients nor parameters may travel to the host in a step.
 * So what comm/exchange.h does in the host's memory is done here by the device's own kernels, over
 * the same segments, blocks, owners and tree: gradients of a leaf stay where the graph has written
 * them, finished neighbours are merged, the owner of a slice sums everybody's, updates it, and
 * everybody gets it. (Where the fixed tree is not asked for, the sums are the device's library's.) An exchange (on_device) beside it still carries the agreement, on the CPU.
 *
 * A step:
 *     begin(present)
 *     for each own leaf: a run of a graph with context->resident, or set; leaf_done
 *     the agreement
 *     norms    when gradients are clipped: the one place that waits for the device
 *     commit   or drop, when nothing is to be changed
 * A backend offers one table, or none. Functions marked [all] are called by every rank alike; the
 * others too, but those for a failure, behind which only destroying is legal. */
#ifndef LS_COMM_RESIDENT_H
#define LS_COMM_RESIDENT_H

#include "comm/exchange.h"
#include "comm/link.h"

typedef struct ls__resident ls__resident;

typedef enum ls__rule {
    LS__RULE_NONE,    /* frozen: not touched */
    LS__RULE_AVERAGE, /* of a statistic: p += momentum (scale g - p) */
    LS__RULE_SGD,
    LS__RULE_MOMENTUM, /* state 0: the velocity */
    LS__RULE_NESTEROV,
    LS__RULE_ADAMW, /* states 0 and 1: the moments */
} ls__rule;

/* How the elements of a segment are updated in a step; formulas beside the host's (src/optim). */
typedef struct ls__rule_step {
    int rule;
    float scale; /* of the summed gradient */
    float lr, decay, momentum;
    float keep, beta1, rest1, beta2, rest2, step_size, root; /* AdamW's, see adamw.c */
} ls__rule_step;

typedef struct ls__resident_options {
    ls_comm *comm;               /* borrowed */
    const ls__segment *segments; /* as the exchange's; copied */
    int nsegments;
    int64_t count;           /* elements of the space */
    int micro_batches;       /* S */
    const ls__range *ranges; /* what this rank owns; copied */
    int nranges;
    int nstates;
    bool norms;           /* they will be asked for */
    bool halves;          /* keep the parameters in bf16 too */
    bool deterministic;   /* sums of several ranks in the fixed tree, as the host adds; else in an
                           order of the device's library, so that bits depend on the ranks */
    int timeout_ms;       /* of an exchange; -1 = none */
    const char *root;     /* where rank 0's machine is reached; NULL = there is only one machine */
    ls__link_store store; /* of all ranks, where they are on several machines; it outlives this */
} ls__resident_options;

typedef struct ls__resident_table {
    bool (*available)(ls_comm *comm); /* [all] the same answer on every rank */
    ls_status (*create)(const ls__resident_options *options, ls__resident **out); /* [all] */
    void (*destroy)(ls__resident *r);                                             /* [all] */
    /* Between steps: from the host's memory. params: (count). states[i]: of the owned ranges, one
     * after the other; NULL = zeros. */
    ls_status (*put)(ls__resident *r, const float *params, float *const *states);
    /* And back: what this rank owns of params, the space's base, or (whole) all of it; states may
     * be NULL. Waits for the device. */
    ls_status (*get)(ls__resident *r, float *params, float *const *states, bool whole);
    /* present: (S) the leaves that hold samples, the same on every rank. */
    void (*begin)(ls__resident *r, const bool *present);
    /* The leaf's gradients from the host instead of from a graph: factor * grads. */
    ls_status (*set)(ls__resident *r, const float *grads, float factor);
    /* The next own leaf is done; of one that is present and got no gradients (!added) they are
     * zero. */
    ls_status (*leaf_done)(ls__resident *r, bool added);
    /* Sums over all ranks' leaves and adds up the squares of each owned block, in fp64; writes them
     * to norms[block], blocks counted over the whole space. The others are not touched. */
    ls_status (*norms)(ls__resident *r, double *norms);
    /* steps: (nsegments). Starts what is to be done and does not wait for it. */
    ls_status (*commit)(ls__resident *r, const ls__rule_step *steps);
    /* The step is given up. broken: another rank may not have come, so that exchanges are
     * aborted. */
    void (*drop)(ls__resident *r, bool broken);
    ls_status (*wait)(ls__resident *r);       /* until the device has done it all; for profiles */
    int64_t (*nbytes)(const ls__resident *r); /* of the device's memory */
} ls__resident_table;

#endif
