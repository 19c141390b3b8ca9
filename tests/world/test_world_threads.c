/* Worlds whose ranks are threads, and one rank alone: what the rooms below test with. */
#include "testing.h"

#include <pthread.h>

#include <lockstep/comm.h>

#include "base/memory.h"
#include "world/world_internal.h"

typedef struct thread_rank {
    ls_world *world;
    int worked;
    ls_status status;
    char text[256];
    int64_t sum;
} thread_rank;

static ls_status works(void *user)
{
    ((thread_rank *)user)->worked++;
    return LS_OK;
}

static ls_status fails(void *user)
{
    ((thread_rank *)user)->worked++;
    return ls_fail(LS_ERR_DATA, "no such archive");
}

static void *run(void *user)
{
    thread_rank *t = user;
    ls_world *world = t->world;
    int64_t mine = ls_world_rank(world) + 1;
    assert_ok(
        ls_comm_all_reduce(ls_world_comm(world), &mine, &t->sum, 1, LS_DTYPE_I64, LS_REDUCE_SUM));
    assert_ok(ls_world_once(world, works, t));
    t->status = ls_world_once(world, fails, t);
    snprintf(t->text, sizeof t->text, "%s", ls_error_text());
    int64_t n;
    assert_ok(ls__store_add(ls__world_store(world), "n", 1, &n));
    assert_ok(ls__store_barrier(ls__world_store(world), "end", ls_world_size(world), 10000));
    assert_int_equal(ls_world_finish(world), 0);
    return NULL;
}

static void ranks_as_threads(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        ls_world *worlds[4];
        thread_rank ranks[4];
        pthread_t threads[4];
        assert_ok(ls__world_create_threads(size, worlds));
        for (int r = 0; r < size; r++) {
            assert_int_equal(ls_world_rank(worlds[r]), r);
            assert_int_equal(ls_world_size(worlds[r]), size);
            ranks[r] = (thread_rank) { .world = worlds[r] };
            pthread_create(&threads[r], NULL, run, &ranks[r]);
        }
        for (int r = 0; r < size; r++) {
            pthread_join(threads[r], NULL);
            assert_int_equal(ranks[r].sum, size * (size + 1) / 2);
            assert_int_equal(ranks[r].worked, r == 0 ? 2 : 0);
            assert_int_equal(ranks[r].status, LS_ERR_DATA);
            assert_string_equal(ranks[r].text, "no such archive");
        }
    }
}

static void one_rank(void **state)
{
    (void)state;
    ls_world *world;
    thread_rank t = { 0 };
    assert_ok(ls__world_create_single(&world));
    assert_int_equal(ls_world_size(world), 1);
    assert_int_equal(ls_world_nodes(world), 1);
    assert_int_equal(ls_world_local_size(world), 1);
    assert_true(ls_world_threads(world) >= 1);
    assert_int_equal(ls__world_stop_signal(world), 0);
    assert_ok(ls_world_once(world, works, &t));
    assert_int_equal(t.worked, 1);
    char *value;
    size_t nbytes;
    assert_ok(ls__store_set(ls__world_store(world), "k", "v", 1));
    assert_ok(ls__store_get(ls__world_store(world), "k", 0, &value, &nbytes));
    ls__free(value);
    assert_fails(ls__store_get(ls__world_store(world), "none", 10, &value, &nbytes), LS_ERR_TIMEOUT,
                 "none");
    ls__world_position(world, 3, "checkpoints/step-00000003");
    ls__world_stopped(world, 15);
    assert_int_equal(ls_world_finish(world), 75);
}

/* Each allocation of making a world fails once: a status, no leak, and the next try works. */
static void allocations_may_fail(void **state)
{
    (void)state;
    ls_world *worlds[2];
    for (long n = 1;; n++) {
        ls__alloc_fail_at(n);
        ls_status status = ls__world_create_threads(2, worlds);
        ls__alloc_fail_at(0);
        if (status == LS_OK) break;
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(worlds[0]);
    }
    for (int r = 0; r < 2; r++) ls_world_finish(worlds[r]);
}

