/* The leaf of a micro-batch: from the buffer its gradients go into to its place in the tree. A
 * leaf is closed when the next one begins or the step ends, not when its gradients are there:
 * what is logged in between still belongs to it. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "run/run_state.h"
#include "run/space_state.h"

bool ls__space_wait(ls_space *space)
{
    if (space->waited) return true;
    int64_t began = ls__spent_begin(space->run);
    ls_status status = ls__exchange_wait(space->exchange);
    ls__spent_end(space->run, LS__SPENT_EXCHANGE, began);
    space->waited = status == LS_OK;
    if (status != LS_OK) ls__run_fail(space->run, status);
    return space->waited;
}

void ls__space_open_leaf(ls_space *space)
{
    space->leaf = ls__exchange_leaf(space->exchange);
    space->added = false;
    if (space->by_hand) memset(space->grads, 0, (size_t)space->count * sizeof(float));
}

/* The device's part of it. After a failure the leaves left over are only gone through. */
static void leaf_done(ls_space *space, bool added)
{
    if (!space->resident || space->run->status != LS_OK) return;
    ls_status status = space->table->leaf_done(space->resident, added);
    if (status != LS_OK) ls__run_fail(space->run, status);
}

void ls__space_close_leaf(ls_space *space)
{
    int64_t began = ls__spent_begin(space->run);
    leaf_done(space, space->added);
    if (space->added) ls__exchange_weight(space->exchange, space->leaf_weight);
    ls__exchange_leaf_done(space->exchange, space->added, space->added ? space->leaf_factor : 1);
    ls__spent_end(space->run, LS__SPENT_EXCHANGE, began);
    space->leaf = NULL;
}

void ls__space_skip_leaf(ls_space *space)
{
    leaf_done(space, false);
    ls__exchange_leaf(space->exchange);
    ls__exchange_leaf_done(space->exchange, false, 1);
}

/* Whether gradients may be handed in now; latches why not. */
static bool expects(ls_space *space, double weight, const char *caller)
{
    ls_status status = LS_OK;
    if (!space->leaf)
        status = ls_fail(
            LS_ERR_ARG, "%s: no micro-batch is under way (ls_run_micro_batch comes first)", caller);
    else if (space->added)
        status =
            ls_fail(LS_ERR_ARG, "%s: this micro-batch's gradients have been added already", caller);
    else if (!isfinite(weight) || weight < 0)
        status =
            ls_fail(LS_ERR_ARG, "%s: weight %g: must be at least 0 and finite", caller, weight);
    if (status != LS_OK) ls__run_fail(space->run, status);
    return status == LS_OK;
}

void ls_space_add(ls_space *space, const float *grads, double weight)
{
    if (!space || ls__run_over(space->run) || !expects(space, weight, "ls_space_add")) return;
    if (!grads) grads = space->grads;
    space->added = weight > 0;
    space->leaf_weight = weight;
    space->leaf_factor = (float)weight;
    if (!space->resident) {
        memcpy(space->leaf, grads, (size_t)space->count * sizeof(float));
    } else if (space->added) {
        ls_status status = space->table->set(space->resident, grads, space->leaf_factor);
        if (status != LS_OK) ls__run_fail(space->run, status);
    }
}

float *ls__space_leaf(ls_space *space)
{
    return space->leaf;
}

void ls__space_leaf_done(ls_space *space, double weight)
{
    if (!expects(space, weight, "ls_model_gradients")) return;
    space->added = true;
    space->leaf_weight = weight;
    space->leaf_factor = 1;
}

/* Of a device's parameters there is a copy from here on after every step. */
float *ls_space_values(ls_space *space)
{
    if (space->resident && !space->exposed) {
        space->exposed = true;
        ls_status status = ls__space_get(space, false, true);
        if (status != LS_OK) ls__run_fail(space->run, status);
    }
    return space->values ? space->values : space->params;
}

float *ls_space_grads(ls_space *space)
{
    return space->grads;
}

int64_t ls_space_count(const ls_space *space)
{
    return space->count;
}

const float *ls__space_params(ls_space *space)
{
    ls__space_wait(space);
    return space->params;
}

const uint16_t *ls__space_halves(const ls_space *space)
{
    return ls__exchange_halves(space->exchange);
}

ls_run *ls__space_run(const ls_space *space)
{
    return space->run;
}
