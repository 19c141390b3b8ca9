/* Verdict, exit code and words of every way a job can end; out-of-memory kills by made-up cgroups. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "world/oom.h"
#include "world/report.h"

static void ends_have_one_name_each(void **state)
{
    (void)state;
    static const struct {
        ls__end end;
        const char *verdict, *retry, *text;
        int code;
    } cases[] = {
        { { .kind = LS__END_FINISHED, .rank = -1 }, "finished", "no", "finished after 2.0 s", 0 },
        { { .kind = LS__END_STOPPED, .rank = -1, .signal = SIGTERM },
          "stopped",
          "yes",
          "stopped by SIGTERM at step 37; everything is saved",
          75 },
        { { .kind = LS__END_STOPPED, .rank = -1, .signal = SIGUSR1 },
          "preempted",
          "yes",
          "stopped by SIGUSR1",
          75 },
        { { .kind = LS__END_STOPPED, .rank = -1, .signal = SIGINT },
          "stopped",
          "yes",
          "stopped by SIGINT",
          130 },
        { { .kind = LS__END_SIGNAL, .rank = 1, .signal = SIGKILL },
          "signalled",
          "unknown",
          "rank 1 was killed by SIGKILL (signal 9) at step 37",
          137 },
        { { .kind = LS__END_SIGNAL, .rank = 1, .signal = SIGKILL, .out_of_memory = true },
          "out-of-memory",
          "no",
          "rank 1 was killed by the kernel at step 37: memory ran out",
          137 },
        { { .kind = LS__END_EXIT, .rank = 0, .exit_code = 7 },
          "failed",
          "unknown",
          "rank 0 exited with code 7 at step 37",
          7 },
        { { .kind = LS__END_EXIT, .rank = 0, .exit_code = 3 }, "diverged", "no", "code 3", 3 },
        { { .kind = LS__END_EXIT, .rank = 0, .exit_code = 124 },
          "hung",
          "unknown",
          "code 124",
          124 },
        { { .kind = LS__END_EARLY, .rank = 0 }, "failed", "unknown", "without ls_world_finish", 1 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_CONFIG, .said = "no" },
          "usage",
          "no",
          "rank 1 failed at step 37: no",
          2 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_IO, .said = "full" },
          "io",
          "no",
          "full",
          74 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_MEMORY, .said = "m" },
          "out-of-memory",
          "no",
          "m",
          1 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_TIMEOUT, .said = "t" },
          "hung",
          "unknown",
          "t",
          69 },
        { { .kind = LS__END_STATUS,
            .rank = -1,
            .status = LS_ERR_TIMEOUT,
            .joining = true,
            .said = "rank 2 did not come" },
          "rendezvous-timeout",
          "yes",
          "rank 2 did not come",
          69 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_MISMATCH, .said = "x" },
          "mismatch",
          "no",
          "x",
          76 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_PEER, .said = "p" },
          "node-lost",
          "yes",
          "p",
          69 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_DIVERGED, .said = "d" },
          "diverged",
          "no",
          "d",
          3 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_INTERNAL, .said = "i" },
          "internal",
          "no",
          "i",
          70 },
        { { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_DATA, .exit_code = 9, .said = "e" },
          "usage",
          "no",
          "e",
          9 },
        { { .kind = LS__END_ABORT, .rank = 1, .said = "a" },
          "failed",
          "unknown",
          "rank 1 ended the job at step 37: a",
          1 },
        { { .kind = LS__END_LOST, .rank = 1, .pid = 12 },
          "node-lost",
          "yes",
          "rank 1 (process 12) died at step 37",
          69 },
        { { .kind = LS__END_GRACE_OVER, .rank = -1, .signal = SIGTERM, .grace = 25 },
          "signalled",
          "unknown",
          "had not stopped 25 s later",
          143 },
        { { .kind = LS__END_SECOND, .rank = -1, .signal = SIGINT },
          "signalled",
          "unknown",
          "a second SIGINT",
          130 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls__report report = { .end = cases[i].end,
                              .size = 2,
                              .step = 37,
                              .checkpoint = "runs/a/checkpoints/step-00000030",
                              .seconds = 2 };
        json_t *document = ls__report_json(&report);
        const char *text = json_string_value(json_object_get(document, "text"));
        assert_int_equal(ls__report_exit_code(&cases[i].end), cases[i].code);
        assert_string_equal(json_string_value(json_object_get(document, "verdict")),
                            cases[i].verdict);
        assert_string_equal(json_string_value(json_object_get(document, "retry")), cases[i].retry);
        if (!strstr(text, cases[i].text)) fail_msg("\"%s\"", text);
        json_decref(document);
    }
}

/* Before the first step a wrong flag or file is everybody's. */
static void usage_names_no_rank(void **state)
{
    (void)state;
    ls__report report = {
        .end = { .kind = LS__END_STATUS, .rank = 1, .status = LS_ERR_DATA, .said = "x.idx: empty" },
        .size = 2,
        .step = -1,
        .checkpoint = ""
    };
    char text[LS__REPORT_TEXT];
    ls__report_text(&report, text);
    assert_string_equal(text, "x.idx: empty");
    report.end.status = LS_ERR_IO;
    ls__report_text(&report, text);
    assert_string_equal(text, "rank 1 failed: x.idx: empty");
}

