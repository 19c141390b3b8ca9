/* The progress line. */
#include "testing.h"

#include <math.h>

#include "record/record.h"

static const char *const names[] = { "accuracy", "top5" };
static const double values[] = { 0.91, 0.99 };

static ls__progress example(void)
{
    return (ls__progress) { .step = 120,
                            .steps = 704,
                            .epoch = 0.51,
                            .epochs = 3,
                            .loss = 0.43125,
                            .rate = 12345,
                            .eta = 41.6,
                            .names = names,
                            .values = values,
                            .n = 2 };
}

static void assert_text(ls__progress p, int width, const char *expected)
{
    char text[512];
    ls__progress_text(&p, width, text, sizeof text);
    assert_string_equal(text, expected);
}

static void whole(void **state)
{
    (void)state;
    ls__progress p = example();
    assert_text(p, 0,
                "epoch 1/3  step 120/704  loss 0.4313  accuracy 0.9100  top5 0.9900  "
                "12.3k samples/s  ETA 0:42");
    p.unit = "tokens";
    assert_text(p, 0,
                "epoch 1/3  step 120/704  loss 0.4313  accuracy 0.9100  top5 0.9900  "
                "12.3k tokens/s  ETA 0:42");
    p = (ls__progress) { .step = 5, .epoch = 7.99, .loss = NAN, .rate = NAN, .eta = NAN };
    assert_text(p, 0, "epoch 8  step 5");
    p = (ls__progress) {
        .step = 9, .epoch = 3, .epochs = 3, .loss = 0.5, .eta = NAN, .stage = "val"
    };
    assert_text(p, 0, "val  epoch 3/3  step 9  loss 0.5000");
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double rate, eta;
        const char *text;
    } cases[] = {
        { 8.44, 0, "epoch 1  step 0  8.4 samples/s  ETA 0:00" },
        { 512, 59.6, "epoch 1  step 0  512 samples/s  ETA 1:00" },
        { 99949, 725, "epoch 1  step 0  99.9k samples/s  ETA 12:05" },
        { 123456, 3600, "epoch 1  step 0  123k samples/s  ETA 1:00:00" },
        { 4.56e6, 11220, "epoch 1  step 0  4.56M samples/s  ETA 3:07:00" },
        { 0, 360000, "epoch 1  step 0  ETA 100:00:00" },
        { INFINITY, INFINITY, "epoch 1  step 0" },
        { -1, -1, "epoch 1  step 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls__progress p = { .loss = NAN, .rate = cases[i].rate, .eta = cases[i].eta };
        assert_text(p, 0, cases[i].text);
    }
    ls__progress p = { .loss = 12345.6, .eta = NAN };
    assert_text(p, 0, "epoch 1  step 0  loss 1.235e+04");
}

/* Narrower and narrower: never wider than the terminal, the step last to go. */
static void fits(void **state)
{
    (void)state;
    ls__progress p = example();
    assert_text(p, 80,
                "epoch 1/3  step 120/704  loss 0.4313  accuracy 0.9100  "
                "12.3k samples/s  ETA 0:42");
    assert_text(p, 70, "epoch 1/3  step 120/704  loss 0.4313  12.3k samples/s  ETA 0:42");
    assert_text(p, 50, "epoch 1/3  step 120/704  loss 0.4313  ETA 0:42");
    assert_text(p, 40, "step 120/704  loss 0.4313  ETA 0:42");
    assert_text(p, 30, "step 120/704  loss 0.4313");
    assert_text(p, 20, "step 120/704");
    assert_text(p, 4, "step");
    for (int width = 1; width < 100; width++) {
        char text[512];
        ls__progress_text(&p, width, text, sizeof text);
        assert_true((int)strlen(text) <= width);
        assert_true(strncmp(text, "step", 4) == 0 || strstr(text, "step") || width < 4);
    }
    char little[10];
    ls__progress_text(&p, 0, little, sizeof little);
    assert_string_equal(little, "epoch 1/3");
    static const char *const odd[] = { "\xc3\xa9\xc3\xa9" };
    p = (ls__progress) { .loss = NAN, .eta = NAN, .names = odd, .values = values, .n = 1 };
    assert_text(p, 26, "epoch 1  step 0  \xc3\xa9\xc3\xa9 0.9100"); /* columns, not bytes */
    assert_text(p, 25, "epoch 1  step 0");
}

static void due(void **state)
{
    (void)state;
    double last = 0;
    assert_true(ls__progress_due(&last, true));
    assert_false(ls__progress_due(&last, true));
    last -= 0.2;
    assert_false(ls__progress_due(&last, false));
    assert_true(ls__progress_due(&last, true));
    last -= 11;
    assert_true(ls__progress_due(&last, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whole), cmocka_unit_test(numbers),
                                        cmocka_unit_test(fits), cmocka_unit_test(due) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
