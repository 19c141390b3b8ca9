/* Makes a space: tensors become segments of the exchange, this rank's ranges get the optimizer's
 * states, and the same tensors and ranges are what checkpoints are written by. */
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_state.h"
#include "run/space_state.h"

enum { STATES_MAX = 8 };

static int64_t tensor_count(const ls__space_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++) count *= tensor->shape[d];
    return count;
}

static ls_status check_tensors(const ls__space_description *d)
{
    int64_t end = 0;
    if (d->ntensors < 1) return ls_fail(LS_ERR_ARG, "ls_space_create: there are no parameters");
    for (int i = 0; i < d->ntensors; i++) {
        const ls__space_tensor *t = &d->tensors[i];
        if (!t->name || !t->name[0])
            return ls_fail(LS_ERR_ARG, "ls_space_create: parameter %d has no name", i);
        if (tensor_count(t) < 1)
            return ls_fail(LS_ERR_ARG, "ls_space_create: parameter %s has no elements", t->name);
        for (int j = 0; j < i; j++)
            if (strcmp(t->name, d->tensors[j].name) == 0)
                return ls_fail(LS_ERR_ARG, "ls_space_create: two parameters are named %s", t->name);
        LS_ASSERT(t->offset >= end);
        end = t->offset + tensor_count(t);
    }
    LS_ASSERT(end <= d->count);
    return LS_OK;
}

static ls_status check_states(const ls_space *space)
{
    if (space->nstates <= STATES_MAX) return LS_OK;
    return ls_fail(LS_ERR_ARG, "optimizer %s: %d states; at most %d", space->kind->name,
                   space->nstates, STATES_MAX);
}

static ls_status copy_tensors(ls_space *space, const ls__space_description *d)
{
    const ls_run_options *options = ls__run_options(space->run);
    size_t n = (size_t)d->ntensors;
    space->tensors = ls__alloc(n, sizeof *space->tensors);
    space->rules = ls__alloc(n, sizeof *space->rules);
    space->saved = ls__alloc(n, sizeof *space->saved);
    if (!space->tensors || !space->rules || !space->saved) return LS_ERR_MEMORY;
    for (int i = 0; i < d->ntensors; i++) {
        ls__space_tensor *t = &space->tensors[i];
        *t = d->tensors[i];
        t->name = ls__strdup(d->tensors[i].name);
        if (!t->name) return LS_ERR_MEMORY;
        space->ntensors = i + 1;
        ls__param_rules(options->optimizer.rules, options->optimizer.weight_decay, t->name,
                        t->decays, &space->rules[i]);
        ls__saved_tensor *s = &space->saved[i];
        *s = (ls__saved_tensor) {
            .name = t->name, .rank = t->rank, .offset = t->offset, .has_state = !t->statistic
        };
        memcpy(s->shape, t->shape, sizeof s->shape);
    }
    return LS_OK;
}

/* What the machine's ranks will hold between them, besides activations and data. Refused here, in
 * words, rather than by a signal in the middle of the run. */
static ls_status check_memory(const ls_space *space, int64_t gradient_bytes)
{
    const ls_run *run = space->run;
    double unit = 1 << 20, params = (double)space->count * sizeof(float) / unit;
    double states = params * space->nstates; /* to save from, when a device has them */
    double gradients = (double)gradient_bytes / unit;
    double copies = params * (1 + space->nstates); /* of the checkpoints' writers */
    double sum = params + states + gradients + copies;
    double limit = (double)ls__world_cpus(run->world)->memory / unit;
    if (space->exchange) /* else a first guess */
        ls__log(LS__LOG_DEBUG,
                "memory of all ranks: parameters %.1f MiB, optimizer %.1f, gradients %.1f, copies "
                "for checkpoints %.1f",
                params, states, gradients, copies);
    if (limit <= 0 || sum < limit) return LS_OK;
    return ls_fail(LS_ERR_MEMORY,
                   "this run needs %.0f MiB for parameters, gradients and optimizer, and %.0f are "
                   "allowed here; use fewer --micro-batches per device or a smaller model",
                   sum, limit);
}

