/* PMIx, as far as one exchange needs it. The library is opened when a launcher asks for it, so nothing
 * of MPI is needed where there is none; what is declared here is the part of PMIx's binary interface
 * that has been the same from version 2 on. MPI in the same process uses the same library and counts
 * its users, so neither disturbs the other. Expected: once per rank.
 *
 * What the first process puts gets to the others with a fence that collects; asking for it without a
 * fence may wait for ever between Open MPI's daemons, whatever the time limit. */
#include "world/pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/memory.h"

/* --- PMIx's own --- */

enum { PMIX_SUCCESS = 0, PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_GLOBAL = 3 };

typedef struct pmix_proc {
    char nspace[256];
    uint32_t rank;
} pmix_proc;

typedef struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        void *largest[3];
    } data;
} pmix_value;

typedef struct pmix_info {
    char key[512];
    uint32_t flags;
    pmix_value value;
} pmix_info;

_Static_assert(sizeof(pmix_proc) == 260 && sizeof(pmix_value) == 32 && sizeof(pmix_info) == 552 &&
                   offsetof(pmix_info, value) == 520,
               "as in PMIx");

typedef void (*op_done)(int status, void *user);

static const char key[] = "lockstep";

struct ls__pmix {
    void *library;
    pmix_proc self;
    int (*init)(pmix_proc *, pmix_info[], size_t);
    int (*put)(uint8_t scope, const char[], pmix_value *);
    int (*commit)(void);
    int (*fence_nb)(const pmix_proc[], size_t, const pmix_info[], size_t, op_done, void *);
    int (*get)(const pmix_proc *, const char[], const pmix_info[], size_t, pmix_value **);
    int (*finalize)(const pmix_info[], size_t);
};

/* --- opening --- */

static ls_status find_functions(ls__pmix *p)
{
    const struct {
        const char *name;
        void *where;
    } list[] = {
        { "PMIx_Init", &p->init },     { "PMIx_Put", &p->put },
        { "PMIx_Commit", &p->commit }, { "PMIx_Fence_nb", &p->fence_nb },
        { "PMIx_Get", &p->get },       { "PMIx_Finalize", &p->finalize },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        void *function = dlsym(p->library, list[i].name);
        if (!function) return ls_fail(LS_ERR_UNSUPPORTED, "libpmix.so.2 has no %s", list[i].name);
        memcpy(list[i].where, &function, sizeof function);
    }
    return LS_OK;
}

/* Signals are for the program's own threads: PMIx's block them. */
static ls_status begin(ls__pmix *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int code = p->init(&p->self, NULL, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == PMIX_SUCCESS) return LS_OK;
    return ls_fail(LS_ERR_PEER, "the launcher's PMIx server cannot be reached (error %d)", code);
}

static ls_status open_library(ls__pmix **out)
{
    *out = NULL;
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) return ls_fail(LS_ERR_UNSUPPORTED, "%s (Debian's package: libpmix2)", dlerror());
    ls__pmix *p = ls__alloc(1, sizeof *p);
    if (!p) return LS_ERR_MEMORY;
    p->library = library; /* stays: its threads may outlive whatever we do */
    ls_status status = find_functions(p);
    if (status == LS_OK) status = begin(p);
    if (status != LS_OK) {
        ls__free(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

/* --- the fence --- */

/* Of both the waiter and PMIx's thread; whoever is last frees it. */
typedef struct fence {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, left;
    int code;
    pmix_info collect; /* lent until it is done */
} fence;

static void fence_free(fence *f)
{
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    ls__free(f);
}

static void fence_done(int code, void *user)
{
    fence *f = user;
    pthread_mutex_lock(&f->lock);
    f->done = true;
    f->code = code;
    bool left = f->left;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (left) fence_free(f);
}

static fence *fence_new(void)
{
    fence *f = ls__alloc(1, sizeof *f);
    if (!f) return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&f->lock, NULL);
    snprintf(f->collect.key, sizeof f->collect.key, "pmix.collect");
    f->collect.value.type = PMIX_BOOL;
    f->collect.value.data.flag = true;
    return f;
}

static ls_status fence_wait(fence *f, int timeout_ms)
{
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000L;
    }
    int error = 0;
    pthread_mutex_lock(&f->lock);
    while (!f->done && error != ETIMEDOUT) {
        if (timeout_ms < 0)
            pthread_cond_wait(&f->changed, &f->lock);
        else
            error = pthread_cond_timedwait(&f->changed, &f->lock, &deadline);
    }
    bool done = f->done;
    int code = f->code;
    f->left = true;
    pthread_mutex_unlock(&f->lock);
    if (!done)
        return ls_fail(LS_ERR_TIMEOUT, "not all processes of the job have come within %g s",
                       timeout_ms * 1e-3);
    fence_free(f);
    if (code == PMIX_SUCCESS) return LS_OK;
    return ls_fail(LS_ERR_PEER,
                   "the launcher's PMIx server does not bring the processes together "
                   "(error %d)",
                   code);
}

static ls_status come_together(ls__pmix *p, int timeout_ms)
{
    fence *f = fence_new();
    if (!f) return LS_ERR_MEMORY;
    int code = p->fence_nb(NULL, 0, &f->collect, 1, fence_done, f);
    if (code != PMIX_SUCCESS) { /* it will not be called */
        fence_free(f);
        return ls_fail(LS_ERR_PEER, "PMIx_Fence_nb: error %d", code);
    }
    return fence_wait(f, timeout_ms);
}

/* --- the exchange --- */

static ls_status put_text(ls__pmix *p, char *text)
{
    pmix_value value = { .type = PMIX_STRING, .data.string = text };
    int code = p->put(PMIX_GLOBAL, key, &value);
    if (code == PMIX_SUCCESS) code = p->commit();
    if (code == PMIX_SUCCESS) return LS_OK;
    return ls_fail(LS_ERR_PEER, "the launcher's PMIx server takes nothing (error %d)", code);
}

static ls_status get_text(ls__pmix *p, char *text, size_t limit)
{
    pmix_proc first = p->self;
    pmix_value *value = NULL;
    first.rank = 0;
    int code = p->get(&first, key, NULL, 0, &value);
    if (code != PMIX_SUCCESS || !value)
        return ls_fail(LS_ERR_PEER,
                       "the launcher's PMIx server has no address of rank 0 (error %d)", code);
    bool good =
        value->type == PMIX_STRING && value->data.string && strlen(value->data.string) < limit;
    if (good) strcpy(text, value->data.string);
    if (value->type == PMIX_STRING) free(value->data.string); /* PMIx's, by malloc */
    free(value);
    return good ? LS_OK : ls_fail(LS_ERR_DATA, "rank 0's address cannot be read");
}

ls_status ls__pmix_share(bool first, int timeout_ms, char *text, size_t limit, ls__pmix **out)
{
    ls__pmix *p;
    *out = NULL;
    LS_TRY(open_library(&p));
    ls_status status = first ? put_text(p, text) : LS_OK;
    if (status == LS_OK) status = come_together(p, timeout_ms);
    if (status == LS_OK && !first) status = get_text(p, text, limit);
    if (status != LS_OK) {
        ls__pmix_leave(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls__pmix_leave(ls__pmix *pmix)
{
    if (!pmix) return;
    pmix->finalize(NULL, 0);
    ls__free(pmix);
}
