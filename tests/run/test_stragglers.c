/* Who is told of as slow: the rank, or the machine, that the others waited for in most of the steps. */
#include "run/stragglers.h"
#include "testing.h"

#include "base/memory.h"

enum { WINDOW = 50 };

static const int nodes[] = { 0, 0, 1, 1 };

/* A window in which `slow` (of two in turn, where there are two) does not wait, the others 100 ms. */
static bool window(ls__stragglers *s, int slow, int also, double step_ms, ls__straggler *out)
{
    bool told = false;
    for (int i = 0; i < WINDOW; i++) {
        float waits[4] = { 100, 101, 102, 103 };
        assert_false(told); /* at the end only */
        if (slow >= 0) waits[slow] = (float)(i % 2);
        if (also >= 0) waits[also] = (float)((i + 1) % 2);
        told = ls__stragglers_step(s, waits, step_ms, out);
    }
    return told;
}

static void a_rank(void **state)
{
    (void)state;
    ls__stragglers s;
    ls__straggler who;
    assert_ok(ls__stragglers_make(&s, 4, NULL));
    assert_false(window(&s, -1, -1, 300, &who)); /* all wait alike */
    assert_false(window(&s, 2, -1, 600, &who));  /* for a small part of the step */
    assert_true(window(&s, 2, -1, 300, &who));
    assert_int_equal(who.rank, 2);
    assert_int_equal(who.steps, WINDOW);
    assert_int_equal(who.of, WINDOW);
    assert_true(who.held_ms == 100.5);
    assert_false(window(&s, 2, -1, 300, &who)); /* once is enough */
    assert_true(window(&s, 0, -1, 300, &who));
    assert_int_equal(who.rank, 0);
    assert_false(window(&s, 1, 3, 300, &who)); /* now this one, now that */
    ls__stragglers_free(&s);
}

static void a_machine(void **state)
{
    (void)state;
    ls__stragglers s;
    ls__straggler who;
    assert_ok(ls__stragglers_make(&s, 4, nodes));
    assert_true(window(&s, 2, 3, 300, &who));
    assert_int_equal(who.rank, -1);
    assert_int_equal(who.node, 1);
    assert_false(window(&s, 2, 3, 300, &who));
    assert_true(window(&s, 3, -1, 300, &who)); /* one of them alone */
    assert_int_equal(who.rank, 3);
    assert_int_equal(who.node, 1);
    assert_false(window(&s, 1, 2, 300, &who));
    ls__stragglers_free(&s);
}

static void nobody(void **state)
{
    (void)state;
    ls__stragglers s = { 0 };
    ls__straggler who;
    float waits[2] = { 0, 100 };
    for (int i = 0; i < 2 * WINDOW; i++) assert_false(ls__stragglers_step(&s, waits, 100, &who));
    for (long n = 1; n <= 3; n++) {
        ls__alloc_fail_at(n);
        assert_fails(ls__stragglers_make(&s, 4, NULL), LS_ERR_MEMORY, "");
        ls__stragglers_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank),
        cmocka_unit_test(a_machine),
        cmocka_unit_test(nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
