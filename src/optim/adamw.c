/* AdamW in one pass over parameters, gradients and both moments: 28 bytes moved per element.
 *
 * Workload: blocks of 4,096 elements whose gradient is still in the first-level cache, or whole
 * spaces at memory speed. What depends on the step alone is computed once per slice, in double, so
 * that cutting a space elsewhere changes no bit. */
#include "optim/vectorized.h"

#include <math.h>
#include <stddef.h>

#include <lockstep/optimizer.h>

#include "optim/optim.h"

static const double EPSILON = 1e-8;

typedef struct adamw_slice {
    float *param, *first, *second; /* (count) */
    const float *grad;             /* (count) */
    int64_t count;
    float scale;        /* of grad */
    float keep;         /* 1 - lr weight_decay */
    float beta1, rest1; /* rest = 1 - beta */
    float beta2, rest2;
    float step_size; /* lr / (1 - beta1^step) */
    float root;      /* 1 / sqrt(1 - beta2^step) */
} adamw_slice;

LS__BODY adamw_body(const adamw_slice *s)
{
    float *restrict param = s->param, *restrict first = s->first, *restrict second = s->second;
    const float *restrict grad = s->grad;
    const adamw_slice c = *s;
    const float epsilon = (float)EPSILON;
    for (int64_t i = 0; i < c.count; i++) {
        float g = c.scale * grad[i];
        float m = c.beta1 * first[i] + c.rest1 * g;
        float v = c.beta2 * second[i] + c.rest2 * g * g;
        first[i] = m;
        second[i] = v;
        param[i] = c.keep * param[i] - c.step_size * m / (sqrtf(v) * c.root + epsilon);
    }
}
LS__VECTORIZED(adamw, const adamw_slice *)

static void adamw_update(const ls_slice *slice)
{
    ls__rule_step n;
    ls__rule_step_of(&ls_adamw, slice, &n);
    adamw(&(adamw_slice) {
        .param = slice->param,
        .first = slice->state[0],
        .second = slice->state[1],
        .grad = slice->grad,
        .count = slice->count,
        .scale = n.scale,
        .keep = n.keep,
        .beta1 = n.beta1,
        .rest1 = n.rest1,
        .beta2 = n.beta2,
        .rest2 = n.rest2,
        .step_size = n.step_size,
        .root = n.root,
    });
}

static const char *const states[] = { "exp_avg", "exp_avg_sq", NULL };

const ls_optimizer ls_adamw = {
    .name = "adamw",
    .states = states,
    .update = adamw_update,
    .scales_grad = true,
    .default_lr = 1e-3,
};
