/* Ranks as threads. */
#include "helper_ranks.h"

#include <pthread.h>

#include "comm/net.h"
#include "helper_link.h"
#include "testing.h"

enum { RANKS_MAX = 64 };

struct ranks {
    pthread_mutex_t mutex;
    char failure[1024]; /* "" = none */
    ranks_options options;
    void (*body)(test_rank *t);
    test_rank each[RANKS_MAX];
    ls__node_place places[RANKS_MAX];
    ls__shm *shms[RANKS_MAX];
    exchange_office *office;
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
    for (int m = 0; m < RANKS_MAX && t->all->shms[m]; m++) ls__shm_poison(t->all->shms[m], t->rank);
}

static void run_body(test_rank *t)
{
    ls__comm_shm_options options = { .rank = t->rank,
                                     .size = t->size,
                                     .oversubscribed = true,
                                     .timeout_ms = t->all->options.timeout_ms,
                                     .arena = t->all->options.arena };
    ls__comm_nodes_options nodes = { .rank = t->rank,
                                     .size = t->size,
                                     .places = t->all->places,
                                     .oversubscribed = true,
                                     .timeout_ms = t->all->options.timeout_ms,
                                     .arena = t->all->options.arena };
    if (t->link)
        RANK_OK(t, ls__comm_nodes_create(t->shm, t->link, &nodes, &t->comm));
    else
        RANK_OK(t, ls__comm_shm_create(t->shm, &options, &t->comm));
    t->all->body(t);
    ls__comm_destroy(t->comm);
}

static void *thread_main(void *user)
{
    run_body(user);
    return NULL;
}

/* Places the ranks, with the memory of each machine. */
static void place_ranks(ranks *all, int size)
{
    const int one[] = { size, 0 }, *nodes = all->options.nodes ? all->options.nodes : one;
    int r = 0, n = 0;
    while (nodes[n] > 0) n++;
    for (int m = 0; m < n; m++) {
        if (size > 1) assert_ok(ls__shm_create(nodes[m], &all->shms[m]));
        for (int l = 0; l < nodes[m]; l++)
            all->places[all->options.alternating ? l * n + m : r++] = (ls__node_place) { m, l };
    }
    if (n > 1) all->office = office_open(size);
}

void run_ranks(int size, const ranks_options *options, void (*body)(test_rank *t), void *user)
{
    static ranks all; /* too large for a stack; one call at a time */
    pthread_t threads[RANKS_MAX];
    assert_true(size <= RANKS_MAX);
    memset(&all, 0, sizeof all);
    pthread_mutex_init(&all.mutex, NULL);
    all.body = body;
    if (options) all.options = *options;
    if (all.options.timeout_ms == 0) all.options.timeout_ms = 60000;
    place_ranks(&all, size);
    for (int r = 0; r < size; r++) {
        all.each[r] = (test_rank) { .rank = r, .size = size, .user = user, .all = &all };
        all.each[r].shm = all.shms[all.places[r].node];
        if (all.office) all.each[r].link = office_link(all.office, r);
        assert_int_equal(pthread_create(&threads[r], NULL, thread_main, &all.each[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int m = 0; m < RANKS_MAX && all.shms[m]; m++) ls__shm_destroy(all.shms[m]);
    if (all.office) office_close(all.office);
    pthread_mutex_destroy(&all.mutex);
    if (all.failure[0]) fail_msg("%s", all.failure);
}

void run_ranks_on_nodes(const ranks_options *options, void (*body)(test_rank *t), void *user)
{
    static const struct {
        int nodes[5];
        bool alternating;
    } layouts[] = { { { 1, 1 }, false }, { { 2, 1 }, false }, { { 1, 2, 1 }, false },
                    { { 2, 2 }, true },  { { 2, 4 }, false }, { { 1, 1, 1, 1 }, false } };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        ranks_options some = options ? *options : (ranks_options) { 0 };
        int size = 0;
        for (int m = 0; layouts[i].nodes[m] > 0 && m < 4; m++) size += layouts[i].nodes[m];
        some.nodes = layouts[i].nodes;
        some.alternating = layouts[i].alternating;
        run_ranks(size, &some, body, user);
    }
}
