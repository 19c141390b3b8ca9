/* Inside a space: the flat parameters of a run, their owner's optimizer state, the leaf that is
 * being computed. */
#ifndef LS_SPACE_STATE_H
#define LS_SPACE_STATE_H

#include "checkpoint/checkpoint.h"
#include "optim/optim.h"
#include "run/run_internal.h"

struct ls_space {
    ls_run *run;
    ls__exchange *exchange;
    float *params; /* (count) shared */
    int64_t count;
    ls__space_tensor *tensors; /* names owned */
    int ntensors;
    ls__param_settings *rules; /* (ntensors) */

    /* this rank's ranges and the optimizer's states over them */
    const ls__range *ranges; /* borrowed from the exchange */
    int nranges;
    int64_t *state_at; /* (nranges) where a range's state begins; statistics keep their place too */
    int64_t state_count;
    const ls_optimizer *kind;
    int nstates;
    float **states;                /* (nstates) of (state_count) */
    ls__saved_tensor *saved;       /* (ntensors) */
    ls__saved_range *saved_ranges; /* (nranges) */
    float *whole;                  /* scaled gradient of a whole tensor */

    /* of the step that is committed */
    double lr;
    int64_t updates;
    float statistic_scale;

    /* the leaf */
    float *leaf;
    bool added;
    double leaf_weight;
    float leaf_factor;
    bool waited; /* every owner has committed the last step */

    /* by hand */
    bool by_hand;
    float *grads;  /* (count) private */
    float *values; /* the caller's array, or NULL */

    void (*init)(void *user, uint64_t seed, float *values);
    void *user;

    /* on a device (space_resident.c); table NULL = on the host */
    const ls__resident_table *table;
    ls__resident *resident;
    bool stale;           /* params and states here are those of an earlier step */
    bool exposed;         /* the caller may look at params whenever it likes */
    bool *present;        /* (micro-batches) leaves of the step that hold samples */
    ls__rule_step *steps; /* (ntensors) */
    int64_t nblocks;
    double *norms; /* (nblocks + 1) with clipping: squares of each block; how many ranks failed */
};

/* --- space_create.c --- */
void ls__space_destroy(ls_space *space);        /* [all] NULL is fine */
void ls__space_release_states(ls_space *space); /* no step is to come */
/* Rank 0's first values, when no checkpoint is loaded; and the caller's array after a load. */
void ls__space_init(ls_space *space, uint64_t seed);
void ls__space_copy_out(ls_space *space);
bool ls__space_finite(const ls_space *space, int *tensor); /* this rank's ranges */
uint64_t ls__space_xxh3(const ls_space *space, bool *ok);

/* --- space_update.c: the exchange's callback --- */
void ls__space_update(void *user, int segment, int64_t offset, int64_t count, float *param,
                      const float *grad, float scale);

/* The slice of a tensor's update in the step that is committed, without its arrays. */
ls_slice ls__space_slice(const ls_space *space, int segment, float scale);

/* --- space_resident.c: does nothing where the state is the host's, but for what is said --- */
/* Whether a device is to keep the state: it offers to, and the optimizer is one that it knows. */
const ls__resident_table *ls__space_table(const ls_space *space, const ls__resident_table *offered);
/* Several devices' gradients are added in an order that depends on their number. */
bool ls__space_adds_loosely(const ls_space *space);
ls_status ls__space_resident_create(ls_space *space, bool halves); /* [all] the exchange is there */
void ls__space_resident_destroy(ls_space *space);                  /* [all] */
/* The first values, which are on the host, go where they are computed with. */
ls_status ls__space_put(ls_space *space);
/* This rank's ranges of the parameters (whole: all of them), and of the states, come to the host, if
 * they are not there. */
ls_status ls__space_get(ls_space *space, bool states, bool whole);
void ls__space_begin_step(ls_space *space);
/* The norm of the sum, into a. False: a rank failed; the step is over. */
bool ls__space_norm(ls_space *space, ls__agreement *a);
/* The agreed end of a step, on the host too. skip: nothing is changed; broken: because a rank
 * failed. */
void ls__space_commit(ls_space *space, float scale, bool skip, bool broken);

/* --- space_leaf.c --- */
bool ls__space_wait(ls_space *space);      /* false = a failure, latched */
void ls__space_open_leaf(ls_space *space); /* a micro-batch begins */
void ls__space_close_leaf(ls_space *space);
void ls__space_skip_leaf(ls_space *space); /* an empty one */

/* --- space_buckets.c --- */
/* Buckets of a model's tensors (in order of depth): the deepest one small, since its gradients are
 * complete first, then about 1 MB each (24 between devices); none ends inside a layer. */
void ls__space_buckets(const ls__space_tensor *tensors, int ntensors, bool on_device, int *buckets);

#endif