static void *run_on_node(void *user)
{
    thread_rank *t = user;
    ls_world *world = t->world;
    assert_ok(ls_world_once(world, works, t));
    t->status = ls_world_once(world, ls_world_node(world) == 1 ? fails : works, t);
    snprintf(t->text, sizeof t->text, "%s", ls_error_text());
    assert_ok(ls__store_barrier(ls__world_store(world), "end", ls_world_size(world), 10000));
    assert_int_equal(ls_world_finish(world), 0);
    return NULL;
}

/* Two nodes of 2 and 1 ranks: a memory each, one store, and work once on each of them; all return
 * what one node failed with. */
static void nodes_as_threads(void **state)
{
    (void)state;
    ls_world *worlds[3];
    thread_rank ranks[3];
    pthread_t threads[3];
    assert_ok(ls__world_create_nodes((int[]) { 2, 1 }, 2, worlds));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ls_world_rank(worlds[r]), r);
        assert_int_equal(ls_world_size(worlds[r]), 3);
        assert_int_equal(ls_world_nodes(worlds[r]), 2);
        assert_int_equal(ls_world_node(worlds[r]), r / 2);
        assert_int_equal(ls_world_local_rank(worlds[r]), r % 2);
        assert_int_equal(ls_world_local_size(worlds[r]), r < 2 ? 2 : 1);
        assert_int_equal(ls__nodes_rank(ls__world_nodes(worlds[r]), r / 2, r % 2), r);
        ranks[r] = (thread_rank) { .world = worlds[r] };
    }
    assert_ptr_equal(ls__world_shm(worlds[0]), ls__world_shm(worlds[1]));
    assert_ptr_not_equal(ls__world_shm(worlds[0]), ls__world_shm(worlds[2]));
    for (int r = 0; r < 3; r++) pthread_create(&threads[r], NULL, run_on_node, &ranks[r]);
    for (int r = 0; r < 3; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(ranks[r].worked, r == 1 ? 0 : 2);
        assert_int_equal(ranks[r].status, LS_ERR_DATA);
        assert_string_equal(ranks[r].text, "no such archive");
    }
}

/* Ranks dealt to nodes in turn, and places that cannot be. */
static void nodes_from_places(void **state)
{
    (void)state;
    ls__nodes *n;
    assert_ok(ls__nodes_create_from((int[]) { 0, 1, 0, 1, 0 }, (int[]) { 0, 0, 1, 1, 2 }, 5, &n));
    assert_int_equal(n->count, 2);
    assert_int_equal(n->local_sizes[0], 3);
    assert_int_equal(ls__nodes_rank(n, 0, 2), 4);
    assert_int_equal(ls__nodes_rank(n, 1, 1), 3);
    ls__nodes_destroy(n);
    assert_fails(ls__nodes_create_from((int[]) { 0, 1 }, (int[]) { 0, 1 }, 2, &n), LS_ERR_CONFIG,
                 "rank 1 is number 1 of the 1 ranks of node 1");
    assert_fails(ls__nodes_create_from((int[]) { 0, 0 }, (int[]) { 0, 0 }, 2, &n), LS_ERR_CONFIG,
                 "ranks 0 and 1 are both number 0 on node 0");
    assert_fails(ls__nodes_create_from((int[]) { 1, 1 }, (int[]) { 0, 1 }, 2, &n), LS_ERR_CONFIG,
                 "node 0 of 2 has no rank");
    assert_fails(ls__nodes_create_from((int[]) { 0, 7 }, (int[]) { 0, 0 }, 2, &n), LS_ERR_CONFIG,
                 "rank 1 is on node 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ranks_as_threads),
                                        cmocka_unit_test(one_rank),
                                        cmocka_unit_test(nodes_as_threads),
                                        cmocka_unit_test(nodes_from_places),
                                        cmocka_unit_test(allocations_may_fail) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
