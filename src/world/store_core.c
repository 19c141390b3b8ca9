/* The store's contents. One chained hash table; waiters hang at the entry they wait for, so a reply
 * costs no search. Expected: some thousand names, tens of waiters. */
#include "world/store_core.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"

enum {
    BUCKETS = 1024,
    ENTRIES_MAX = 1 << 18,
    RANKS_MAX = 1 << 20,
    BYTES_MAX = 1 << 28, /* of all values together */
};

typedef enum kind { EMPTY, VALUE, COUNTER, BARRIER } kind;

typedef struct waiter {
    struct waiter *next;
    void *client;
    ls__reply_fn *reply;
    uint32_t id;
} waiter;

typedef struct entry {
    struct entry *next;
    kind kind;
    char *value; /* VALUE: (nbytes) */
    size_t nbytes;
    int64_t counter;
    uint8_t *came; /* BARRIER: (room) which ranks have come */
    int room, ncame, count;
    bool broken; /* BARRIER: somebody's time was over */
    waiter *waiters;
    size_t key_nbytes;
    char key[];
} entry;

struct ls__core {
    pthread_mutex_t lock;
    entry *buckets[BUCKETS];
    int nentries;
    size_t nbytes;
    char **hosts; /* (nhosts) of ranks, for texts; NULL = not known */
    int nhosts;
};

ls_status ls__core_create(ls__core **out)
{
    *out = NULL;
    ls__core *core = ls__alloc(1, sizeof *core);
    if (!core) return LS_ERR_MEMORY;
    pthread_mutex_init(&core->lock, NULL);
    *out = core;
    return LS_OK;
}

static void entry_free(entry *e)
{
    for (waiter *w = e->waiters; w;) {
        waiter *next = w->next;
        ls__free(w);
        w = next;
    }
    ls__free(e->value);
    ls__free(e->came);
    ls__free(e);
}

void ls__core_destroy(ls__core *core)
{
    if (!core) return;
    for (int i = 0; i < BUCKETS; i++) {
        for (entry *e = core->buckets[i]; e;) {
            entry *next = e->next;
            entry_free(e);
            e = next;
        }
    }
    for (int r = 0; r < core->nhosts; r++) ls__free(core->hosts[r]);
    ls__free(core->hosts);
    pthread_mutex_destroy(&core->lock);
    ls__free(core);
}

/* Where the entry of this name hangs, or would. */
static entry **place_of(ls__core *core, const ls__frame *request)
{
    XXH64_hash_t hash = XXH3_64bits(request->key, request->key_nbytes);
    entry **link = &core->buckets[hash % BUCKETS];
    while (*link && ((*link)->key_nbytes != request->key_nbytes ||
                     memcmp((*link)->key, request->key, request->key_nbytes) != 0))
        link = &(*link)->next;
    return link;
}

/* The entry of this name, made when it is not there; NULL after ls_fail. */
static entry *entry_of(ls__core *core, const ls__frame *request)
{
    entry **link = place_of(core, request);
    if (*link) return *link;
    if (core->nentries >= ENTRIES_MAX) {
        ls_fail(LS_ERR_MEMORY, "the store holds %d names, which is its limit", ENTRIES_MAX);
        return NULL;
    }
    entry *e = ls__alloc(1, sizeof *e + request->key_nbytes + 1);
    if (!e) return NULL;
    e->key_nbytes = request->key_nbytes;
    memcpy(e->key, request->key, request->key_nbytes);
    *link = e;
    core->nentries++;
    return e;
}

static void reply_ok(waiter *w, const ls__frame *content)
{
    ls__frame frame = *content;
    frame.type = LS__FRAME_REPLY;
    frame.status = LS_OK;
    frame.id = w->id;
    w->reply(w->client, &frame);
}

static void reply_error(waiter *w, ls_status status, const char *text)
{
    w->reply(w->client, &(ls__frame) { .type = LS__FRAME_REPLY,
                                       .status = status,
                                       .id = w->id,
                                       .value = text,
                                       .nbytes = strlen(text) });
}

/* Answers everybody who waits at e. status LS_OK: with content, else with text. */
static void release(entry *e, ls_status status, const ls__frame *content, const char *text)
{
    waiter *w = e->waiters;
    e->waiters = NULL;
    while (w) {
        waiter *next = w->next;
        if (status == LS_OK)
            reply_ok(w, content);
        else
            reply_error(w, status, text);
        ls__free(w);
        w = next;
    }
}

static ls_status enqueue(entry *e, const waiter *who)
{
    waiter *w = ls__alloc(1, sizeof *w);
    if (!w) return LS_ERR_MEMORY;
    *w = *who;
    w->next = e->waiters;
    e->waiters = w;
    return LS_OK;
}

