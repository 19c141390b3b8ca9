/* The loader: a ring of batch buffers that threads fill in the order of the plan and the training
 * loop empties.
 *
 * A whole batch is the unit of work: one lock is taken to claim it and one to hand it over, so that
 * a batch of a few hundred small samples costs little more than copying them. With several threads
 * several batches are read at once; the reader of batch k never waits for another. Slot k % nslots
 * holds batch k; one slot is always the caller's. For samples that lie in memory the same ring has
 * one slot (two where the caller looks ahead) and no thread, and the caller fills it. */
#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_internal.h"

enum { ALIGNMENT = 64, ERROR_SIZE = 2048, DEPTH_DEFAULT = 3, AHEAD = 4, THREADS_MAX = 256 };

typedef enum slot_state { SLOT_FREE, SLOT_CLAIMED, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    ls_status status;
    char error[ERROR_SIZE];
    int64_t begin, count;
    int64_t *samples; /* (max_count) */
    int64_t *places;  /* (max_count) the samples' indices in the root */
    void **fields;    /* (nfields) */
} slot;

struct ls__loader {
    ls__loader_options options;
    const ls_dataset *dataset, *root; /* root: the dataset that the first is a view of, or itself */
    size_t *nbytes;                   /* (nfields) of one sample */
    uint8_t *memory;
    size_t memory_size;
    slot *slots;
    int nslots;

    pthread_mutex_t lock; /* guards everything below and each slot's state */
    pthread_cond_t work;  /* a slot was freed, or it is time to stop */
    pthread_cond_t ready; /* a slot became ready, or the plan ended */
    pthread_t *threads;
    int nthreads;
    int64_t planned;  /* batches claimed so far */
    bool ended;       /* the plan has no more, or a read failed */
    bool stop;        /* destroyed */
    int64_t consumed; /* batches handed out */
    slot *held;       /* the caller's; a failed one is kept for ever */
    bool peeked;      /* without threads: the next batch is read already */
};

/* --- filling one slot --- */

/* The sample's own stream, the same whichever rank and thread reads it. */
static ls_rng *stream_of(const ls__loader *l, const slot *s, int64_t i, ls_rng *rng)
{
    if (!l->options.training) return NULL;
    int64_t epoch = ls__sampler_epoch(l->dataset->length, s->begin + i);
    ls__rng_init(rng, l->options.seed, "augment", (uint64_t)epoch, (uint64_t)s->samples[i]);
    return rng;
}

static void find_samples(const ls__loader *l, slot *s)
{
    if (l->options.training) {
        ls__sampler_indices(l->options.seed, l->dataset->length, s->begin, s->count, s->samples);
    } else {
        for (int64_t i = 0; i < s->count; i++) s->samples[i] = s->begin + i;
    }
    for (int64_t i = 0; i < s->count; i++) {
        s->places[i] = s->samples[i];
        (void)ls__dataset_resolve(l->dataset, &s->places[i]);
    }
}

static ls_status read_samples(const ls__loader *l, slot *s)
{
    const ls_dataset *root = l->root;
    void *out[LS__DATASET_FIELDS_MAX];
    for (int f = 0; f < root->nfields; f++) out[f] = s->fields[f];
    for (int64_t i = 0; i < s->count; i++) {
        ls_rng rng;
        if (root->prefetch && i + AHEAD < s->count)
            root->prefetch(root->self, s->places[i + AHEAD]);
        LS_TRY(ls_dataset_read(root, s->places[i], stream_of(l, s, i, &rng), out));
        for (int f = 0; f < root->nfields; f++) out[f] = (uint8_t *)out[f] + l->nbytes[f];
    }
    return LS_OK;
}

static void fill(const ls__loader *l, slot *s)
{
    find_samples(l, s);
    s->status = read_samples(l, s);
    if (s->status != LS_OK) {
        strncpy(s->error, ls_error_text(), sizeof s->error - 1);
        s->error[sizeof s->error - 1] = '\0';
    }
}

/* Under the lock: asks the plan for the next batch, to be read into s. */
static bool plan_next(ls__loader *l, slot *s)
{
    if (!l->options.plan(l->options.user, l->planned, &s->begin, &s->count)) {
        l->ended = true;
        return false;
    }
    LS_ASSERT(s->begin >= 0 && s->count >= 0 && s->count <= l->options.max_count);
    LS_ASSERT(l->options.training || s->begin + s->count <= l->dataset->length);
    l->planned++;
    return true;
}

