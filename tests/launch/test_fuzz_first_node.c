/* What a first node leaves for its return: mutated, with fields that are missing or out of range, and as it is. */
#include "testing.h"

#include "launch/fuzz_first_node.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

static const char good[] =
    "{\"schema\": \"lockstep.first-node/1\", \"key\": \"00ff\", \"host\": \"a\", \"run_id\": "
    "\"job\", \"secret\": \"s\", \"port\": 4711, \"restarts\": 1, \"started\": true, \"nodes\": "
    "[{\"host\": \"a\", \"ranks\": 2}, {\"host\": \"b\", \"ranks\": 1}]}";

static void mutated(void **state)
{
    (void)state;
    fuzz_seed(good, sizeof good - 1, 4000);
}

static void as_it_is(void **state)
{
    (void)state;
    ls__first_before before;
    assert_ok(ls__first_before_parse(good, sizeof good - 1, &before));
    assert_string_equal(before.run_id, "job");
    assert_int_equal(before.port, 4711);
    assert_int_equal(before.restarts, 1);
    assert_true(before.started);
    assert_int_equal(before.nodes, 2);
    assert_string_equal(before.joins[1].host, "b");
    assert_int_equal(before.joins[0].size, 2);
    ls__first_before_free(&before);
    assert_null(before.joins);
}

/* good, with one text in the place of another */
static void assert_refused(const char *text, const char *instead)
{
    char changed[1000];
    ls__first_before before;
    const char *at = strstr(good, text);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - good), good, instead,
             at + strlen(text));
    assert_fails(ls__first_before_parse(changed, strlen(changed), &before), LS_ERR_DATA,
                 "not what a first node leaves");
    assert_null(before.joins);
}

static void out_of_range(void **state)
{
    (void)state;
    assert_refused("first-node/1", "first-node/2");
    assert_refused("4711", "0");
    assert_refused("4711", "65536");
    assert_refused("\"restarts\": 1", "\"restarts\": -1");
    assert_refused("true", "1");
    assert_refused("\"ranks\": 2", "\"ranks\": 1000000000");
    assert_refused("\"ranks\": 1", "\"rank\": 1");
    assert_refused("00ff", "0123456789012345678901234567890123456789");
    assert_refused("]}", "]");
    assert_refused("\"job\"", "null");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutated), cmocka_unit_test(as_it_is),
                                        cmocka_unit_test(out_of_range) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