static ls_status become(entry *e, kind wanted)
{
    static const char *const names[] = { "empty", "a value", "a counter", "a barrier" };
    if (e->kind == EMPTY) {
        e->kind = wanted;
        if (wanted != VALUE)
            release(e, LS_ERR_ARG, NULL, "a get waits in the store for a name that is no value");
    }
    if (e->kind == wanted) return LS_OK;
    return ls_fail(LS_ERR_ARG, "the store's \"%s\" is %s, not %s", e->key, names[e->kind],
                   names[wanted]);
}

static ls_status set(ls__core *core, entry *e, waiter *who, const ls__frame *request)
{
    LS_TRY(become(e, VALUE));
    if (core->nbytes - e->nbytes + request->nbytes > BYTES_MAX)
        return ls_fail(LS_ERR_MEMORY, "the store holds %d bytes, which is its limit", BYTES_MAX);
    char *value = ls__alloc(request->nbytes + 1, 1);
    if (!value) return LS_ERR_MEMORY;
    if (request->nbytes > 0) memcpy(value, request->value, request->nbytes);
    core->nbytes += request->nbytes - e->nbytes;
    ls__free(e->value);
    e->value = value;
    e->nbytes = request->nbytes;
    reply_ok(who, &(ls__frame) { 0 });
    release(e, LS_OK, &(ls__frame) { .value = value, .nbytes = e->nbytes }, NULL);
    return LS_OK;
}

static ls_status get(entry *e, waiter *who)
{
    if (e->kind == EMPTY) return enqueue(e, who);
    LS_TRY(become(e, VALUE));
    reply_ok(who, &(ls__frame) { .value = e->value, .nbytes = e->nbytes });
    return LS_OK;
}

static ls_status add(entry *e, waiter *who, int64_t amount)
{
    LS_TRY(become(e, COUNTER));
    if (__builtin_add_overflow(e->counter, amount, &e->counter))
        return ls_fail(LS_ERR_ARG, "the store's counter \"%s\" overflows", e->key);
    reply_ok(who, &(ls__frame) { .number = e->counter });
    return LS_OK;
}

void ls__name_missing_at(const uint8_t *came, int size, char *const *hosts, int nhosts, char *out,
                         size_t limit)
{
    int missing = 0, named = 0;
    for (int r = 0; r < size; r++) missing += !came[r];
    size_t used = 0;
    out[0] = '\0';
    for (int r = 0; r < size && named < 16; r++) {
        if (came[r]) continue;
        named++;
        const char *before = named == 1 ? "" : named == missing ? " and " : ", ";
        const char *host = r < nhosts ? hosts[r] : NULL;
        int n = host ? snprintf(out + used, limit - used, "%s%d (host %.60s)", before, r, host)
                     : snprintf(out + used, limit - used, "%s%d", before, r);
        if (n < 0 || (size_t)n >= limit - used) return;
        used += (size_t)n;
    }
    if (missing > named) snprintf(out + used, limit - used, " and %d more", missing - named);
}

void ls__name_missing(const uint8_t *came, int size, char *out, size_t limit)
{
    ls__name_missing_at(came, size, NULL, 0, out, limit);
}

ls_status ls__core_name_host(ls__core *core, int rank, const char *host)
{
    ls_status status = LS_OK;
    char *copy = ls__strdup(host);
    if (!copy) return LS_ERR_MEMORY;
    pthread_mutex_lock(&core->lock);
    if (rank >= core->nhosts) {
        char **hosts = ls__realloc(core->hosts, (size_t)rank + 1, sizeof *hosts);
        if (hosts) {
            for (int r = core->nhosts; r <= rank; r++) hosts[r] = NULL;
            core->hosts = hosts;
            core->nhosts = rank + 1;
        } else {
            status = LS_ERR_MEMORY;
        }
    }
    if (status == LS_OK) {
        ls__free(core->hosts[rank]);
        core->hosts[rank] = copy;
    } else {
        ls__free(copy);
    }
    pthread_mutex_unlock(&core->lock);
    return status;
}

static void barrier_broken_text(const ls__core *core, const entry *e, char *out, size_t limit)
{
    int n = snprintf(out, limit, "barrier \"%s\" timed out: %d of %d ranks came", e->key, e->ncame,
                     e->count);
    if (e->room > e->count || n < 0 || (size_t)n >= limit) return; /* a subset: who is not known */
    char missing[600];
    ls__name_missing_at(e->came, e->count, core->hosts, core->nhosts, missing, sizeof missing);
    bool one = e->count - e->ncame == 1;
    snprintf(out + n, limit - (size_t)n, "; rank%s %s did not", one ? "" : "s", missing);
}

