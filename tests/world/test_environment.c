/* Which variables make a rank, which are ignored, which are an error. */
#include "testing.h"

#include <unistd.h>

#include "base/memory.h"
#include "world/environment.h"

static const char *const every[] = {
    "RANK",          "LOCAL_RANK",       "WORLD_SIZE",          "MASTER_ADDR",
    "MASTER_PORT",   "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "LOCKSTEP__JOIN"
};

/* "NAME=value" words, NULL-ended; all else is unset. */
static ls_status read_with(const char *const *words, ls__place *place)
{
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) unsetenv(every[i]);
    for (int i = 0; words[i]; i++) {
        char name[64];
        size_t n = strcspn(words[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)n, words[i]);
        setenv(name, words[i] + n + 1, 1);
    }
    return ls__environment_read(place);
}
#define READ(place, ...) read_with((const char *[]) { __VA_ARGS__, NULL }, place)
#define FIVE(rank, local, size)                                                                    \
    "RANK=" rank, "LOCAL_RANK=" local, "WORLD_SIZE=" size, "MASTER_ADDR=host", "MASTER_PORT=29500"

static void incomplete_is_ignored(void **state)
{
    (void)state;
    ls__place p;
    const char *const none[] = { NULL };
    assert_ok(read_with(none, &p));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, "LOCAL_RANK=0"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_false(p.world_of_one);
    assert_ok(READ(&p, "MASTER_PORT=29500"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, "WORLD_SIZE=nonsense", "RANK=3"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, FIVE("0", "0", "2"), "RANK=")); /* empty is not set */
    assert_int_equal(p.by, LS__STARTED_ALONE);
}

static void complete_is_a_rank(void **state)
{
    (void)state;
    ls__place p, q;
    assert_ok(READ(&p, FIVE("1", "1", "2")));
    assert_int_equal(p.by, LS__STARTED_BY_OTHERS);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.size, 2);
    assert_int_equal(p.local_rank, 1);
    assert_ok(READ(&p, FIVE("0", "0", "1")));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_true(p.world_of_one);
    assert_ok(READ(&p, FIVE("0", "0", "2"), "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a"));
    assert_ok(READ(&q, FIVE("0", "0", "2"), "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a",
                   "TORCHELASTIC_RESTART_COUNT=1"));
    assert_string_not_equal(p.job, q.job); /* a restart is another job */
}

static void contradictions_are_errors(void **state)
{
    (void)state;
    ls__place p;
    assert_fails(READ(&p, FIVE("2", "0", "2")), LS_ERR_CONFIG, "RANK=2");
    assert_fails(READ(&p, FIVE("0", "5", "2")), LS_ERR_CONFIG, "LOCAL_RANK=5");
    assert_fails(READ(&p, FIVE("x", "0", "2")), LS_ERR_CONFIG, "RANK=x");
    assert_fails(READ(&p, FIVE("0", "0", "0")), LS_ERR_CONFIG, "WORLD_SIZE=0");
    assert_fails(READ(&p, FIVE("-1", "0", "2")), LS_ERR_CONFIG, "RANK=-1");
    assert_fails(READ(&p, FIVE("0", "0", "2"), "MASTER_PORT=99999"), LS_ERR_CONFIG, "MASTER_PORT");
    assert_fails(READ(&p, FIVE("0", "0", "2"), "LOCAL_WORLD_SIZE=3"), LS_ERR_CONFIG,
                 "LOCAL_WORLD_SIZE=3");
    assert_fails(READ(&p, FIVE("0", "0", "4"), "LOCAL_WORLD_SIZE=2"), LS_ERR_UNSUPPORTED,
                 "several machines need an engine");
}

static void our_own_goes_round(void **state)
{
    (void)state;
    ls__place p = { .rank = 2,
                    .size = 3,
                    .socket_fd = 5,
                    .memory_fd = 6,
                    .board_fd = 7,
                    .restarts = 1,
                    .terminal = true,
                    .crowded = true,
                    .started = 1.0 / 3,
                    .plan = { .threads = 4, .pin = true, .text = "3 CPU devices" } },
              q;
    for (int i = 0; i < 2; i++) {
        char *word = ls__environment_for_child(&p);
        assert_non_null(word);
        assert_ok(READ(&q, word, FIVE("0", "0", "9"))); /* ours counts */
        ls__free(word);
        assert_int_equal(q.by, LS__STARTED_BY_US);
        assert_int_equal(q.rank, 2);
        assert_int_equal(q.size, 3);
        assert_int_equal(q.board_fd, 7);
        assert_int_equal(q.restarts, 1);
        assert_true(q.terminal && q.crowded && q.plan.pin);
        assert_true(q.started == p.started);
        assert_int_equal(q.plan.threads, 4);
        assert_int_equal(q.plan.count, 3);
        assert_string_equal(q.plan.text, p.plan.text);
        assert_string_equal(q.plan.hint, p.plan.hint);
        assert_null(getenv("LOCKSTEP__JOIN")); /* children of a rank are no ranks */
        snprintf(p.plan.hint, sizeof p.plan.hint, "3 of 8 CPUs; --threads-per-device 2");
    }
    assert_fails(READ(&q, "LOCKSTEP__JOIN=1 rank=0"), LS_ERR_CONFIG, "unset it");
    assert_fails(READ(&q, "LOCKSTEP__JOIN="), LS_ERR_CONFIG, "unset it");
    p.rank = 3;
    char *word = ls__environment_for_child(&p);
    assert_fails(READ(&q, word), LS_ERR_CONFIG, "unset it");
    ls__free(word);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(incomplete_is_ignored),
                                        cmocka_unit_test(complete_is_a_rank),
                                        cmocka_unit_test(contradictions_are_errors),
                                        cmocka_unit_test(our_own_goes_round) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
