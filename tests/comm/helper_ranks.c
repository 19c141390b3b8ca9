/* Ranks as threads. */
#include "helper_ranks.h"

#include <pthread.h>

#include "testing.h"

enum { RANKS_MAX = 64 };

struct ranks {
    pthread_mutex_t mutex;
    char failure[1024]; /* "" = none */
    ranks_options options;
    void (*body)(test_rank *t);
    test_rank each[RANKS_MAX];
};

void rank_failed(test_rank *t, const char *file, int line, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&t->all->mutex);
    if (t->all->failure[0] == '\0') {
        int at = snprintf(t->all->failure, sizeof t->all->failure,
                          "rank %d of %d: %s:%d: ", t->rank, t->size, file, line);
        va_start(args, format);
        vsnprintf(t->all->failure + at, sizeof t->all->failure - (size_t)at, format, args);
        va_end(args);
    }
    pthread_mutex_unlock(&t->all->mutex);
    if (t->shm) ls__shm_poison(t->shm, t->rank);
}

static void run_body(test_rank *t)
{
    ls__comm_shm_options options = { .rank = t->rank,
                                     .size = t->size,
                                     .oversubscribed = true,
                                     .timeout_ms = t->all->options.timeout_ms,
                                     .arena = t->all->options.arena };
    RANK_OK(t, ls__comm_shm_create(t->shm, &options, &t->comm));
    t->all->body(t);
    ls__comm_destroy(t->comm);
}

static void *thread_main(void *user)
{
    run_body(user);
    return NULL;
}

void run_ranks(int size, const ranks_options *options, void (*body)(test_rank *t), void *user)
{
    static ranks all; /* too large for a stack; one call at a time */
    pthread_t threads[RANKS_MAX];
    ls__shm *shm = NULL;
    assert_true(size <= RANKS_MAX);
    memset(&all, 0, sizeof all);
    pthread_mutex_init(&all.mutex, NULL);
    all.body = body;
    if (options) all.options = *options;
    if (all.options.timeout_ms == 0) all.options.timeout_ms = 60000;
    if (size > 1) assert_ok(ls__shm_create(size, &shm));
    for (int r = 0; r < size; r++) {
        all.each[r] =
            (test_rank) { .rank = r, .size = size, .shm = shm, .user = user, .all = &all };
        assert_int_equal(pthread_create(&threads[r], NULL, thread_main, &all.each[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    ls__shm_destroy(shm);
    pthread_mutex_destroy(&all.mutex);
    if (all.failure[0]) fail_msg("%s", all.failure);
}
