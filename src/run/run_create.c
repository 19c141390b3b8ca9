/* Creates a run, and what may be said about it before its first step. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_state.h"
#include "run/space_state.h"

static ls_status check_arguments(ls_world *world, ls_dataset *train)
{
    if (!world || !train)
        return ls_fail(LS_ERR_ARG, "ls_run_create: a world and training data are needed");
    if (ls_dataset_length(train) < 1)
        return ls_fail(LS_ERR_DATA, "the training data has no samples");
    return LS_OK;
}

static ls_status check_callbacks(const ls_callback *const *callbacks)
{
    for (int i = 0; callbacks && callbacks[i]; i++) {
        const ls_callback *c = callbacks[i];
        if (!c->state) continue;
        if (!c->name || c->state_size > LS__STATE_MAX)
            return ls_fail(LS_ERR_ARG,
                           "callbacks[%d]: a saved state needs a name and at most 1 MiB", i);
        for (int j = 0; j < i; j++)
            if (callbacks[j]->state && strcmp(callbacks[j]->name, c->name) == 0)
                return ls_fail(LS_ERR_ARG, "two callbacks are named %s", c->name);
    }
    return LS_OK;
}

static ls_status fill(ls_run *run, const ls_run_options *options)
{
    LS_TRY(ls__settings_resolve(ls__world_options(run->world), options, &run->settings));
    LS_TRY(check_callbacks(run->settings.options.callbacks));
    LS_TRY(ls__stopwatch_make(&run->watch));
    run->length = ls_dataset_length(run->train);
    run->started = ls__wall_time();
    run->saved_step = -1;
    run->judged = NAN;
    run->folder.lock = -1;
    return LS_OK;
}

void ls__run_free(ls_run *run)
{
    if (!run) return;
    ls__loader_destroy(run->loader);
    ls__checkpointer_destroy(run->checkpointer);
    if (run->record && ls__record_close(run->record) != LS_OK)
        ls__log(LS__LOG_WARN, "metrics are incomplete: %s", ls_error_text());
    ls__space_destroy(run->space);
    ls__run_plan_free(&run->plan);
    for (int i = 0; i < run->nkept; i++) ls__free(run->kept[i].name);
    ls__free(run->kept);
    ls__free(run->watch.step_ms);
    ls__stragglers_free(&run->stragglers);
    json_decref(run->resumed);
    if (run->rank == 0 && run->folder.path[0]) ls__run_folder_close(&run->folder);
    ls__free(run);
}

ls_status ls_run_create(ls_world *world, ls_dataset *train, const ls_run_options *options,
                        ls_run **out)
{
    *out = NULL;
    LS_TRY(check_arguments(world, train));
    ls_run *run = ls__alloc(1, sizeof *run);
    if (!run) return LS_ERR_MEMORY;
    run->world = world;
    run->comm = ls_world_comm(world);
    run->rank = ls_world_rank(world);
    run->size = ls_world_size(world);
    run->train = train;
    ls__run_memory_begin(run);
    ls_status status = ls__share_failure(run->comm, fill(run, options), NULL, NULL);
    if (status == LS_OK) status = ls__run_open(run);
    if (status == LS_OK) {
        *out = run;
        return LS_OK;
    }
    ls__run_free(run);
    return status;
}

void ls_run_keep(ls_run *run, const char *name, void *data, size_t nbytes)
{
    ls_status status = LS_OK;
    if (!run || run->status != LS_OK) return;
    if (run->phase != LS__RUN_CREATED)
        status = ls_fail(LS_ERR_ARG, "ls_run_keep: comes before the first ls_run_next");
    else if (!name || !data || nbytes == 0 || nbytes > LS__STATE_MAX)
        status = ls_fail(LS_ERR_ARG, "ls_run_keep: a name and 1 byte to 1 MiB of data are needed");
    for (int i = 0; status == LS_OK && i < run->nkept; i++)
        if (strcmp(run->kept[i].name, name) == 0)
            status = ls_fail(LS_ERR_ARG, "ls_run_keep: \"%s\" is kept already", name);
    ls__kept *kept = NULL;
    char *copy = NULL;
    if (status == LS_OK) {
        kept = ls__realloc(run->kept, (size_t)run->nkept + 1, sizeof *kept);
        if (kept) run->kept = kept;
        copy = kept ? ls__strdup(name) : NULL;
        if (!copy) status = LS_ERR_MEMORY;
    }
    if (status == LS_OK)
        run->kept[run->nkept++] = (ls__kept) { copy, data, nbytes };
    else
        ls__run_fail(run, status);
}
