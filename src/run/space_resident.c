/* A space whose training state is a device's: parameters, gradients and the optimizer stay there, and
 * the host has copies only when somebody looks: a checkpoint, the end of the run, a caller who asked
 * for the array. The exchange beside it carries the agreement as ever. */
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_state.h"
#include "run/space_state.h"

const ls__resident_table *ls__space_table(const ls_space *space, const ls__resident_table *offered)
{
    const ls_run *run = space->run;
    ls__rule_step ignored;
    if (!offered || !offered->available(run->comm)) return NULL;
    if (ls__rule_step_of(space->kind, &(ls_slice) { .step = 1 }, &ignored)) return offered;
    if (run->rank == 0)
        ls__log(LS__LOG_WARN,
                "optimizer %s is the program's own and computes on the CPU: parameters and "
                "gradients travel between device and host in every step",
                space->kind->name);
    return NULL;
}

bool ls__space_adds_loosely(const ls_space *space)
{
    return space->table && !ls__run_options(space->run)->deterministic;
}

ls__resident *ls__space_resident(const ls_space *space)
{
    return space->resident;
}

static int64_t blocks_of(int64_t count)
{
    return (count + LS__BLOCK - 1) / LS__BLOCK;
}

static int64_t count_of(const ls__space_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    return count;
}

static bool in_norm(const ls_space *space, int i)
{
    return !space->tensors[i].statistic && !space->rules[i].frozen;
}

/* --- life --- */

static ls_status allocate(ls_space *space)
{
    space->present = ls__alloc((size_t)space->run->micro_batches, sizeof *space->present);
    space->steps = ls__alloc((size_t)space->ntensors, sizeof *space->steps);
    for (int i = 0; i < space->ntensors; i++)
        space->nblocks += blocks_of(count_of(&space->tensors[i]));
    space->norms = ls__alloc((size_t)space->nblocks + 1, sizeof *space->norms);
    return space->present && space->steps && space->norms ? LS_OK : LS_ERR_MEMORY;
}

ls_status ls__space_resident_create(ls_space *space, bool halves)
{
    if (!space->table) return LS_OK;
    ls_run *run = space->run;
    ls_status status = allocate(space);
    ls__segment *segments = ls__alloc((size_t)space->ntensors, sizeof *segments);
    int *buckets = ls__alloc((size_t)space->ntensors, sizeof *buckets);
    if (!segments || !buckets) status = LS_ERR_MEMORY;
    if (status == LS_OK) {
        ls__space_buckets(space->tensors, space->ntensors, true, buckets);
        for (int i = 0; i < space->ntensors; i++)
            segments[i] = (ls__segment) { .offset = space->tensors[i].offset,
                                          .count = count_of(&space->tensors[i]),
                                          .bucket = buckets[i],
                                          .in_norm = in_norm(space, i) };
    }
    /* Everybody creates it, or nobody: it is collective. */
    status = ls__share_failure(run->comm, status, NULL, NULL);
    ls__resident_options options = {
        .comm = run->comm,
        .segments = segments,
        .nsegments = space->ntensors,
        .count = space->count,
        .micro_batches = run->micro_batches,
        .ranges = space->ranges,
        .nranges = space->nranges,
        .nstates = space->nstates,
        .norms = ls__run_options(run)->clip_norm > 0,
        .halves = halves,
        .deterministic = ls__run_options(run)->deterministic,
        .timeout_ms = ls__world_timeout_ms(run->world),
        .root = ls__world_root(run->world),
        .store = ls__world_link_store(run->world),
    };
    if (status == LS_OK) status = space->table->create(&options, &space->resident);
    ls__free(segments);
    ls__free(buckets);
    return status;
}

void ls__space_resident_destroy(ls_space *space)
{
    if (space->resident) space->table->destroy(space->resident);
    ls__free(space->present);
    ls__free(space->steps);
    ls__free(space->norms);
    space->resident = NULL;
    space->present = NULL;
    space->steps = NULL;
    space->norms = NULL;
}

/* --- copies --- */

ls_status ls__space_put(ls_space *space)
{
    if (!space->resident) {
        ls__exchange_round(space->exchange);
        return LS_OK;
    }
    float *const *states = space->run->resumed ? space->states : NULL;
    LS_TRY(space->table->put(space->resident, space->params, states));
    ls__space_release_states(space); /* until a save */
    return LS_OK;
}

