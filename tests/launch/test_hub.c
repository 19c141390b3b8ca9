/* Launchers that meet: who is let in, who gets which place, and that whoever goes is noticed. */
#include "testing.h"

#include <string.h>

#include "helper_fleet.h"

static bool all_here(fleet *f)
{
    return ls__hub_here(f->hub) == ls__hub_launchers(f->hub);
}
static bool all_placed(fleet *f)
{
    for (int i = 0; i < f->nspokes; i++)
        if (ls__spoke_state_of(f->spokes[i]) != LS__SPOKE_PLACED) return false;
    return true;
}
static bool last_decided(fleet *f)
{
    return ls__spoke_state_of(f->spokes[f->nspokes - 1]) >= LS__SPOKE_REFUSED;
}
static bool somebody_lost(fleet *f)
{
    return f->lost[1] > 0;
}
static bool first_lost(fleet *f)
{
    return ls__spoke_state_of(f->spokes[0]) == LS__SPOKE_LOST;
}
static bool never(fleet *f)
{
    (void)f;
    return false;
}

static const ls__node_join own = { .node_rank = 0, .size = 2, .port = 3000, .host = "h0" };
static const ls__node_place common = {
    .restarts = 1, .max_restarts = 3, .grace_ms = 2500, .run_id = "job", .role = "default"
};

static void places_follow_node_ranks(void **state)
{
    (void)state;
    fleet f;
    ls__node_place mine;
    assert_ok(fleet_open(&f, 3, &own, "secret", 0));
    ls__spoke *a = fleet_spoke(&f, 2, 1, "secret", 0), *b = fleet_spoke(&f, -1, 4, "secret", 0);
    assert_true(fleet_serve(&f, all_here, 5));
    assert_ok(ls__hub_start(f.hub, &common, &mine));
    assert_true(fleet_serve(&f, all_placed, 5));
    const ls__node_place *pa = ls__spoke_place(a), *pb = ls__spoke_place(b);
    assert_int_equal(mine.world_size, 7);
    assert_int_equal(mine.first_rank, 0);
    assert_int_equal(mine.nodes, 3);
    assert_int_equal(pb->node, 1);
    assert_int_equal(pb->first_rank, 2);
    assert_int_equal(pb->local_size, 4);
    assert_int_equal(pa->node, 2);
    assert_int_equal(pa->first_rank, 6);
    assert_int_equal(pa->port, 3000);
    assert_int_equal(pa->max_restarts, 3);
    assert_int_equal(pa->grace_ms, 2500);
    assert_string_equal(pa->master_addr, "127.0.0.1");
    assert_string_equal(pa->run_id, "job");
    for (int rank = 0; rank < 7; rank++)
        assert_int_equal(ls__hub_launcher_of(f.hub, rank), rank < 2 ? 0 : rank < 6 ? 1 : 2);
    assert_true(ls__spoke_uncertainty(a) >= 0 && ls__spoke_uncertainty(a) < 1);
    fleet_close(&f);
}

/* Four tasks on two machines, dealt around: ranks 0 and 2 share one. */
static void launchers_of_a_machine_are_one_node(void **state)
{
    (void)state;
    fleet f;
    ls__node_place mine;
    ls__node_join first = own;
    first.size = 1;
    strcpy(first.machine, "m0");
    assert_ok(fleet_open(&f, 4, &first, "s", 0));
    for (int i = 1; i < 4; i++) {
        ls__spoke_options options = { .host = "127.0.0.1",
                                      .port = ls__hub_port(f.hub),
                                      .secret = "s",
                                      .join = { .node_rank = i, .size = 1, .port = 1 } };
        strcpy(options.join.machine, i % 2 ? "m1" : "m0");
        assert_ok(ls__spoke_create(&options, &f.spokes[f.nspokes++]));
    }
    assert_true(fleet_serve(&f, all_here, 5));
    assert_ok(ls__hub_start(f.hub, &common, &mine));
    assert_true(fleet_serve(&f, all_placed, 5));
    const ls__node_place *two = ls__spoke_place(f.spokes[1]), *three = ls__spoke_place(f.spokes[2]);
    assert_int_equal(mine.nodes, 2);
    assert_int_equal(mine.local_size, 2);
    assert_int_equal(two->node, 0);
    assert_int_equal(two->local_rank, 1);
    assert_int_equal(two->first_rank, 2);
    assert_int_equal(three->node, 1);
    assert_int_equal(three->local_rank, 1);
    fleet_close(&f);
}

