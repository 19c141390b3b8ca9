/* What ranks are told when one of them is missing, ahead, odd, or gone. */
#include "helper_ranks.h"
#include "testing.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/shm_internal.h"

/* Rank 1 stays away until the others have timed out. */
static void absent(test_rank *t)
{
    float x = 1;
    RANK_OK(t, ls_comm_barrier(t->comm));
    if (t->rank == 1) {
        ls__sleep_ms(900);
        return;
    }
    RANK_FAILS(
        t, ls_comm_all_reduce(t->comm, &x, &x, 1, LS_DTYPE_F32, LS_REDUCE_MIN), LS_ERR_TIMEOUT,
        "rank 1 has not made call 2; its last was barrier, call 1, at test_comm_failures+0x");
    RANK_CHECK(t, strstr(ls_error_text(), "0.3 s"));
    RANK_CHECK(t, strstr(ls_error_text(), " in all_reduce of 1 f32 (min), call 2, at test_"));
    /* It stays broken, with the same text. */
    RANK_FAILS(t, ls_comm_barrier(t->comm), LS_ERR_TIMEOUT, "can only be destroyed");
    RANK_CHECK(t, strstr(ls_error_text(), "rank 1 has not made call 2"));
}

static void test_absent(void **state)
{
    (void)state;
    run_ranks(3, &(ranks_options) { .timeout_ms = 300 }, absent, NULL);
}

static void never_called(test_rank *t)
{
    if (t->rank == 1)
        ls__sleep_ms(600);
    else
        RANK_FAILS(t, ls_comm_barrier(t->comm), LS_ERR_TIMEOUT, "rank 1 has made no call yet");
}

static void test_never_called(void **state)
{
    (void)state;
    run_ranks(2, &(ranks_options) { .timeout_ms = 200 }, never_called, NULL);
}

/* A rank that waits in recv is named with what it is in. */
static void in_recv(test_rank *t)
{
    float x = 0;
    if (t->rank == 1)
        RANK_FAILS(t, ls_comm_recv(t->comm, &x, 1, LS_DTYPE_F32, 0), LS_ERR_TIMEOUT, "rank 1");
    else
        RANK_FAILS(t, ls_comm_barrier(t->comm), LS_ERR_TIMEOUT,
                   "rank 1 has not made call 1; it is in recv of 1 f32 from rank 0");
}

static void test_in_recv(void **state)
{
    (void)state;
    run_ranks(2, &(ranks_options) { .timeout_ms = 300 }, in_recv, NULL);
}

/* Each pair of calls differs in one thing; rank 2 of 3 is the odd one. */
typedef struct difference {
    ls_status (*usual)(ls_comm *comm, void *data);
    ls_status (*odd)(ls_comm *comm, void *data);
    const char *text;
} difference;

static ls_status sum_10(ls_comm *comm, void *data)
{
    return ls_comm_all_reduce(comm, data, data, 10, LS_DTYPE_F32, LS_REDUCE_SUM);
}
static ls_status sum_11(ls_comm *comm, void *data)
{
    return ls_comm_all_reduce(comm, data, data, 11, LS_DTYPE_F32, LS_REDUCE_SUM);
}
static ls_status max_10(ls_comm *comm, void *data)
{
    return ls_comm_all_reduce(comm, data, data, 10, LS_DTYPE_F32, LS_REDUCE_MAX);
}
static ls_status sum_10_integers(ls_comm *comm, void *data)
{
    return ls_comm_all_reduce(comm, data, data, 10, LS_DTYPE_I32, LS_REDUCE_SUM);
}
static ls_status sum_9000(ls_comm *comm, void *data)
{
    return ls_comm_all_reduce(comm, data, data, 9000, LS_DTYPE_F32, LS_REDUCE_SUM);
}
static ls_status root_0(ls_comm *comm, void *data)
{
    return ls_comm_broadcast(comm, data, 5000, LS_DTYPE_F32, 0);
}
static ls_status root_1(ls_comm *comm, void *data)
{
    return ls_comm_broadcast(comm, data, 5000, LS_DTYPE_F32, 1);
}
static ls_status barrier(ls_comm *comm, void *data)
{
    (void)data;
    return ls_comm_barrier(comm);
}
static ls_status memory(ls_comm *comm, void *data)
{
    void *out;
    (void)data;
    return ls_comm_alloc(comm, 100, &out);
}

static const difference differences[] = {
    { sum_10, sum_11, "all_reduce of 11 f32 (sum)" },
    { sum_10, max_10, "all_reduce of 10 f32 (max)" },
    { sum_10, sum_10_integers, "all_reduce of 10 i32 (sum)" },
    { sum_10, sum_9000, "all_reduce of 9000 f32 (sum)" },
    { sum_9000, sum_10, "all_reduce of 10 f32 (sum)" },
    { root_0, root_1, "broadcast of 5000 f32 from rank 1" },
    { barrier, memory, "alloc of 100 bytes" },
    { memory, barrier, "barrier" },
};