static ls_status map_states(ls_space *space)
{
    for (int i = 0; i < space->nstates; i++) {
        if (space->states[i]) continue;
        space->states[i] = ls__map((size_t)space->state_count * sizeof(float));
        if (!space->states[i]) return LS_ERR_MEMORY;
    }
    return LS_OK;
}

/* Copies of the states are looked at by saves alone, which ask for them every time. */
ls_status ls__space_get(ls_space *space, bool states, bool whole)
{
    if (!space->resident || (!space->stale && !states)) return LS_OK;
    if (states) LS_TRY(map_states(space));
    LS_TRY(space->table->get(space->resident, space->params, states ? space->states : NULL, whole));
    space->stale = false;
    return LS_OK;
}

/* --- a step --- */

void ls__space_begin_step(ls_space *space)
{
    const ls_run *run = space->run;
    if (!space->resident) return;
    for (int i = 0; i < run->micro_batches; i++) {
        int64_t begin, end;
        ls__cut_micro_batch(&run->plan.cut, run->step_samples, i, &begin, &end);
        space->present[i] = end > begin;
    }
    space->table->begin(space->resident, space->present);
}

/* In the order of blocks, as the exchange adds them. */
static double total_norm2(const ls_space *space)
{
    const double *norms = space->norms;
    double total = 0;
    for (int i = 0; i < space->ntensors; i++) {
        int64_t n = blocks_of(count_of(&space->tensors[i]));
        for (int64_t b = 0; b < n && in_norm(space, i); b++) total += norms[b];
        norms += n;
    }
    return total;
}

/* Blocks of the others are zero, so adding changes no bit. */
static ls_status share_norms(ls_space *space, bool failed)
{
    ls_run *run = space->run;
    space->norms[space->nblocks] = failed;
    if (run->size == 1) return LS_OK;
    return ls_comm_all_reduce(run->comm, space->norms, space->norms, space->nblocks + 1,
                              LS_DTYPE_F64, LS_REDUCE_SUM);
}

bool ls__space_norm(ls_space *space, ls__agreement *a)
{
    ls_run *run = space->run;
    if (!space->resident || ls__run_options(run)->clip_norm <= 0 || a->weight <= 0) return true;
    int64_t began = ls__spent_begin(run);
    memset(space->norms, 0, ((size_t)space->nblocks + 1) * sizeof *space->norms);
    ls_status status = space->table->norms(space->resident, space->norms);
    if (status != LS_OK) ls__run_fail(run, status);
    status = run->shared ? run->status : share_norms(space, status != LS_OK);
    ls__spent_end(run, LS__SPENT_EXCHANGE, began);
    if (status == LS_OK && space->norms[space->nblocks] == 0) {
        a->norm2 = total_norm2(space);
        return true;
    }
    if (status != LS_OK) ls__run_fail_shared(run, status);
    ls__space_commit(space, 0, true, true);
    space->waited = false;
    ls__run_meet(run);
    return false;
}

static void make_steps(ls_space *space, float scale)
{
    for (int i = 0; i < space->ntensors; i++) {
        const ls__space_tensor *t = &space->tensors[i];
        ls__rule_step *step = &space->steps[i];
        ls_slice slice = ls__space_slice(space, i, scale);
        *step = (ls__rule_step) { .rule = LS__RULE_NONE };
        if (t->statistic)
            *step = (ls__rule_step) { .rule = LS__RULE_AVERAGE,
                                      .scale = space->statistic_scale,
                                      .momentum = (float)t->momentum };
        else if (!space->rules[i].frozen)
            ls__rule_step_of(space->kind, &slice, step);
    }
}

static ls_status commit(ls_space *space, float scale)
{
    make_steps(space, scale);
    space->stale = true;
    LS_TRY(space->table->commit(space->resident, space->steps));
    if (space->run->spent.on) LS_TRY(space->table->wait(space->resident));
    return space->exposed ? ls__space_get(space, false, true) : LS_OK;
}

void ls__space_commit(ls_space *space, float scale, bool skip, bool broken)
{
    if (!space->resident) {
        ls__exchange_commit(space->exchange, scale, skip);
        return;
    }
    if (skip) {
        space->table->drop(space->resident, broken);
    } else {
        /* What fails here is known to all at the next agreement. */
        ls_status status = commit(space, scale);
        if (status != LS_OK) ls__run_fail(space->run, status);
    }
    ls__exchange_commit(space->exchange, 0, true);
}
