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

/* --- space_leaf.c --- */
bool ls__space_wait(ls_space *space);      /* false = a failure, latched */
void ls__space_open_leaf(ls_space *space); /* a micro-batch begins */
void ls__space_close_leaf(ls_space *space);
void ls__space_skip_leaf(ls_space *space); /* an empty one */

/* --- space_buckets.c --- */
/* Buckets of a model's tensors (in order of depth): the deepest one small, since its gradients are
 * complete first, then about 1 MB each; none ends inside a layer. */
void ls__space_buckets(const ls__space_tensor *tensors, int ntensors, int *buckets);

#endif