static void strangers_stay_outside(void **state)
{
    (void)state;
    fleet f;
    assert_ok(fleet_open(&f, 2, &own, "secret", 0));
    ls__spoke *wrong = fleet_spoke(&f, -1, 1, "Secret", 0);
    assert_true(fleet_serve(&f, last_decided, 5));
    assert_non_null(strstr(ls__spoke_why(wrong), "secret"));
    ls__spoke *none = fleet_spoke(&f, -1, 1, "", 0);
    assert_true(fleet_serve(&f, last_decided, 5));
    assert_non_null(strstr(ls__spoke_why(none), "wants the job's secret"));
    ls__spoke *beyond = fleet_spoke(&f, 2, 1, "secret", 0);
    assert_true(fleet_serve(&f, last_decided, 5));
    assert_non_null(strstr(ls__spoke_why(beyond), "--node-rank 2 of 2"));
    ls__spoke *taken = fleet_spoke(&f, 0, 1, "secret", 0);
    assert_true(fleet_serve(&f, last_decided, 5));
    assert_non_null(strstr(ls__spoke_why(taken), "node 0 is there already: host h0"));
    assert_int_equal(ls__hub_here(f.hub), 1);
    fleet_close(&f);
}

/* One that wants a secret does not talk to a hub that has none. */
static void the_hub_must_know_the_secret_too(void **state)
{
    (void)state;
    fleet f;
    assert_ok(fleet_open(&f, 2, &own, "", 0));
    ls__spoke *s = fleet_spoke(&f, -1, 1, "secret", 0);
    assert_true(fleet_serve(&f, last_decided, 5));
    assert_non_null(strstr(ls__spoke_why(s), "another job"));
    fleet_close(&f);
}

static void whoever_goes_is_noticed_and_may_come_back(void **state)
{
    (void)state;
    fleet f;
    ls__node_place mine;
    assert_ok(fleet_open(&f, 2, &own, "s", 0));
    ls__spoke *s = fleet_spoke(&f, -1, 3, "s", 0);
    assert_true(fleet_serve(&f, all_here, 5));
    assert_ok(ls__hub_start(f.hub, &common, &mine));
    assert_true(fleet_serve(&f, all_placed, 5));
    ls__spoke_destroy(s);
    f.spokes[0] = NULL;
    assert_true(fleet_serve(&f, somebody_lost, 5));
    assert_string_equal(f.why, "its connection was closed");
    ls__spoke *other = fleet_spoke(&f, -1, 2, "s", 0);
    assert_true(fleet_serve(&f, last_decided, 5));
    assert_non_null(strstr(ls__spoke_why(other), "3 ranks before it was lost"));
    ls__spoke *again = fleet_spoke(&f, -1, 3, "s", 0);
    assert_true(fleet_serve(&f, all_here, 5));
    assert_int_equal(f.come[1], 2);
    assert_ok(ls__hub_start(f.hub, &common, &mine));
    f.spokes[0] = f.spokes[2];
    f.spokes[2] = NULL;
    f.nspokes = 1;
    ls__spoke_destroy(f.spokes[1]);
    assert_true(fleet_serve(&f, all_placed, 5));
    assert_int_equal(ls__spoke_place(again)->node, 1);
    fleet_close(&f);
}

/* Cut off: nothing says so. */
static void silence_is_noticed_on_both_sides(void **state)
{
    (void)state;
    fleet f;
    ls__node_place mine;
    assert_ok(fleet_open(&f, 2, &own, "s", 0.4));
    ls__spoke *s = fleet_spoke(&f, -1, 1, "s", 0.4);
    assert_true(fleet_serve(&f, all_here, 5));
    assert_ok(ls__hub_start(f.hub, &common, &mine));
    assert_true(fleet_serve(&f, all_placed, 5));
    assert_false(fleet_serve(&f, never, 0.8)); /* beats keep them */
    assert_int_equal(f.lost[1], 0);
    f.spokes[0] = NULL;
    assert_true(fleet_serve(&f, somebody_lost, 5));
    assert_non_null(strstr(f.why, "nothing was heard of it for"));
    f.spokes[0] = s;
    fleet_close(&f);

    assert_ok(fleet_open(&f, 2, &own, "s", 0));
    fleet_spoke(&f, -1, 1, "s", 0.4);
    assert_true(fleet_serve(&f, all_here, 5));
    assert_ok(ls__hub_start(f.hub, &common, &mine));
    assert_true(fleet_serve(&f, all_placed, 5));
    ls__hub *hub = f.hub;
    f.hub = NULL;
    assert_true(fleet_serve(&f, first_lost, 5));
    assert_non_null(strstr(ls__spoke_why(f.spokes[0]), "nothing was heard of it for"));
    f.hub = hub;
    fleet_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_follow_node_ranks),
        cmocka_unit_test(launchers_of_a_machine_are_one_node),
        cmocka_unit_test(strangers_stay_outside),
        cmocka_unit_test(the_hub_must_know_the_secret_too),
        cmocka_unit_test(whoever_goes_is_noticed_and_may_come_back),
        cmocka_unit_test(silence_is_noticed_on_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
