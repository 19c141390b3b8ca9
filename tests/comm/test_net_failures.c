/* What every rank on every machine is told when one of them differs, is silent or is lost. */
#include "helper_ranks.h"
#include "testing.h"

#include "base/clock.h"

static const int nodes[] = { 2, 1, 0 };

static void run(void (*body)(test_rank *t), int timeout_ms)
{
    run_ranks(3, &(ranks_options) { .nodes = nodes, .timeout_ms = timeout_ms }, body, NULL);
}

static ls_status add(test_rank *t)
{
    float x = 1;
    return ls_comm_all_reduce(t->comm, &x, &x, 1, LS_DTYPE_F32, LS_REDUCE_SUM);
}

/* Rank `odd` alone calls something else. */
static void differ(test_rank *t, int odd, const char *text)
{
    RANK_OK(t, add(t));
    ls_status status = t->rank == odd ? ls_comm_barrier(t->comm) : add(t);
    RANK_FAILS(t, status, LS_ERR_MISMATCH, text);
    RANK_CHECK(t, strstr(ls_error_text(), "all_reduce of 1 f32 (sum)"));
    RANK_FAILS(t, add(t), LS_ERR_MISMATCH, "can only be destroyed");
}
static void other_machine_differs(test_rank *t)
{
    differ(t, 2, "rank 2 is in barrier");
}
static void own_machine_differs(test_rank *t)
{
    differ(t, 1, "rank 1 is in barrier");
}
static void first_of_machine_differs(test_rank *t)
{
    differ(t, 0, "rank 0 is in barrier");
}

static void test_mismatch(void **state)
{
    (void)state;
    run(other_machine_differs, 0);
    run(own_machine_differs, 0);
    run(first_of_machine_differs, 0);
}

static void machine_is_silent(test_rank *t)
{
    RANK_OK(t, add(t));
    if (t->rank == 2) ls__sleep_ms(1000); /* leaving before the others would be a loss */
    if (t->rank == 2) return;
    RANK_FAILS(t, add(t), LS_ERR_TIMEOUT, "rank 2 has not made call");
    RANK_CHECK(t, strstr(ls_error_text(), "ranks 0, 1 are in all_reduce"));
}
/* Its neighbour names it, for the other machine too. */
static void neighbour_is_silent(test_rank *t)
{
    RANK_OK(t, add(t));
    if (t->rank == 1) return;
    RANK_FAILS(t, add(t), LS_ERR_TIMEOUT, "rank 1 has not made call");
}

static void test_timeout(void **state)
{
    (void)state;
    run(neighbour_is_silent, 400);
    run(machine_is_silent, 200);
}

static void is_lost(test_rank *t)
{
    RANK_OK(t, add(t));
    if (t->rank == 2) return; /* and takes its link with it */
    RANK_FAILS(t, add(t), LS_ERR_PEER, "rank 2 on node 1");
}

static void test_lost(void **state)
{
    (void)state;
    run(is_lost, 0);
}

static void unequal_pair(test_rank *t)
{
    int x[4] = { 0 };
    if (t->rank == 1)
        RANK_FAILS(t, ls_comm_send(t->comm, x, 4, LS_DTYPE_I32, 2), LS_ERR_MISMATCH,
                   "rank 2 is in recv of 3 i32 from rank 1");
    if (t->rank == 2)
        RANK_FAILS(t, ls_comm_recv(t->comm, x, 3, LS_DTYPE_I32, 1), LS_ERR_MISMATCH,
                   "rank 1 is in send of 4 i32 to rank 2");
}

static void test_unequal_pair(void **state)
{
    (void)state;
    run(unequal_pair, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_unequal_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