static void differ(test_rank *t)
{
    const difference *d = t->user;
    float *data = calloc(9000, sizeof *data);
    bool odd = t->rank == 2;
    double begin = ls__now();
    ls_status status = odd ? d->odd(t->comm, data) : d->usual(t->comm, data);
    free(data);
    RANK_CHECK(t, status == LS_ERR_MISMATCH);
    char want[128];
    snprintf(want, sizeof want, "rank 2 is in %s, call 1, at test_comm_failures+0x", d->text);
    RANK_CHECK(t, strstr(ls_error_text(), want));
    RANK_CHECK(t, strstr(ls_error_text(), "; ranks 0, 1 are in "));
    RANK_CHECK(t, ls__now() - begin < 20); /* at once, not by the timeout of 60 s */
}

static void test_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        run_ranks(3, NULL, differ, (void *)&differences[i]);
}

static void pair_differs(test_rank *t)
{
    float x[2] = { 0 };
    if (t->rank == 0) {
        RANK_FAILS(t, ls_comm_send(t->comm, x, 2, LS_DTYPE_F32, 1), LS_ERR_MISMATCH,
                   "rank 0 is in send of 2 f32 to rank 1, at test_");
        RANK_CHECK(t, strstr(ls_error_text(), "rank 1 is in recv of 1 f64 from rank 0, at test_"));
    } else {
        RANK_FAILS(t, ls_comm_recv(t->comm, x, 1, LS_DTYPE_F64, 0), LS_ERR_MISMATCH,
                   "rank 0 is in send of 2 f32 to rank 1, at test_");
    }
}

static void test_pair_differs(void **state)
{
    (void)state;
    run_ranks(2, NULL, pair_differs, NULL);
}

/* Poison ends waits that spin, sleep, or begin only later. */
static void poisoned(test_rank *t)
{
    RANK_OK(t, ls_comm_barrier(t->comm));
    if (t->rank == 1) {
        ls__sleep_ms(100);
        ls__shm_poison(t->shm, 1);
        ls__shm_poison(t->shm, 0); /* the first one counts */
        return;
    }
    if (t->rank == 2) ls__sleep_ms(200);
    double begin = ls__now();
    RANK_FAILS(t, ls_comm_barrier(t->comm), LS_ERR_PEER, "rank 1 was lost");
    RANK_CHECK(t, ls__now() - begin < 30);
    int who;
    RANK_CHECK(t, ls__shm_poisoned(t->shm, &who) && who == 1);
}

static void test_poisoned(void **state)
{
    (void)state;
    run_ranks(3, NULL, poisoned, NULL);
}

static void test_supervisor_poison(void **state)
{
    (void)state;
    ls__shm *shm;
    int who = 5;
    assert_ok(ls__shm_create(2, &shm));
    assert_false(ls__shm_poisoned(shm, &who));
    ls__shm_poison(shm, -1);
    assert_true(ls__shm_poisoned(shm, &who));
    assert_int_equal(who, -1);
    ls_comm *comm;
    ls__comm_shm_options options = { .rank = 1, .size = 2 };
    assert_fails(ls__comm_shm_create(shm, &options, &comm), LS_ERR_PEER, "job is being ended");
    assert_null(comm);
    ls__shm_destroy(shm);
}

static void test_stop_request(void **state)
{
    (void)state;
    ls__shm *shm;
    assert_ok(ls__shm_create(1, &shm));
    assert_int_equal(ls__shm_stop_request(shm), 0);
    ls__shm_request_stop(shm, 15);
    ls__shm_request_stop(shm, 2);
    assert_int_equal(ls__shm_stop_request(shm), 15);
    ls__shm_destroy(shm);
}

/* Rank 1 cannot get what rank 0 has: both are told, and can go on. */
static void allocation_fails(test_rank *t)
{
    void *a, *b;
    RANK_OK(t, ls_comm_alloc(t->comm, 10000, &a));
    RANK_FAILS(t, ls_comm_alloc(t->comm, (size_t)1 << 41, &b), LS_ERR_MEMORY, "shared memory");
    RANK_CHECK(t, b == NULL);
    RANK_OK(t, ls_comm_alloc(t->comm, 10000, &b));
    for (int i = 0; i < 10000; i++) RANK_CHECK(t, ((char *)b)[i] == 0);
    memset(a, 1, 10000);
    ls_comm_free(t->comm, a);
    RANK_OK(t, ls_comm_alloc(t->comm, 5000, &a)); /* the freed space, zeroed again */
    for (int i = 0; i < 5000; i++) RANK_CHECK(t, ((char *)a)[i] == 0);
    ls_comm_free(t->comm, b);
    ls_comm_free(t->comm, NULL);
    RANK_FAILS(t, ls_comm_alloc(t->comm, 0, &b), LS_ERR_ARG, "0 bytes");
}

static void test_allocation_fails(void **state)
{
    (void)state;
    run_ranks(2, NULL, allocation_fails, NULL);
}