static ls_status make_exchange(ls_space *space, bool halves, ls__parallel_fn *parallel)
{
    ls_run *run = space->run;
    const ls_run_options *options = ls__run_options(run);
    size_t n = (size_t)space->ntensors;
    /* One gradient a rank at least: before anything is touched, which takes long. */
    if (!space->table)
        LS_TRY(check_memory(space, space->count * (int64_t)sizeof(float) * run->size));
    ls__segment *segments = ls__alloc(n, sizeof *segments);
    int *buckets = ls__alloc(n, sizeof *buckets);
    ls_status status = segments && buckets ? LS_OK : LS_ERR_MEMORY;
    if (status != LS_OK) goto done;
    ls__space_buckets(space->tensors, space->ntensors, space->table != NULL, buckets);
    for (int i = 0; i < space->ntensors; i++)
        segments[i] =
            (ls__segment) { .offset = space->tensors[i].offset,
                            .count = tensor_count(&space->tensors[i]),
                            .bucket = buckets[i],
                            .in_norm = !space->tensors[i].statistic && !space->rules[i].frozen };
    ls__exchange_options x = {
        .segments = segments,
        .nsegments = space->ntensors,
        .count = space->count,
        .micro_batches = run->micro_batches,
        .norms = options->clip_norm > 0 && !space->table,
        .halves = halves && !space->table,
        .on_device = space->table != NULL,
        .whole_segments = space->kind->whole_tensors,
        .update = ls__space_update,
        .user = space,
        .parallel = space->kind->whole_tensors ? NULL : parallel,
    };
    LS_TRY_GOTO(ls__exchange_create(run->comm, &x, &space->exchange), status, done);
    space->params = ls__exchange_params(space->exchange);
done:
    ls__free(segments);
    ls__free(buckets);
    return status;
}

static ls_status make_states(ls_space *space, ls__parallel_fn *parallel)
{
    space->nranges = ls__exchange_owned(space->exchange, &space->ranges);
    size_t n = (size_t)space->nranges;
    space->state_at = ls__alloc(n, sizeof *space->state_at);
    space->saved_ranges = ls__alloc(n, sizeof *space->saved_ranges);
    space->states = ls__alloc((size_t)space->nstates, sizeof *space->states);
    if (!space->state_at || !space->saved_ranges || !space->states) return LS_ERR_MEMORY;
    int64_t largest = 0;
    for (int i = 0; i < space->nranges; i++) {
        const ls__range *r = &space->ranges[i];
        space->saved_ranges[i] = (ls__saved_range) { r->segment, r->offset, r->count };
        space->state_at[i] = space->state_count;
        space->state_count += r->count;
        if (r->count > largest) largest = r->count;
    }
    for (int i = 0; i < space->nstates; i++) {
        space->states[i] = ls__map((size_t)space->state_count * sizeof(float));
        if (!space->states[i]) return LS_ERR_MEMORY;
        if (space->table) continue; /* only to load and save */
        ls__map_populate(space->states[i], (size_t)space->state_count * sizeof(float), parallel);
    }
    if (!space->kind->whole_tensors) return LS_OK;
    space->whole = ls__alloc((size_t)(largest ? largest : 1), sizeof(float));
    return space->whole ? LS_OK : LS_ERR_MEMORY;
}

ls_status ls__space_create_described(ls_run *run, const ls__space_description *description,
                                     ls_space **out)
{
    *out = NULL;
    if (run->space)
        return ls_fail(LS_ERR_ARG, "ls_space_create: the run has a space already; one per run");
    if (run->phase != LS__RUN_CREATED)
        return ls_fail(LS_ERR_ARG, "ls_space_create: comes before the first ls_run_next");
    LS_TRY(check_tensors(description));
    ls_space *space = ls__alloc(1, sizeof *space);
    if (!space) return LS_ERR_MEMORY;
    space->run = run;
    space->count = description->count;
    space->kind = ls__run_options(run)->optimizer.kind;
    space->init = description->init;
    space->user = description->user;
    space->waited = true;
    space->nstates = ls__optimizer_states(space->kind);
    space->table = ls__space_table(space, description->resident);
    ls_status status;
    LS_TRY_GOTO(check_states(space), status, failed);
    LS_TRY_GOTO(copy_tensors(space, description), status, failed);
    LS_TRY_GOTO(make_exchange(space, description->halves, description->parallel), status, failed);
    LS_TRY_GOTO(make_states(space, description->parallel), status, failed);
    LS_TRY_GOTO(ls__space_resident_create(space, description->halves), status, failed);
    LS_TRY_GOTO(check_memory(space, ls__exchange_gradient_bytes(space->exchange)), status, failed);
    run->space = *out = space;
    return LS_OK;
failed:
    ls__space_destroy(space);
    return status;
}

