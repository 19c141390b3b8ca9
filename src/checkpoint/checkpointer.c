/* The checkpointer: a thread per rank that writes while training goes on. A save costs the training
 * thread one copy into memory that was allocated and touched beforehand, because page faults would
 * cost more than the copy itself. There is one buffer: a save that comes before the last one is
 * written waits for it. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

enum { DEFAULT_TIMEOUT_MS = 300000 };

/* --- the thread --- */

static void prepare(ls__checkpointer *c)
{
    if (!c->options.seldom) ls__map_populate(c->buffer, c->layout.buffer_bytes, NULL);
    if (c->options.rank != 0) return;
    if (ls__checkpoint_clean(c->options.fs, c->folder) != LS_OK)
        ls__log(LS__LOG_WARN, "what an interrupted save left is not removed: %s", ls_error_text());
    if (ls__checkpoint_survey(c) != LS_OK)
        ls__log(LS__LOG_WARN, "old checkpoints are not looked at and will stay: %s",
                ls_error_text());
}

/* Under the mutex. */
static void finish_work(ls__checkpointer *c, ls_status status)
{
    c->status = status;
    ls__free(c->text);
    c->text = status == LS_OK ? NULL : ls__strdup(ls_error_text());
    c->busy = false;
    pthread_cond_broadcast(&c->changed);
}

static void *run(void *user)
{
    ls__checkpointer *c = user;
    prepare(c);
    pthread_mutex_lock(&c->mutex);
    finish_work(c, LS_OK);
    for (;;) {
        while (!c->busy && !c->quit) pthread_cond_wait(&c->changed, &c->mutex);
        if (!c->busy) break;
        pthread_mutex_unlock(&c->mutex);
        ls_status status = ls__checkpoint_write(c);
        pthread_mutex_lock(&c->mutex);
        if (status == LS_OK) c->newest = c->step;
        finish_work(c, status);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* Signals are for the thread that trains. */
static ls_status start(ls__checkpointer *c)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    c->busy = true; /* preparing */
    int error = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0) return LS_OK;
    c->busy = false;
    return ls_fail(LS_ERR_MEMORY, "cannot start the thread that writes checkpoints: %s",
                   strerror(error));
}

/* --- create, destroy --- */

/* The n-th checkpointer of every rank belongs together: they are created in the same order. */
static ls_status number(ls__checkpointer *c)
{
    char key[64];
    snprintf(key, sizeof key, "checkpoint/created/%d", c->options.rank);
    return ls__store_add(c->options.store, key, 1, &c->id);
}

static ls_status fill(ls__checkpointer *c, const ls__checkpointer_options *options)
{
    LS_TRY(ls__path_join(c->folder, "", options->folder));
    if (options->monitor && !(c->monitor = ls__strdup(options->monitor))) return LS_ERR_MEMORY;
    if (options->rank == 0) LS_TRY(ls__folder_make(c->options.fs, c->folder));
    LS_TRY(ls__layout_create(options, &c->layout));
    if (c->layout.buffer_bytes > 0 && !(c->buffer = ls__map(c->layout.buffer_bytes)))
        return LS_ERR_MEMORY;
    if (options->size > 1) LS_TRY(number(c));
    return start(c);
}

static void release(ls__checkpointer *c)
{
    ls__layout_free(&c->layout);
    if (c->buffer) ls__unmap(c->buffer, c->layout.buffer_bytes);
    ls__checkpoint_list_free(c->entries, c->nentries);
    ls__free(c->monitor);
    free(c->trainer);
    ls__free(c->text);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    ls__free(c);
}

ls_status ls__checkpointer_create(const ls__checkpointer_options *options, ls__checkpointer **out)
{
    LS_ASSERT(options->size >= 1 && (options->size == 1 || options->store));
    *out = NULL;
    ls__checkpointer *c = ls__alloc(1, sizeof *c);
    if (!c) return LS_ERR_MEMORY;
    c->options = *options;
    if (!c->options.fs) c->options.fs = &ls__fs_posix;
    if (c->options.timeout_ms == 0) c->options.timeout_ms = DEFAULT_TIMEOUT_MS;
    if (c->options.keep_last == 0) c->options.keep_last = 1;
    c->newest = c->best = -1;
    c->best_metric = NAN;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    ls_status status = fill(c, options);
    if (status != LS_OK) {
        release(c);
        return status;
    }
    *out = c;
    return LS_OK;
}

void ls__checkpointer_destroy(ls__checkpointer *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->mutex);
    c->quit = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    release(c);
}

int64_t ls__checkpointer_bytes(const ls__checkpointer *c)
{
    return (int64_t)c->layout.buffer_bytes;
}

/* --- save, wait --- */

ls_status ls__checkpoint_wait(ls__checkpointer *c, int64_t *newest)
{
    pthread_mutex_lock(&c->mutex);
    while (c->busy) pthread_cond_wait(&c->changed, &c->mutex);
    ls_status status = c->status;
    if (status != LS_OK) ls_fail(status, "%s", c->text ? c->text : "out of memory");
    c->status = LS_OK; /* told */
    if (newest) *newest = c->newest;
    pthread_mutex_unlock(&c->mutex);
    return status;
}

static void copy_in(ls__checkpointer *c, const float *params, float *const *states)
{
    for (int i = 0; i < c->layout.ncopies; i++) {
        const ls__layout_copy *copy = &c->layout.copies[i];
        const float *from = copy->state < 0 ? params : states[copy->state];
        memcpy(c->buffer + copy->at, from + copy->source, 4 * (size_t)copy->count);
    }
}

ls_status ls__checkpoint_save(ls__checkpointer *c, int64_t step, const float *params,
                              float *const *states, const json_t *trainer, double metric)
{
    LS_TRY(ls__checkpoint_wait(c, NULL));
    char *text = NULL;
    if (c->options.rank == 0 && !(text = json_dumps(trainer, JSON_INDENT(2))))
        return ls_fail(LS_ERR_MEMORY, "out of memory: could not write %s", LS__TRAINER_FILE);
    copy_in(c, params, states);
    free(c->trainer);
    c->trainer = text;
    c->step = step;
    c->metric = metric;
    c->saves++;
    pthread_mutex_lock(&c->mutex);
    c->busy = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    return LS_OK;
}

void ls__checkpointer_best(const ls__checkpointer *c, char path[LS_PATH_MAX], double *metric)
{
    char name[64];
    path[0] = '\0';
    *metric = c->best_metric;
    if (c->best < 0) return;
    ls__step_name(c->best, name);
    if (ls__path_join(path, c->folder, name) != LS_OK) path[0] = '\0';
}
