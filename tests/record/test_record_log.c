/* metrics.jsonl as it is written: lines, repair, disks that are full or hang, heartbeats. */
#include "testing.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "helper_run.h"

static ls__run_folder folder;

static int setup(void **state)
{
    if (fresh_runs(state) != 0) return -1;
    return ls__run_folder_open(runs_dir, "fox", &folder) == LS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    ls__run_folder_close(&folder);
    return remove_runs(state);
}

static void log_loss(ls__record_log *log, int64_t step, double loss)
{
    static const char *const names[] = { "train/loss" };
    ls__record_metrics(log, step, (double)step / 100, names, &loss, 1);
}

/* Line i of the file, -1 = the last; NULL = there is none. */
static json_t *line_of(int i)
{
    char *text = read_text_file(run_file("fox", "metrics.jsonl"));
    json_t *found = NULL;
    int n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        json_t *object = json_loads(line, 0, NULL);
        if (!object) fail_msg("not JSON: %s", line);
        if (i < 0 || n == i) {
            json_decref(found);
            found = json_incref(object);
        }
        json_decref(object);
        n++;
    }
    free(text);
    return found;
}

static void assert_line(int i, const char *expected)
{
    json_t *line = line_of(i), *wanted = json_loads(expected, 0, NULL);
    assert_non_null(wanted);
    if (!line) fail_msg("no line %d", i);
    if (json_object_get(line, "time")) {
        double age = ls__wall_time() - json_number_value(json_object_get(line, "time"));
        assert_true(age >= 0 && age < 60);
        json_object_del(line, "time");
    }
    if (!json_equal(line, wanted)) fail_msg("%s is not %s", json_dumps(line, 0), expected);
    json_decref(line);
    json_decref(wanted);
}

static void lines(void **state)
{
    (void)state;
    ls__record_log *log;
    static const char *const names[] = { "train/loss", "val/top5/a", "train/lr" };
    double values[] = { 0.5, NAN, -INFINITY };
    assert_ok(ls__record_open(&folder, 0, &log));
    ls__record_metrics(log, 50, 0.25, names, values, 3);
    values[0] = 7; /* copied */
    ls__record_event(log, "checkpoint", json_pack("{s:i}", "step", 50));
    ls__record_event(log, "stop", NULL);
    assert_ok(ls__record_close(log));
    assert_line(0, "{\"schema\":\"lockstep.metrics/1\"}");
    assert_line(1, "{\"step\":50,\"epoch\":0.25,\"train\":{\"loss\":0.5,\"lr\":null},"
                   "\"val\":{\"top5/a\":null}}");
    assert_line(2, "{\"event\":\"checkpoint\",\"step\":50}");
    assert_line(3, "{\"event\":\"stop\"}");
    assert_null(line_of(4));
    assert_ok(ls__record_close(NULL));
}

static void reserved_names(void **state)
{
    (void)state;
    ls__record_log *log;
    static const char *const names[] = { "step/x", "loss", "/x", "train/", "train/ok" };
    double values[] = { 1, 2, 3, 4, 5 };
    assert_ok(ls__record_open(&folder, 0, &log));
    ls__record_metrics(log, 1, 0, names, values, 5);
    assert_ok(ls__record_close(log));
    assert_line(1, "{\"step\":1,\"epoch\":0.0,\"train\":{\"ok\":5.0}}");
}

static void later_start(void **state)
{
    (void)state;
    ls__record_log *log;
    assert_ok(ls__record_open(&folder, 0, &log));
    log_loss(log, 50, 1);
    log_loss(log, 100, 2);
    assert_ok(ls__record_close(log));
    assert_ok(ls__record_open(&folder, 50, &log));
    log_loss(log, 100, 3);
    assert_ok(ls__record_close(log));
    assert_line(3, "{\"rewind\":50}");
    assert_line(4, "{\"step\":100,\"epoch\":1.0,\"train\":{\"loss\":3.0}}");
}

/* A file of two whole lines with this behind them is cut back to the two. */
static void repaired(const void *tail, size_t nbytes)
{
    static const char whole[] = "{\"schema\":\"lockstep.metrics/1\"}\n{\"step\":1}\n";
    size_t n = strlen(whole);
    char *bytes = malloc(n + nbytes);
    memcpy(bytes, whole, n);
    if (nbytes > 0) memcpy(bytes + n, tail, nbytes);
    write_text_file(run_file("fox", "metrics.jsonl"), bytes, n + nbytes);
    free(bytes);
    ls__record_log *log;
    assert_ok(ls__record_open(&folder, 1, &log));
    assert_ok(ls__record_close(log));
    char *text = read_text_file(run_file("fox", "metrics.jsonl"));
    assert_memory_equal(text, whole, n);
    free(text);
    assert_line(2, "{\"rewind\":1}");
    assert_null(line_of(3));
}

static void torn(void **state)
{
    (void)state;
    char *zeros = calloc(3, 5000);
    repaired("", 0);
    repaired("{\"step\":2,\"tr", 13);
    repaired("{\"step\":2}", 10); /* whole but for its newline: nobody promised it */
    repaired("{\"step\":2,\n", 11);
    repaired("\n\n\n", 3);
    repaired(zeros, 15000);
    zeros[14999] = '\n';
    repaired(zeros, 15000);
    memset(zeros, 'x', 15000);
    repaired(zeros, 15000);
    free(zeros);
    write_text_file(run_file("fox", "metrics.jsonl"), "{\"sche", 6);
    ls__record_log *log;
    assert_ok(ls__record_open(&folder, 0, &log));
    assert_ok(ls__record_close(log));
    assert_line(0, "{\"schema\":\"lockstep.metrics/1\"}");
    assert_null(line_of(1));
}

