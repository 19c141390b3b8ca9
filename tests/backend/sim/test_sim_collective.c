/* Exchanges between simulated GPUs. */
#include "backend/sim/helper_collective.h"
#include "testing.h"

/* Numbers of which only one order keeps the small one: a program that counts on the tree's order is
 * found out. */
static void in_a_ring(test_rank *t)
{
    device_rank d;
    const float whole[] = { 1e8F, 1, -1e8F };
    float values[3] = { whole[t->rank], whole[t->rank], whole[t->rank] }, got;
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, device_rank_put(&d, 0, values, 3));
    cuda_span span = { d.data, d.data + 16, 1 };
    RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1));
    RANK_OK(t, device_rank_wait(&d));
    RANK_CHECK(t, device_rank_get(&d, 16, &got, 1));
    RANK_CHECK(t, got == (t->rank == 1 ? 1 : 0)); /* (a + b) + c is 0 */
    device_rank_end(&d);
}

static void test_order(void **state)
{
    (void)state;
    run_ranks(3, NULL, in_a_ring, NULL);
}

static void test_missing(void **state)
{
    (void)state;
    run_ranks(2, NULL, collective_missing, NULL);
    run_ranks(3, NULL, collective_missing, NULL);
}

static void test_given_up(void **state)
{
    (void)state;
    run_ranks(3, NULL, collective_given_up, NULL);
}

/* The one that is hit says so, the other fails in its words. */
static void with_an_error(test_rank *t)
{
    device_rank d;
    float zeros[64] = { 0 };
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, device_rank_put(&d, 0, zeros, 64));
    cuda_span span = { d.data, d.data + 16, 1 };
    RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1));
    RANK_FAILS(t, device_rank_wait(&d), LS_ERR_DEVICE,
               "exchange of gradients: unhandled error of a peer's link");
    RANK_CHECK(t, ls__vendor_collective_check(d.c) != LS_OK); /* and stays broken */
    device_rank_end(&d);
}

static void test_error(void **state)
{
    (void)state;
    setenv("LOCKSTEP_SIM_FAIL", "collective:1", 1); /* of all calls: of whoever comes first */
    run_ranks(2, NULL, with_an_error, NULL);
    unsetenv("LOCKSTEP_SIM_FAIL");
}

static void not_registered(test_rank *t)
{
    device_rank d;
    if (!device_rank_begin(&d, t, -1)) return;
    cuda_span span = { d.data, d.data + MEMORY - 1, 2 };
    RANK_FAILS(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1),
               LS_ERR_INTERNAL, "was not registered");
    device_rank_end(&d);
}

static void test_not_registered(void **state)
{
    (void)state;
    run_ranks(2, NULL, not_registered, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error), /* the first: calls are counted over the process */
        cmocka_unit_test(collective_values),   cmocka_unit_test(test_order),
        cmocka_unit_test(test_missing),        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_not_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
