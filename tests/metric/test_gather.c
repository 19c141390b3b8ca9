/* States gathered over ranks (as threads): for any number of ranks the same bits, whether they fit
 * one piece or go rank by rank. */
#include <pthread.h>

#include "testing.h"

#include "base/memory.h"
#include "comm/shm.h"
#include "metric/metric_internal.h"

enum { RANKS_MAX = 4 };

/* A state that is larger than a piece shared by four ranks, and that tells the order of merges:
 * sums in floating point do not commute with regrouping, and the trace hashes the chunk numbers. */
typedef struct big_state {
    double sum;
    uint64_t order;
    double least;
    char filler[300000];
} big_state;

static void big_merge(void *state, const void *next)
{
    big_state *a = state;
    const big_state *b = next;
    a->sum = a->sum * 1.0000001 + b->sum;
    a->order = a->order * 1000003 + b->order;
    if (b->least < a->least) a->least = b->least; /* zero bytes are not neutral */
    a->filler[0] = (char)(a->filler[0] + b->filler[sizeof b->filler - 1]);
}

static const ls_metric big_metric = { .name = "big",
                                      .state_size = sizeof(big_state),
                                      .merge = big_merge };

typedef struct small_state {
    double sum;
    uint64_t order;
    double least;
} small_state;

static void small_merge(void *state, const void *next)
{
    small_state *a = state;
    const small_state *b = next;
    a->sum = a->sum * 1.0000001 + b->sum;
    a->order = a->order * 1000003 + b->order;
    if (b->least < a->least) a->least = b->least; /* zero bytes are not neutral */
}

static const ls_metric small_metric = { .name = "small",
                                        .state_size = sizeof(small_state),
                                        .merge = small_merge };

static void make_chunk(const ls_metric *metric, void *state, int64_t chunk)
{
    memset(state, 0, metric->state_size);
    small_state *s = state; /* all begin alike */
    s->sum = 1.0 / (double)(chunk + 3);
    s->order = (uint64_t)chunk + 1;
    if (metric != &ls__mean_metric) s->least = 100.0 + (double)(chunk * 7 % 11);
    if (metric == &big_metric) {
        big_state *b = state;
        b->filler[sizeof b->filler - 1] = (char)chunk;
    }
}

typedef struct rank_job {
    ls__shm *shm;
    int rank, size;
    const ls_metric *metric;
    int64_t nchunks;
    void *merged;
    ls_status status;
} rank_job;

static void *run_rank(void *user)
{
    rank_job *job = user;
    ls_comm *comm;
    job->status = ls__comm_shm_create(
        job->shm, &(ls__comm_shm_options) { .rank = job->rank, .size = job->size }, &comm);
    if (job->status != LS_OK) return NULL;
    int64_t begin = job->nchunks * job->rank / job->size;
    int64_t end = job->nchunks * (job->rank + 1) / job->size;
    size_t nbytes = job->metric->state_size;
    uint8_t *states = ls__alloc((size_t)(end - begin) + 1, nbytes);
    for (int64_t i = begin; i < end; i++)
        make_chunk(job->metric, states + (size_t)(i - begin) * nbytes, i);
    memset(job->merged, 0xAA, nbytes); /* gather writes all of it */
    job->status = ls__metric_gather(comm, job->metric, job->nchunks, states, job->merged);
    ls__free(states);
    ls__comm_destroy(comm);
    return NULL;
}

/* merged of every rank, all checked to be equal; freed by the caller. */
static void *gathered(int size, const ls_metric *metric, int64_t nchunks)
{
    ls__shm *shm;
    rank_job jobs[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    assert_ok(ls__shm_create(size, &shm));
    for (int r = 0; r < size; r++) {
        jobs[r] = (rank_job) { shm, r, size, metric, nchunks, NULL, LS_OK };
        jobs[r].merged = ls__alloc(1, metric->state_size);
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < size; r++) {
        assert_int_equal(jobs[r].status, LS_OK);
        assert_memory_equal(jobs[r].merged, jobs[0].merged, metric->state_size);
        if (r > 0) ls__free(jobs[r].merged);
    }
    ls__shm_destroy(shm);
    return jobs[0].merged;
}

static void same_bits(const ls_metric *metric, int64_t nchunks)
{
    void *expected = ls__alloc(1, metric->state_size), *chunk = ls__alloc(1, metric->state_size);
    for (int64_t i = 0; i < nchunks; i++) {
        make_chunk(metric, chunk, i);
        if (i == 0)
            memcpy(expected, chunk, metric->state_size);
        else
            metric->merge(expected, chunk);
    }
    for (int size = 1; size <= RANKS_MAX; size++) {
        void *merged = gathered(size, metric, nchunks);
        assert_memory_equal(merged, expected, metric->state_size);
        ls__free(merged);
    }
    ls__free(expected);
    ls__free(chunk);
}

static void small_states_at_once(void **state)
{
    (void)state;
    const int64_t counts[] = { 0, 1, 2, 3, 5, 17, 1000 };
    for (int i = 0; i < 7; i++) same_bits(&small_metric, counts[i]);
}

static void many_or_large_states_in_pieces(void **state)
{
    (void)state;
    same_bits(&small_metric, 300000); /* 4.8 MB: several pieces a rank */
    const int64_t counts[] = { 0, 1, 3, 11 };
    for (int i = 0; i < 4; i++) same_bits(&big_metric, counts[i]);
}

static void the_mean_over_ranks(void **state)
{
    (void)state;
    double alone[2], bits[2];
    for (int size = 1; size <= RANKS_MAX; size++) {
        double *merged = gathered(size, &ls__mean_metric, 7);
        /* make_chunk's first 16 bytes are a mean's sum and weight */
        memcpy(size == 1 ? alone : bits, merged, sizeof alone);
        if (size > 1) assert_memory_equal(alone, bits, sizeof alone);
        ls__free(merged);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_states_at_once),
        cmocka_unit_test(many_or_large_states_in_pieces),
        cmocka_unit_test(the_mean_over_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
