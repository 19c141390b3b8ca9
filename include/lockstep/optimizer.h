/* Optimizers: an update of a slice of the flat parameters, nothing else. Ours (ls_sgd, ls_adamw)
 * are written with what is here. */
#ifndef LOCKSTEP_OPTIMIZER_H
#define LOCKSTEP_OPTIMIZER_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A run of consecutive elements of one tensor. The gradient, grad_scale * grad, is averaged over the
 * global batch and clipped; grad_scale is 1 unless the optimizer says scales_grad. */
typedef struct ls_slice {
    float *param;      /* (count) */
    const float *grad; /* (count) */
    float grad_scale;
    float *const *state; /* one (count) array per name in states; zero before the first step */
    int64_t count;
    int64_t step;        /* 1 at the first update */
    double lr;           /* by the schedule and the tensor's rule */
    double weight_decay; /* by the options and the tensor's rule; 0 for biases and norms unless a
                            rule says otherwise */
    double momentum, beta1, beta2; /* resolved options of the run */
    const void *config;            /* the run's optimizer.config */
    const char *name; /* with shape and rank: the tensor, for whole_tensors optimizers only */
    const int64_t *shape;
    int rank;
} ls_slice;

typedef struct ls_optimizer {
    const char *name;          /* for --optimizer, messages and checkpoints */
    const char *const *states; /* NULL-ended names; each as large as the parameters and saved under
                                  its name; NULL = none */
    bool whole_tensors; /* a slice is one whole tensor; default: cut anywhere, so the update must be
                           elementwise */
    void (*update)(const ls_slice *slice); /* by several threads, on disjoint slices */
    bool scales_grad;  /* the update multiplies by grad_scale itself: saves a pass over memory */
    double default_lr; /* when the run names none; 0 = 1e-3 */
} ls_optimizer;

/* SGD: v = momentum v + g + weight_decay p; p -= lr v. ls_nesterov: p -= lr (g + weight_decay p +
 * momentum v) with the new v (Sutskever et al., ICML 2013, in the form PyTorch uses). State
 * "momentum"; default lr 0.01. */
extern const ls_optimizer ls_sgd, ls_nesterov;
/* AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019): p -= lr
 * weight_decay p; p -= lr m' / (sqrt(v') + 1e-8), m' and v' being the bias-corrected moments. States
 * "exp_avg", "exp_avg_sq"; default lr 1e-3. */
extern const ls_optimizer ls_adamw;

/* For the tensors whose name matches the glob: scales lr, replaces the weight decay, or freezes.
 * The first matching rule counts. */
typedef struct ls_param_rule {
    const char *match;
    double lr_scale;     /* 0 = 1 */
    double weight_decay; /* 0 = the run's; LS_NONE = none */
    bool freeze;
} ls_param_rule;

typedef enum ls_schedule {
    LS_SCHEDULE_CONSTANT,
    LS_SCHEDULE_LINEAR,
    LS_SCHEDULE_COSINE,
    LS_SCHEDULE_STEP
} ls_schedule;

#ifdef __cplusplus
}
#endif
#endif