static ls_status barrier(const ls__core *core, entry *e, waiter *who, int rank, int64_t count)
{
    LS_TRY(become(e, BARRIER));
    if (count < 1 || count > RANKS_MAX || rank < 0 || rank >= RANKS_MAX)
        return ls_fail(LS_ERR_ARG, "barrier \"%s\" of %lld ranks", e->key, (long long)count);
    if (e->count != 0 && e->count != count)
        return ls_fail(LS_ERR_MISMATCH,
                       "barrier \"%s\": rank %d waits for %lld ranks, others for %d", e->key, rank,
                       (long long)count, e->count);
    int room = rank >= (int)count ? rank + 1 : (int)count;
    if (room > e->room) {
        uint8_t *came = ls__realloc(e->came, (size_t)room, 1);
        if (!came) return LS_ERR_MEMORY;
        memset(came + e->room, 0, (size_t)(room - e->room));
        e->came = came;
        e->room = room;
    }
    e->count = (int)count;
    if (e->came[rank])
        return ls_fail(LS_ERR_ARG, "barrier \"%s\": rank %d comes twice; a name is used once",
                       e->key, rank);
    e->came[rank] = 1;
    e->ncame++;
    if (e->broken) {
        char text[1024];
        barrier_broken_text(core, e, text, sizeof text);
        return ls_fail(LS_ERR_TIMEOUT, "%s in time", text);
    }
    LS_TRY(enqueue(e, who));
    if (e->ncame == e->count) release(e, LS_OK, &(ls__frame) { 0 }, NULL);
    return LS_OK;
}

/* The request of this id, if it still waits: a get is answered alone; a barrier is broken for all,
 * because it can no longer be kept. */
static void cancel(ls__core *core, const void *client, uint32_t id)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (entry *e = core->buckets[i]; e; e = e->next) {
            for (waiter **link = &e->waiters; *link; link = &(*link)->next) {
                waiter *w = *link;
                if (w->client != client || w->id != id) continue;
                char text[1024];
                if (e->kind == BARRIER) {
                    e->broken = true;
                    barrier_broken_text(core, e, text, sizeof text);
                    release(e, LS_ERR_TIMEOUT, NULL, text);
                    return;
                }
                *link = w->next;
                snprintf(text, sizeof text, "nobody has set \"%s\" in the store in time", e->key);
                reply_error(w, LS_ERR_TIMEOUT, text);
                ls__free(w);
                return;
            }
        }
    }
}

/* Only values are forgotten, which nobody waits for: a get of one is answered at once. */
static ls_status forget(ls__core *core, waiter *who, const ls__frame *request)
{
    entry **link = place_of(core, request), *e = *link;
    if (e && e->kind != EMPTY) {
        LS_TRY(become(e, VALUE));
        *link = e->next;
        core->nbytes -= e->nbytes;
        core->nentries--;
        entry_free(e);
    }
    reply_ok(who, &(ls__frame) { 0 });
    return LS_OK;
}

void ls__core_request(ls__core *core, void *client, ls__reply_fn *reply, int rank,
                      const ls__frame *request)
{
    waiter who = { .client = client, .reply = reply, .id = request->id };
    pthread_mutex_lock(&core->lock);
    if (request->type == LS__FRAME_CANCEL) {
        cancel(core, client, request->id);
        pthread_mutex_unlock(&core->lock);
        return;
    }
    bool forgets = request->type == LS__FRAME_DELETE;
    entry *e = forgets ? NULL : entry_of(core, request);
    ls_status status = forgets ? forget(core, &who, request) : LS_ERR_MEMORY;
    if (e) {
        switch (request->type) {
        case LS__FRAME_SET:
            status = set(core, e, &who, request);
            break;
        case LS__FRAME_GET:
            status = get(e, &who);
            break;
        case LS__FRAME_ADD:
            status = add(e, &who, request->number);
            break;
        case LS__FRAME_BARRIER:
            status = barrier(core, e, &who, rank, request->number);
            break;
        default:
            status = ls_fail(LS_ERR_ARG, "frame type %d is no request", request->type);
        }
    }
    if (status != LS_OK) reply_error(&who, status, ls_error_text());
    pthread_mutex_unlock(&core->lock);
}

void ls__core_forget(ls__core *core, const void *client)
{
    pthread_mutex_lock(&core->lock);
    for (int i = 0; i < BUCKETS; i++) {
        for (entry *e = core->buckets[i]; e; e = e->next) {
            for (waiter **link = &e->waiters; *link;) {
                waiter *w = *link;
                if (w->client == client) {
                    *link = w->next;
                    ls__free(w);
                } else {
                    link = &w->next;
                }
            }
        }
    }
    pthread_mutex_unlock(&core->lock);
}
