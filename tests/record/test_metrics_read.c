/* metrics.jsonl as it is read. */
#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "base/memory.h"
#include "helper_run.h"

static ls__metrics m;

static void read_text(const char *text)
{
    write_text_file(run_file("", "metrics.jsonl"), text, strlen(text));
    ls__metrics_free(&m);
    assert_ok(ls__metrics_read(run_file("", "metrics.jsonl"), &m));
}

static void assert_series(const char *name, int n, const int64_t *steps, const double *values)
{
    const ls__metric_series *s = ls__metrics_find(&m, name);
    if (!s) fail_msg("no %s", name);
    assert_int_equal(s->count, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(s->points[i].step, steps[i]);
        if (isnan(values[i]))
            assert_true(isnan(s->points[i].value));
        else
            assert_true(s->points[i].value == values[i]);
    }
}

static void series(void **state)
{
    (void)state;
    read_text("{\"schema\":\"lockstep.metrics/1\"}\n"
              "{\"step\":50,\"epoch\":0.5,\"time\":7.5,\"train\":{\"loss\":0.5,\"lr\":1}}\n"
              "{\"event\":\"checkpoint\",\"step\":60,\"x\":{\"y\":1}}\n"
              "{\"step\":100,\"train\":{\"loss\":null},\"val\":{\"loss\":2,\"top5/a\":3}}\n"
              "{\"step\":100,\"val\":{\"loss\":4},\"later\":[1],\"also\":{\"s\":\"text\"}}\n");
    assert_int_equal(m.count, 4);
    assert_int_equal(m.skipped, 0);
    assert_string_equal(m.series[0].name, "train/loss");
    assert_series("train/loss", 2, (int64_t[]) { 50, 100 }, (double[]) { 0.5, NAN });
    assert_series("train/lr", 1, (int64_t[]) { 50 }, (double[]) { 1 });
    assert_series("val/loss", 1, (int64_t[]) { 100 }, (double[]) { 4 }); /* the later counts */
    assert_series("val/top5/a", 1, (int64_t[]) { 100 }, (double[]) { 3 });
    assert_null(ls__metrics_find(&m, "x/y"));
    assert_true(m.series[0].points[0].epoch == 0.5 && m.series[0].points[0].time == 7.5);
    assert_true(isnan(m.series[0].points[1].epoch));
    ls__metrics_free(&m);
}

static void rewinds(void **state)
{
    (void)state;
    read_text("{\"step\":1,\"a\":{\"x\":1}}\n{\"step\":2,\"a\":{\"x\":2}}\n"
              "{\"step\":3,\"a\":{\"x\":3},\"b\":{\"x\":3}}\n"
              "{\"rewind\":2}\n{\"step\":4,\"a\":{\"x\":40}}\n"
              "{\"rewind\":1,\"time\":3}\n{\"step\":3,\"a\":{\"x\":30}}\n");
    assert_series("a/x", 2, (int64_t[]) { 1, 3 }, (double[]) { 1, 30 });
    assert_series("b/x", 0, NULL, NULL);
    ls__metrics_free(&m);
}

static void out_of_order(void **state)
{
    (void)state;
    read_text("{\"step\":3,\"a\":{\"x\":3}}\n{\"step\":1,\"a\":{\"x\":1}}\n"
              "{\"step\":2,\"a\":{\"x\":2}}\n{\"step\":1,\"a\":{\"x\":10}}\n");
    assert_series("a/x", 3, (int64_t[]) { 1, 2, 3 }, (double[]) { 10, 2, 3 });
    ls__metrics_free(&m);
}

static void garbage(void **state)
{
    (void)state;
    read_text("{\"step\":1,\"a\":{\"x\":1}}\n{\"step\":2,\"a\":{\"x\n\xff\xff\n[1]\n\n"
              "{\"step\":\"3\",\"a\":{\"x\":3}}\n{\"step\":3,\"step\":4,\"a\":{\"x\":3}}\n"
              "{\"step\":4,\"a\":{\"x\":4}}");
    assert_int_equal(m.skipped, 5);
    assert_series("a/x", 2, (int64_t[]) { 1, 4 }, (double[]) { 1, 4 });
    /* A line longer than a megabyte, and what comes after it. */
    size_t n = 3 << 20;
    char *text = malloc(n + 64);
    memset(text, ' ', n);
    snprintf(text + n, 64, "{\"step\":1,\"a\":{\"x\":1}}\n{\"step\":2,\"a\":{\"x\":2}}\n");
    read_text(text);
    free(text);
    assert_int_equal(m.skipped, 1);
    assert_series("a/x", 1, (int64_t[]) { 2 }, (double[]) { 2 });
    read_text("");
    assert_int_equal(m.count, 0);
    ls__metrics_free(&m);
    assert_fails(ls__metrics_read("/nonexistent", &m), LS_ERR_IO, "/nonexistent");
}

/* What the log wrote, the reader reads. */
static void round_trip(void **state)
{
    (void)state;
    ls__run_folder folder;
    ls__record_log *log;
    static const char *const names[] = { "train/loss", "val/\"odd\"\n/name" };
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    for (int start = 0; start < 3; start++) {
        assert_ok(ls__record_open(&folder, start * 50, &log));
        for (int64_t step = start * 50 + 10; step <= 200; step += 10) {
            double values[] = { 1.0 / (double)step, (double)(start * 1000 + step) };
            ls__record_metrics(log, step, 0, names, values, 2);
        }
        assert_ok(ls__record_close(log));
    }
    ls__run_folder_close(&folder);
    assert_ok(ls__metrics_read(run_file("fox", "metrics.jsonl"), &m));
    const ls__metric_series *s = ls__metrics_find(&m, names[1]);
    assert_int_equal(s->count, 20);
    for (int i = 0; i < 20; i++) {
        int64_t step = 10 * (i + 1);
        int start = step <= 50 ? 0 : step <= 100 ? 1 : 2;
        assert_int_equal(s->points[i].step, step);
        assert_true(s->points[i].value == (double)(start * 1000 + step));
        assert_true(m.series[0].points[i].value == 1.0 / (double)step);
    }
    ls__metrics_free(&m);
}

static void out_of_memory(void **state)
{
    (void)state;
    read_text("{\"step\":1,\"a\":{\"x\":1,\"y\":2}}\n{\"step\":2,\"a\":{\"x\":2}}\n");
    ls_status status = LS_ERR_MEMORY;
    long n = 0;
    while (status != LS_OK) {
        ls__metrics_free(&m);
        ls__alloc_fail_at(++n);
        status = ls__metrics_read(run_file("", "metrics.jsonl"), &m);
        ls__alloc_fail_at(0);
        if (status != LS_OK) assert_int_equal(status, LS_ERR_MEMORY);
    }
    assert_int_equal(m.count, 2);
    assert_true(n > 5);
    ls__metrics_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series),  cmocka_unit_test(rewinds),    cmocka_unit_test(out_of_order),
        cmocka_unit_test(garbage), cmocka_unit_test(round_trip), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, fresh_runs, remove_runs);
}
