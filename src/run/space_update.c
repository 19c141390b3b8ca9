/* The update of a piece of the space, called by the exchange with the sum of all gradients. Mean and
 * clipping are one factor. Optimizers that apply it themselves, as ours do, read the sum where it
 * is; for others it is applied block by block in a buffer on the stack, which keeps the memory idle
 * meanwhile: AdamW at 124 million parameters is a fifth slower that way. */
#include <lockstep/optimizer.h>

#include "run/space_state.h"

static void average(const ls__space_tensor *tensor, int64_t count, float *param, const float *sum,
                    float scale)
{
    float momentum = (float)tensor->momentum;
    for (int64_t i = 0; i < count; i++) param[i] += momentum * (sum[i] * scale - param[i]);
}

/* Where the optimizer's states of [offset, ...) begin, in each state's array. */
static int64_t state_begin(const ls_space *space, int64_t offset)
{
    int low = 0, high = space->nranges - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (space->ranges[middle].offset <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    return space->state_at[low] + (offset - space->ranges[low].offset);
}

enum { STATES_MAX = 8 };

ls_slice ls__space_slice(const ls_space *space, int segment, float scale)
{
    const ls__param_settings *rule = &space->rules[segment];
    const ls_run_options *options = ls__run_options(space->run);
    return (ls_slice) {
        .grad_scale = scale,
        .step = space->updates + 1,
        .lr = space->lr * rule->lr_scale,
        .weight_decay = rule->weight_decay,
        .momentum = options->optimizer.momentum,
        .beta1 = options->optimizer.beta1,
        .beta2 = options->optimizer.beta2,
        .config = options->optimizer.config,
    };
}

static void update_piece(const ls_space *space, int segment, int64_t offset, int64_t count,
                         float *param, const float *grad, float scale)
{
    const ls__space_tensor *tensor = &space->tensors[segment];
    float *state[STATES_MAX];
    int64_t begin = space->nstates ? state_begin(space, offset) : 0;
    for (int i = 0; i < space->nstates; i++) state[i] = space->states[i] + begin;
    bool whole = space->kind->whole_tensors;
    ls_slice slice = ls__space_slice(space, segment, scale);
    slice.param = param;
    slice.grad = grad;
    slice.state = state;
    slice.count = count;
    slice.name = whole ? tensor->name : NULL;
    slice.shape = whole ? tensor->shape : NULL;
    slice.rank = whole ? tensor->rank : 0;
    space->kind->update(&slice);
}

static void scaled(float *out, const float *in, int64_t count, float scale)
{
    for (int64_t i = 0; i < count; i++) out[i] = scale * in[i];
}

void ls__space_update(void *user, int segment, int64_t offset, int64_t count, float *param,
                      const float *grad, float scale)
{
    const ls_space *space = user;
    if (space->tensors[segment].statistic) {
        average(&space->tensors[segment], count, param, grad, space->statistic_scale);
        return;
    }
    if (space->rules[segment].frozen) return;
    if (space->kind->scales_grad) {
        update_piece(space, segment, offset, count, param, grad, scale);
        return;
    }
    float small[LS__BLOCK];
    float *block = space->whole ? space->whole : small; /* of whole tensors: one at a time */
    int64_t most = space->whole ? count : LS__BLOCK;
    for (int64_t at = 0; at < count; at += most) {
        int64_t n = count - at < most ? count - at : most;
        scaled(block, grad + at, n, scale);
        update_piece(space, segment, offset + at, n, param + at, block, 1);
    }
}