static bool ends_with_bias(const char *name)
{
    size_t n = strlen(name);
    return n >= 4 && strcmp(name + n - 4, "bias") == 0;
}

ls_status ls__space_create_by_hand(ls_run *run, const ls_param_spec *params, int nparams,
                                   float *values, ls_space **out)
{
    *out = NULL;
    if (nparams < 1 || !params)
        return ls_fail(LS_ERR_ARG, "ls_space_create: params and nparams, or a model, are needed");
    ls__space_tensor *tensors = ls__alloc((size_t)nparams, sizeof *tensors);
    if (!tensors) return LS_ERR_MEMORY;
    ls__space_description d = { .tensors = tensors, .ntensors = nparams };
    for (int i = 0; i < nparams; i++) {
        tensors[i] =
            (ls__space_tensor) { .name = params[i].name, .rank = 1, .offset = d.count, .depth = i };
        tensors[i].shape[0] = params[i].count;
        tensors[i].decays = params[i].name && !ends_with_bias(params[i].name);
        if (params[i].count > 0) d.count += params[i].count;
    }
    ls_status status = ls__space_create_described(run, &d, out);
    ls__free(tensors);
    if (status != LS_OK) return status;
    (*out)->by_hand = true;
    (*out)->values = values;
    (*out)->grads = ls__map((size_t)d.count * sizeof(float));
    return (*out)->grads ? LS_OK : LS_ERR_MEMORY; /* freed with the run */
}

void ls__space_release_states(ls_space *space)
{
    for (int i = 0; space->states && i < space->nstates; i++) {
        ls__unmap(space->states[i], (size_t)space->state_count * sizeof(float));
        space->states[i] = NULL;
    }
}

void ls__space_destroy(ls_space *space)
{
    if (!space) return;
    ls__space_resident_destroy(space);
    ls__exchange_destroy(space->exchange);
    ls__space_release_states(space);
    for (int i = 0; i < space->ntensors; i++) ls__free((char *)(uintptr_t)space->tensors[i].name);
    ls__unmap(space->grads, (size_t)space->count * sizeof(float));
    ls__free(space->states);
    ls__free(space->state_at);
    ls__free(space->saved_ranges);
    ls__free(space->saved);
    ls__free(space->rules);
    ls__free(space->tensors);
    ls__free(space->whole);
    ls__free(space);
}

/* --- first values, last values --- */

void ls__space_init(ls_space *space, uint64_t seed)
{
    if (space->init)
        space->init(space->user, seed, space->params);
    else if (space->values)
        memcpy(space->params, space->values, (size_t)space->count * sizeof(float));
}

void ls__space_copy_out(ls_space *space)
{
    if (space->values) memcpy(space->values, space->params, (size_t)space->count * sizeof(float));
}

bool ls__space_finite(const ls_space *space, int *tensor)
{
    for (int i = 0; i < space->nranges; i++) {
        const float *p = space->params + space->ranges[i].offset;
        /* x - x is 0 for every finite x; the sum stays 0 unless one is not. */
        float sum = 0;
        for (int64_t j = 0; j < space->ranges[i].count; j++) sum += p[j] - p[j];
        *tensor = space->ranges[i].segment;
        if (sum != 0 || isnan(sum)) return false;
    }
    return true;
}

uint64_t ls__space_xxh3(const ls_space *space, bool *ok)
{
    int n = space->ntensors;
    int *order = ls__alloc((size_t)n, sizeof *order);
    XXH3_state_t *state = XXH3_createState();
    uint64_t hash = 0;
    *ok = order && state;
    if (!*ok) goto done;
    for (int i = 0; i < n; i++) { /* by insertion: a model has hundreds of tensors, once a run */
        int j = i;
        for (; j > 0 && strcmp(space->tensors[order[j - 1]].name, space->tensors[i].name) > 0; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    XXH3_64bits_reset(state);
    for (int i = 0; i < n; i++) {
        const ls__space_tensor *t = &space->tensors[order[i]];
        if (!t->statistic)
            XXH3_64bits_update(state, space->params + t->offset,
                               (size_t)tensor_count(t) * sizeof(float));
    }
    hash = XXH3_64bits_digest(state);
done:
    XXH3_freeState(state);
    ls__free(order);
    return hash;
}