static void test_attach(void **state)
{
    (void)state;
    ls__shm *shm, *other;
    assert_ok(ls__shm_create(2, &shm));
    assert_fails(ls__shm_attach(dup(ls__shm_fd(shm)), 3, &other), LS_ERR_PEER, "is for 2 ranks");
    assert_fails(ls__shm_attach(dup(0), 2, &other), LS_ERR_PEER, "is not the ranks' shared memory");
    FILE *file = tmpfile();
    assert_int_equal(ftruncate(fileno(file), 1 << 20), 0);
    assert_fails(ls__shm_attach(dup(fileno(file)), 2, &other), LS_ERR_PEER,
                 "is not the ranks' shared memory");
    fclose(file);
    assert_ok(ls__shm_attach(dup(ls__shm_fd(shm)), 2, &other));
    ls__shm_poison(other, 0);
    assert_true(ls__shm_poisoned(shm, NULL));
    ls__shm_destroy(other);
    ls__shm_destroy(shm);
    assert_fails(ls__shm_create(0, &shm), LS_ERR_ARG, "0 ranks");
    assert_fails(ls__shm_create(5000, &shm), LS_ERR_ARG, "5000 ranks");
}

/* Freed extents join and are used again, so the file does not grow without end. */
static void test_heap(void **state)
{
    (void)state;
    ls__shm *shm;
    size_t at[40], end, again;
    assert_ok(ls__shm_create(1, &shm));
    for (int i = 0; i < 40; i++) assert_ok(ls__shm_reserve(shm, 5000, true, &at[i]));
    end = shm->heap.end;
    for (int i = 0; i < 40; i += 2) ls__shm_release(shm, at[i], 5000);
    for (int i = 39; i > 0; i -= 2) ls__shm_release(shm, at[i], 5000);
    assert_int_equal(shm->heap.nfree, 1);
    assert_ok(ls__shm_reserve(shm, 40 * 8192, true, &again));
    assert_int_equal(again, at[0]);
    assert_int_equal(shm->heap.end, end);
    assert_int_equal(shm->heap.nfree, 0);
    ls__shm_destroy(shm);
}

/* Every allocation of creating and using a communicator may fail. */
static void test_no_memory(void **state)
{
    (void)state;
    bool done = false;
    for (int n = 1; !done; n++) {
        ls__shm *shm = NULL;
        ls_comm *comm = NULL;
        void *data;
        ls_work *work;
        float x = 1;
        ls__comm_shm_options options = { .size = 1 };
        ls__alloc_fail_at(n);
        ls_status status = ls__shm_create(1, &shm);
        if (status == LS_OK) status = ls__comm_shm_create(shm, &options, &comm);
        if (status == LS_OK) status = ls_comm_alloc(comm, 100, &data);
        if (status == LS_OK)
            status = ls_comm_all_reduce_start(comm, &x, &x, 1, LS_DTYPE_F32, LS_REDUCE_SUM, &work);
        if (status == LS_OK) status = ls_work_wait(work);
        done = status == LS_OK;
        ls__alloc_fail_at(0);
        if (!done) assert_int_equal(status, LS_ERR_MEMORY);
        ls__comm_destroy(comm);
        ls__shm_destroy(shm);
        assert_true(n < 50);
    }
}

/* Several communicators over one file, taken apart and made again. */
static void several(test_rank *t)
{
    ls__comm_shm_options options = {
        .rank = t->rank, .size = t->size, .oversubscribed = true, .arena = 512, .timeout_ms = 60000
    };
    ls_comm *comms[4];
    int32_t x[400];
    for (int round = 0; round < 3; round++) {
        for (int c = 0; c < 4; c++) RANK_OK(t, ls__comm_shm_create(t->shm, &options, &comms[c]));
        for (int c = 3; c >= 0; c--) {
            for (int i = 0; i < 400; i++) x[i] = c + i;
            RANK_OK(t, ls_comm_all_reduce(comms[c], x, x, 400, LS_DTYPE_I32, LS_REDUCE_SUM));
            for (int i = 0; i < 400; i++) RANK_CHECK(t, x[i] == t->size * (c + i));
        }
        for (int c = 0; c < 4; c++) ls__comm_destroy(comms[c]);
    }
}

static void test_several(void **state)
{
    (void)state;
    run_ranks(3, NULL, several, NULL);
}

static void too_many(test_rank *t)
{
    ls__comm_shm_options options = { .rank = t->rank, .size = t->size };
    ls_comm *comm;
    for (int c = 1; c < LS__COMMS_MAX; c++) {
        RANK_OK(t, ls__comm_shm_create(t->shm, &options, &comm));
        ls__comm_destroy(comm);
    }
    RANK_FAILS(t, ls__comm_shm_create(t->shm, &options, &comm), LS_ERR_UNSUPPORTED, "64");
}

static void test_too_many(void **state)
{
    (void)state;
    run_ranks(2, NULL, too_many, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_never_called),
        cmocka_unit_test(test_in_recv),
        cmocka_unit_test(test_differ),
        cmocka_unit_test(test_pair_differs),
        cmocka_unit_test(test_poisoned),
        cmocka_unit_test(test_supervisor_poison),
        cmocka_unit_test(test_stop_request),
        cmocka_unit_test(test_allocation_fails),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
