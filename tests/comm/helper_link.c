/* Links between threads: a send and a receive that meet are one memcpy under the office's lock. */
#include "helper_link.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

typedef struct message {
    ls__transfer *transfer;
    int rank;     /* whose */
    int state;    /* 0 on its way, 1 done, 2 failed */
    bool dropped; /* nobody waits for it any more */
    struct message *next;
} message;

struct exchange_office {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    int size;
    bool *gone; /* (size) has aborted or left */
    message *first, **last;
};

typedef struct office_end {
    ls__link link;
    exchange_office *office;
    int rank;
} office_end;

exchange_office *office_open(int size)
{
    exchange_office *office = calloc(1, sizeof *office);
    pthread_mutex_init(&office->mutex, NULL);
    pthread_cond_init(&office->moved, NULL);
    office->size = size;
    office->gone = calloc((size_t)size, sizeof *office->gone);
    office->last = &office->first;
    return office;
}

void office_close(exchange_office *office)
{
    for (message *m = office->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    pthread_mutex_destroy(&office->mutex);
    pthread_cond_destroy(&office->moved);
    free(office->gone);
    free(office);
}

/* Whether a is the other side of b. */
static bool meets(const message *a, const message *b)
{
    return a->state == 0 && a->transfer->sends != b->transfer->sends &&
           a->transfer->channel == b->transfer->channel && a->rank == b->transfer->peer &&
           a->transfer->peer == b->rank;
}

static ls_status start(ls__link *link, ls__transfer *t)
{
    office_end *end = (office_end *)link;
    exchange_office *office = end->office;
    message *m = calloc(1, sizeof *m), *other;
    *m = (message) { .transfer = t, .rank = end->rank };
    t->engine = m;
    pthread_mutex_lock(&office->mutex);
    for (other = office->first; other && !meets(other, m); other = other->next) continue;
    if (other && other->transfer->nbytes != t->nbytes) abort(); /* a mistake of the caller's */
    if (other) {
        const ls__transfer *from = t->sends ? t : other->transfer;
        const ls__transfer *to = t->sends ? other->transfer : t;
        memcpy(to->data, from->data, t->nbytes);
        other->state = m->state = 1;
    } else if (office->gone[t->peer]) {
        m->state = 2;
    }
    *office->last = m;
    office->last = &m->next;
    pthread_cond_broadcast(&office->moved);
    pthread_mutex_unlock(&office->mutex);
    return LS_OK;
}

static void forget(exchange_office *office, message *m)
{
    message **at = &office->first;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    if (!m->next) office->last = at;
    free(m);
}

static ls_status wait_for(ls__link *link, ls__transfer *t, const ls__patience *patience)
{
    exchange_office *office = ((office_end *)link)->office;
    message *m = t->engine;
    ls_status status = LS_OK;
    if (!m) return LS_OK; /* waited for before */
    pthread_mutex_lock(&office->mutex);
    while (m->state == 0 && status == LS_OK) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 5000000;
        if (soon.tv_nsec >= 1000000000) soon.tv_sec++, soon.tv_nsec -= 1000000000;
        if (patience->ended && patience->ended(patience->user))
            status = ls_fail(LS_ERR_PEER, "the job is being ended");
        else if (ls__now_ns() >= patience->deadline_ns)
            status = ls_fail(LS_ERR_TIMEOUT, "it took too long");
        else
            pthread_cond_timedwait(&office->moved, &office->mutex, &soon);
    }
    if (m->state == 2) status = ls_fail(LS_ERR_PEER, "it is gone");
    if (m->state == 1) {
        forget(office, m);
        t->engine = NULL;
        status = LS_OK;
    }
    pthread_mutex_unlock(&office->mutex);
    return status;
}

static void abort_all(ls__link *link)
{
    office_end *end = (office_end *)link;
    exchange_office *office = end->office;
    pthread_mutex_lock(&office->mutex);
    office->gone[end->rank] = true;
    for (message *m = office->first; m; m = m->next)
        if (m->state == 0 && (m->rank == end->rank || m->transfer->peer == end->rank)) m->state = 2;
    pthread_cond_broadcast(&office->moved);
    pthread_mutex_unlock(&office->mutex);
}

static void destroy(ls__link *link)
{
    abort_all(link);
    free(link);
}

/* Some ranks' engines move bytes only inside calls, as far as their rank can tell. */
static void look_busy(ls__link *link, int64_t polls)
{
    (void)link;
    if (polls > 10) sched_yield();
}

ls__link *office_link(exchange_office *office, int rank)
{
    office_end *end = calloc(1, sizeof *end);
    end->link =
        (ls__link) { .start = start, .wait = wait_for, .abort = abort_all, .destroy = destroy };
    if (rank % 2) end->link.progress = look_busy;
    if (office->size % 2 == 0) end->link.eager = 8192;
    end->office = office;
    end->rank = rank;
    return &end->link;
}