static void broken_text_is_mended(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "plain\ttext\n", "plain\ttext\n" },
        { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
        { "a\x01\x7f\x1b[31m", "a???[31m" },
        { "\xc3", "?" },
        { "\xe2\x82", "??" },
        { "\xc0\xaf", "??" },           /* overlong */
        { "\xe0\x80\xaf", "???" },      /* overlong */
        { "\xed\xa0\x80", "???" },      /* a surrogate */
        { "\xf4\x90\x80\x80", "????" }, /* beyond the last code point */
        { "\xf8\x88\x80\x80\x80", "?????" },
        { "\xff\xfe", "??" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].in);
        ls__clean_text(text);
        assert_string_equal(text, cases[i].out);
        json_t *string = json_string(text);
        assert_non_null(string);
        json_decref(string);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void reports_go_where_they_can(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep-report-XXXXXX", path[100], link[100];
    assert_non_null(mkdtemp(folder));
    ls__report report = { .end = { .rank = -1 }, .size = 1, .step = -1, .checkpoint = "" };
    snprintf(path, sizeof path, "%s/r.json", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_ok(ls__report_check_path(path));
    assert_ok(ls__report_write(&report, path));
    assert_ok(ls__report_check_path(path));
    assert_int_equal(symlink(path, link), 0);
    write_file(path, "old");
    assert_ok(ls__report_write(&report, link)); /* written through, not replaced */
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    json_t *document = json_load_file(path, 0, NULL);
    assert_non_null(document);
    json_decref(document);
    assert_ok(ls__report_check_path("/dev/null"));
    assert_ok(ls__report_write(&report, "/dev/null"));
    assert_fails(ls__report_check_path(folder), LS_ERR_CONFIG, "that is a folder");
    snprintf(path, sizeof path, "%s/none/r.json", folder);
    assert_fails(ls__report_check_path(path), LS_ERR_CONFIG, "cannot be written");
    assert_fails(ls__report_write(&report, path), LS_ERR_IO, "none");
    assert_ok(ls__folder_remove(&ls__fs_posix, folder));
}

static void memory_kills_are_counted(void **state)
{
    (void)state;
    char root[] = "/tmp/lockstep-oom-XXXXXX", path[200];
    assert_non_null(mkdtemp(root));
    assert_int_equal(ls__oom_kills(root), -1);
    static const char *const folders[] = { "proc/self", "sys/fs/cgroup/a/b",
                                           "sys/fs/cgroup/memory/c" };
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_ok(ls__folder_make(&ls__fs_posix, path));
    }
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    write_file(path, "0::/a/b\n");
    assert_int_equal(ls__oom_kills(root), -1);
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/a/b/memory.events", root);
    write_file(path, "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n");
    assert_int_equal(ls__oom_kills(root), 3);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    write_file(path, "5:cpu,memory:/c\n4:cpuset:/\n0::/\n");
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/memory/c/memory.oom_control", root);
    write_file(path, "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n");
    assert_int_equal(ls__oom_kills(root), 12);
    assert_ok(ls__folder_remove(&ls__fs_posix, root));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ends_have_one_name_each),
                                        cmocka_unit_test(usage_names_no_rank),
                                        cmocka_unit_test(broken_text_is_mended),
                                        cmocka_unit_test(reports_go_where_they_can),
                                        cmocka_unit_test(memory_kills_are_counted) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