static void limit_files(rlim_t nbytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = nbytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A disk that is full for a while costs nothing; one that stays full, what did not fit. */
static void full_for_a_while(void **state)
{
    (void)state;
    ls__record_log *log;
    assert_ok(ls__record_open(&folder, 0, &log));
    limit_files(100); /* in the middle of the second line */
    for (int i = 1; i <= 20; i++) log_loss(log, i, i);
    ls__sleep_ms(300);
    struct stat info;
    assert_int_equal(stat(run_file("fox", "metrics.jsonl"), &info), 0);
    limit_files(RLIM_INFINITY);
    assert_true(info.st_size > 30 && info.st_size <= 100);
    assert_ok(ls__record_close(log));
    for (int i = 1; i <= 20; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "{\"step\":%d,\"epoch\":%.2f,\"train\":{\"loss\":%d.0}}", i, i / 100.0, i);
        assert_line(i, expected);
    }
}

static void full_for_good(void **state)
{
    (void)state;
    ls__record_log *log;
    assert_ok(ls__record_open(&folder, 0, &log));
    limit_files(200);
    double before = ls__now();
    for (int i = 1; i <= 20; i++) log_loss(log, i, i);
    ls_status status = ls__record_close(log);
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, LS_ERR_IO);
    assert_non_null(strstr(ls_error_text(), "lines of metrics were lost: "));
    assert_non_null(strstr(ls_error_text(), "metrics.jsonl: cannot write"));
    assert_true(ls__now() - before < 5);
    json_t *last = line_of(-1); /* whole lines only */
    assert_non_null(json_object_get(last, "train"));
    json_decref(last);
}

/* A pipe that nobody reads: a write that never returns. */
static void disk_hangs(void **state)
{
    (void)state;
    ls__record_log *log;
    assert_int_equal(mkfifo(run_file("fox", "metrics.jsonl"), 0666), 0);
    assert_ok(ls__record_open(&folder, 0, &log));
    double before = ls__now();
    for (int i = 1; i <= 5000; i++) log_loss(log, i, i);
    assert_true(ls__now() - before < 5); /* the loop does not notice */
    assert_fails(ls__record_close(log), LS_ERR_IO, "still not written after 10 s");
    assert_true(ls__now() - before < 15);
}

static void bounded(void **state)
{
    (void)state;
    ls__record_log *log;
    char *text = malloc(1 << 20);
    memset(text, 'x', 1 << 20);
    text[(1 << 20) - 1] = '\0';
    assert_ok(ls__record_open(&folder, 0, &log));
    limit_files(100);
    for (int i = 0; i < 80; i++) ls__record_event(log, "big", json_pack("{s:s}", "text", text));
    ls__sleep_ms(1500); /* retried once at least */
    limit_files(RLIM_INFINITY);
    ls_status status = ls__record_close(log);
    assert_int_equal(status, LS_ERR_IO);
    int lost = atoi(ls_error_text());
    assert_in_range(lost, 10, 20); /* of 80 MiB 64 were kept */
    free(text);
}

static void heartbeat(void **state)
{
    (void)state;
    ls__record_log *log;
    json_t *read, *document = json_pack("{s:s}", "status", "running");
    assert_ok(ls__record_open(&folder, 0, &log));
    ls__record_heartbeat(log, json_incref(document));
    for (int i = 0; i < 100; i++) {
        ls__sleep_ms(20);
        assert_ok(ls__run_json_read(folder.path, &read));
        if (read) break;
    }
    assert_non_null(read);
    assert_non_null(json_object_get(read, "heartbeat"));
    json_decref(read);
    json_object_set_new(document, "status", json_string("changed")); /* ours alone */
    ls__record_heartbeat(log, json_pack("{s:s}", "status", "stopping"));
    assert_ok(ls__record_close(log));
    assert_ok(ls__run_json_write(&folder, document));
    assert_ok(ls__run_json_read(folder.path, &read));
    assert_string_equal(json_string_value(json_object_get(read, "status")), "changed");
    json_decref(read);
    json_decref(document);
}

/* Other threads may log too; no line is torn or lost. */
static void *log_many(void *user)
{
    for (int i = 0; i < 2000; i++) log_loss(user, i, i);
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    ls__record_log *log;
    pthread_t all[4];
    assert_ok(ls__record_open(&folder, 0, &log));
    for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, log_many, log);
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
    assert_ok(ls__record_close(log));
    char *text = read_text_file(run_file("fox", "metrics.jsonl"));
    int n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, n++) *end = '\0';
    free(text);
    assert_int_equal(n, 8001);
}

static void cannot_open(void **state)
{
    (void)state;
    ls__record_log *log;
    assert_int_equal(mkdir(run_file("fox", "metrics.jsonl"), 0777), 0);
    assert_fails(ls__record_open(&folder, 0, &log), LS_ERR_IO, "metrics.jsonl");
    assert_null(log);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    ls__log_set_level(LS__LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines, setup, teardown),
        cmocka_unit_test_setup_teardown(reserved_names, setup, teardown),
        cmocka_unit_test_setup_teardown(later_start, setup, teardown),
        cmocka_unit_test_setup_teardown(torn, setup, teardown),
        cmocka_unit_test_setup_teardown(full_for_a_while, setup, teardown),
        cmocka_unit_test_setup_teardown(full_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(heartbeat, setup, teardown),
        cmocka_unit_test_setup_teardown(threads, setup, teardown),
        cmocka_unit_test_setup_teardown(cannot_open, setup, teardown),
        cmocka_unit_test_setup_teardown(disk_hangs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
