/* SGD with momentum, and its Nesterov form, on slices of any length.
 *
 * Workload: blocks of 4,096 elements still in the first-level cache, or whole spaces at memory
 * speed. The state is the velocity; it begins as zero, so that the first step needs no case of its
 * own. */
#include "optim/vectorized.h"

#include <stddef.h>

#include <lockstep/optimizer.h>

LS__BODY plain_body(const ls_slice *s)
{
    float *restrict param = s->param;
    const float *restrict grad = s->grad;
    const float lr = (float)s->lr, decay = (float)s->weight_decay, scale = s->grad_scale;
    for (int64_t i = 0; i < s->count; i++) {
        float p = param[i];
        param[i] = p - lr * (scale * grad[i] + decay * p);
    }
}
LS__VECTORIZED(plain, const ls_slice *)

LS__BODY momentum_body(const ls_slice *s)
{
    float *restrict param = s->param, *restrict velocity = s->state[0];
    const float *restrict grad = s->grad;
    const float lr = (float)s->lr, decay = (float)s->weight_decay, momentum = (float)s->momentum;
    const float scale = s->grad_scale;
    for (int64_t i = 0; i < s->count; i++) {
        float p = param[i];
        float v = momentum * velocity[i] + (scale * grad[i] + decay * p);
        velocity[i] = v;
        param[i] = p - lr * v;
    }
}
LS__VECTORIZED(momentum, const ls_slice *)

LS__BODY nesterov_body(const ls_slice *s)
{
    float *restrict param = s->param, *restrict velocity = s->state[0];
    const float *restrict grad = s->grad;
    const float lr = (float)s->lr, decay = (float)s->weight_decay, momentum = (float)s->momentum;
    const float scale = s->grad_scale;
    for (int64_t i = 0; i < s->count; i++) {
        float p = param[i];
        float g = scale * grad[i] + decay * p;
        float v = momentum * velocity[i] + g;
        velocity[i] = v;
        param[i] = p - lr * (g + momentum * v);
    }
}
LS__VECTORIZED(nesterov, const ls_slice *)

/* Without momentum the velocity is not touched: half the memory traffic. */
static void sgd_update(const ls_slice *slice)
{
    if (slice->momentum > 0)
        momentum(slice);
    else
        plain(slice);
}

static void nesterov_update(const ls_slice *slice)
{
    if (slice->momentum > 0)
        nesterov(slice);
    else
        plain(slice);
}

static const char *const states[] = { "momentum", NULL };

const ls_optimizer ls_sgd = {
    .name = "sgd",
    .states = states,
    .update = sgd_update,
    .scales_grad = true,
    .default_lr = 0.01,
};

const ls_optimizer ls_nesterov = {
    .name = "nesterov",
    .states = states,
    .update = nesterov_update,
    .scales_grad = true,
    .default_lr = 0.01,
};