/* --- threads --- */

static void *reader(void *user)
{
    ls__loader *l = user;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && !l->ended) {
        slot *s = &l->slots[l->planned % l->nslots];
        if (s->state != SLOT_FREE) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        if (!plan_next(l, s)) break;
        s->state = SLOT_CLAIMED;
        pthread_mutex_unlock(&l->lock);
        fill(l, s);
        pthread_mutex_lock(&l->lock);
        s->state = SLOT_READY;
        if (s->status != LS_OK) l->ended = true;
        pthread_cond_signal(&l->ready);
    }
    pthread_cond_broadcast(&l->work); /* the plan's end is everybody's */
    pthread_cond_signal(&l->ready);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static ls_status start_threads(ls__loader *l, int nthreads)
{
    l->threads = ls__alloc((size_t)nthreads, sizeof *l->threads);
    if (!l->threads) return LS_ERR_MEMORY;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    while (l->nthreads < nthreads && code == 0) {
        code = pthread_create(&l->threads[l->nthreads], NULL, reader, l);
        if (code == 0) pthread_setname_np(l->threads[l->nthreads++], "ls-loader");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return ls_fail(LS_ERR_MEMORY, "cannot start a thread that reads data: %s", strerror(code));
    return LS_OK;
}

/* --- handing batches out --- */

static ls_status hand_out(const slot *s, ls__loader_batch *out, bool *more)
{
    if (s->status != LS_OK) return ls_fail(s->status, "%s", s->error);
    *out = (ls__loader_batch) {
        .begin = s->begin, .count = s->count, .samples = s->samples, .fields = s->fields
    };
    *more = true;
    return LS_OK;
}

/* Without threads: reads the next batch, if it is not there; false behind the last. */
static bool read_here(ls__loader *l, slot *s)
{
    if (l->peeked) return true;
    if (l->ended || !plan_next(l, s)) return false;
    fill(l, s);
    return true;
}

static ls_status next_here(ls__loader *l, ls__loader_batch *out, bool *more)
{
    slot *s = &l->slots[l->consumed % l->nslots];
    if (l->held && l->held->status != LS_OK) return hand_out(l->held, out, more);
    if (!read_here(l, s)) return LS_OK;
    l->peeked = false;
    l->held = s;
    l->consumed++;
    return hand_out(s, out, more);
}

/* Under the lock: waits for the next batch and holds it; none behind the last. */
static void take_next(ls__loader *l)
{
    slot *s = &l->slots[l->consumed % l->nslots];
    while (s->state != SLOT_READY && !(l->ended && l->planned <= l->consumed))
        pthread_cond_wait(&l->ready, &l->lock);
    if (s->state != SLOT_READY) return;
    l->held = s;
    l->consumed++;
}

ls_status ls__loader_next(ls__loader *l, ls__loader_batch *out, bool *more)
{
    *more = false;
    *out = (ls__loader_batch) { 0 };
    if (l->nthreads == 0) return next_here(l, out, more);
    pthread_mutex_lock(&l->lock);
    if (l->held && l->held->status == LS_OK) {
        l->held->state = SLOT_FREE;
        l->held = NULL;
        pthread_cond_signal(&l->work);
    }
    if (!l->held) take_next(l);
    slot *s = l->held;
    pthread_mutex_unlock(&l->lock);
    return s ? hand_out(s, out, more) : LS_OK;
}

bool ls__loader_peek(ls__loader *l, ls__loader_batch *out)
{
    bool more = false;
    if (l->nslots < 2 || !l->held || l->held->status != LS_OK) return false;
    slot *s = &l->slots[l->consumed % l->nslots];
    if (l->nthreads == 0) {
        if (!read_here(l, s)) return false;
        l->peeked = true;
        return s->status == LS_OK && hand_out(s, out, &more) == LS_OK;
    }
    pthread_mutex_lock(&l->lock);
    bool ready = s->state == SLOT_READY && s->status == LS_OK;
    pthread_mutex_unlock(&l->lock);
    return ready && hand_out(s, out, &more) == LS_OK;
}

/* --- making and ending --- */

static size_t aligned(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* One mapping holds all slots' buffers. In training its pages are taken now, not in a step. */
static ls_status make_slots(ls__loader *l, int nslots)
{
    const ls_dataset *d = l->dataset;
    size_t count = (size_t)l->options.max_count, each = 2 * aligned(count * sizeof(int64_t));
    for (int f = 0; f < d->nfields; f++) {
        size_t nbytes;
        l->nbytes[f] = ls__field_nbytes(&d->fields[f]);
        if (__builtin_mul_overflow(l->nbytes[f], count, &nbytes) || nbytes > SIZE_MAX / 4 - each)
            return ls_fail(LS_ERR_MEMORY, "a batch of %zu samples of %s is beyond any memory",
                           count, d->name);
        each += aligned(nbytes);
    }
    if (__builtin_mul_overflow(each, (size_t)nslots, &l->memory_size))
        return ls_fail(LS_ERR_MEMORY, "%d batches of %zu bytes are beyond any memory", nslots,
                       each);
    l->memory = ls__map(l->memory_size);
    l->slots = ls__alloc((size_t)nslots, sizeof *l->slots);
    if (!l->memory || !l->slots) return LS_ERR_MEMORY;
    if (l->options.training) ls__map_populate(l->memory, l->memory_size, NULL);
    uint8_t *at = l->memory;
    for (int i = 0; i < nslots; i++) {
        slot *s = &l->slots[i];
        s->fields = ls__alloc((size_t)d->nfields, sizeof *s->fields);
        l->nslots = i + 1;
        if (!s->fields) return LS_ERR_MEMORY;
        s->samples = (int64_t *)(void *)at;
        at += aligned(count * sizeof(int64_t));
        s->places = (int64_t *)(void *)at;
        at += aligned(count * sizeof(int64_t));
        for (int f = 0; f < d->nfields; f++) {
            s->fields[f] = at;
            at += aligned(count * l->nbytes[f]);
        }
    }
    return LS_OK;
}

ls_status ls__loader_create(const ls__loader_options *options, ls__loader **out)
{
    *out = NULL;
    const ls_dataset *d = options->dataset;
    int threads = options->threads, depth = options->depth > 0 ? options->depth : DEPTH_DEFAULT;
    if (threads == 0) threads = d->in_memory ? LS_NONE : 1;
    if (threads > THREADS_MAX || threads < LS_NONE)
        return ls_fail(LS_ERR_ARG, "%d loader threads: give 1 to %d", threads, THREADS_MAX);
    if (options->max_count < 1 || !options->plan)
        return ls_fail(LS_ERR_ARG, "a loader needs a plan and batches of at least one sample");
    if (d->length == 0) return ls_fail(LS_ERR_DATA, "%s has no samples", d->name);
    ls__loader *l = ls__alloc(1, sizeof *l);
    if (!l) return LS_ERR_MEMORY;
    l->options = *options;
    l->dataset = d;
    l->root = ls__dataset_resolve(d, &(int64_t) { 0 });
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    ls_status status = LS_OK;
    l->nbytes = ls__alloc((size_t)d->nfields, sizeof *l->nbytes);
    LS_TRY_GOTO(l->nbytes ? LS_OK : LS_ERR_MEMORY, status, failed);
    LS_TRY_GOTO(make_slots(l, threads != LS_NONE ? depth + 1
                              : options->peeks   ? 2
                                                 : 1),
                status, failed);
    if (threads != LS_NONE) LS_TRY_GOTO(start_threads(l, threads), status, failed);
    *out = l;
    return LS_OK;
failed:
    ls__loader_destroy(l);
    return status;
}

void ls__loader_destroy(ls__loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->nthreads; i++) pthread_join(l->threads[i], NULL);
    for (int i = 0; i < l->nslots; i++) ls__free(l->slots[i].fields);
    if (l->memory) ls__unmap(l->memory, l->memory_size);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    ls__free(l->slots);
    ls__free(l->nbytes);
    ls__free(l->threads);
    ls__free(l);
}

int64_t ls__loader_bytes(const ls__loader *loader)
{
    return (int64_t)loader->memory_size;
}
