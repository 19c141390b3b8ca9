/* The run's folder: names, its lock, run.json. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "helper_run.h"
#include "record/record_internal.h"

static void names(void **state)
{
    (void)state;
    char name[256], longest[202];
    memset(longest, 'x', sizeof longest);
    longest[200] = '\0';
    assert_ok(ls__run_name_check(longest));
    longest[200] = 'x';
    longest[201] = '\0';
    assert_fails(ls__run_name_check(longest), LS_ERR_CONFIG, "longer than 200");
    assert_ok(ls__run_name_check("r\xc3\xa9sum\xc3\xa9 2"));
    static const char *const bad[] = { "",    ".",   "..",   ".x",    "-x",
                                       "a/b", "a@b", "a\nb", "a\x7f", "\xff\xfe" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(ls__run_name_check(bad[i]), LS_ERR_CONFIG, "cannot be the name of a run");
    ls__run_folder folder;
    assert_fails(ls__run_folder_open(runs_dir, "../x", &folder), LS_ERR_CONFIG, "cannot be");
    assert_int_equal(folder.lock, -1);
    for (int i = 0; i < 100; i++) {
        assert_ok(ls__run_name(runs_dir, name));
        assert_ok(ls__run_name_check(name));
        assert_false(ls__path_exists(run_file(name, ""))); /* none is given twice */
        assert_int_equal(mkdir(run_file(name, ""), 0777), 0);
    }
}

static void opens(void **state)
{
    (void)state;
    ls__run_folder folder;
    write_text_file(run_file("", "unrelated"), "x", 1);
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    assert_string_equal(folder.name, "fox");
    assert_true(ls__path_exists(folder.checkpoints));
    write_text_file(run_file("fox", "run.json.tmp-12"), "x", 1);
    char *lock = read_text_file(run_file("fox", "lock"));
    json_t *holder = json_loads(lock, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(holder, "pid")), getpid());
    assert_int_equal(json_string_length(json_object_get(holder, "boot_id")), 36);
    json_decref(holder);
    free(lock);
    ls__run_folder_close(&folder);
    ls__run_folder_close(&folder);
    lock = read_text_file(run_file("fox", "lock"));
    assert_string_equal(lock, "");
    free(lock);
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    assert_false(ls__path_exists(run_file("fox", "run.json.tmp-12")));
    ls__run_folder_close(&folder);
}

/* A child that holds the lock until it is killed. */
static pid_t hold(const char *name)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it must not outlive a test that fails */
        ls__run_folder folder;
        if (ls__run_folder_open(runs_dir, name, &folder) != LS_OK) _exit(1);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void held(void **state)
{
    (void)state;
    ls__run_folder folder;
    char who[64], host[256] = "";
    pid_t pid = hold("fox");
    snprintf(who, sizeof who, "process %ld on host ", (long)pid);
    assert_fails(ls__run_folder_open(runs_dir, "fox", &folder), LS_ERR_CONFIG, who);
    assert_int_equal(ls__exit_code(LS_ERR_CONFIG), 2);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    assert_non_null(strstr(ls_error_text(), host));
    assert_non_null(strstr(ls_error_text(), "choose another --name"));
    assert_ok(ls__run_folder_open(runs_dir, "owl", &folder)); /* another run is free */
    ls__run_folder_close(&folder);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    /* Its file still names it, and nobody minds. */
    char *lock = read_text_file(run_file("fox", "lock"));
    assert_non_null(strstr(lock, "boot_id"));
    free(lock);
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    ls__run_folder other;
    assert_fails(ls__run_folder_open(runs_dir, "fox", &other), LS_ERR_CONFIG, "being written by");
    ls__run_folder_close(&folder);
}

static void unreadable_lock(void **state)
{
    (void)state;
    ls__run_folder folder;
    int fd;
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    static const char *const contents[] = { "", "{", "[1]", "{\"pid\":\"x\"}", "\xff\xfe\0\0" };
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        write_text_file(run_file("fox", "lock"), contents[i], strlen(contents[i]));
        assert_fails(ls__run_lock(run_file("fox", "lock"), "fox", 0, &fd), LS_ERR_CONFIG,
                     "by another process");
    }
    ls__run_folder_close(&folder);
    write_text_file(run_file("fox", "lock"), "{", 1);
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    ls__run_folder_close(&folder);
}

static void cannot_write(void **state)
{
    (void)state;
    ls__run_folder folder;
    assert_fails(ls__run_folder_open("/proc/runs", "fox", &folder), LS_ERR_IO, "/proc/runs");
    write_text_file(run_file("", "file"), "x", 1);
    assert_fails(ls__run_folder_open(run_file("", "file"), "fox", &folder), LS_ERR_IO, "/file");
    assert_int_equal(mkdir(run_file("owl", ""), 0777), 0);
    write_text_file(run_file("owl", "checkpoints"), "x", 1);
    assert_fails(ls__run_folder_open(runs_dir, "owl", &folder), LS_ERR_IO, "checkpoints");
    assert_int_equal(folder.lock, -1);
    if (geteuid() == 0) return; /* whom permissions do not stop */
    assert_int_equal(chmod(runs_dir, 0555), 0);
    assert_fails(ls__run_folder_open(runs_dir, "new", &folder), LS_ERR_IO, "Permission denied");
    assert_int_equal(chmod(runs_dir, 0777), 0);
}

static void run_json(void **state)
{
    (void)state;
    ls__run_folder folder;
    json_t *read, *document = json_pack("{s:s,s:[s,s]}", "status", "running", "argv", "a", "b");
    assert_ok(ls__run_folder_open(runs_dir, "fox", &folder));
    assert_ok(ls__run_json_read(folder.path, &read));
    assert_null(read);
    assert_ok(ls__run_json_write(&folder, document));
    assert_ok(ls__run_json_read(folder.path, &read));
    assert_string_equal(json_string_value(json_object_get(read, "schema")), "lockstep.run/1");
    assert_string_equal(json_string_value(json_object_get(read, "status")), "running");
    double beat = json_real_value(json_object_get(read, "heartbeat"));
    assert_true(ls__wall_time() - beat < 10 && ls__wall_time() >= beat);
    assert_null(json_object_get(document, "heartbeat")); /* the caller's is not touched */
    json_decref(read);
    json_decref(document);
    write_text_file(run_file("fox", "run.json"), "{", 1);
    assert_fails(ls__run_json_read(folder.path, &read), LS_ERR_DATA, "run.json:1:");
    ls__run_folder_close(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names, fresh_runs, remove_runs),
        cmocka_unit_test_setup_teardown(opens, fresh_runs, remove_runs),
        cmocka_unit_test_setup_teardown(held, fresh_runs, remove_runs),
        cmocka_unit_test_setup_teardown(unreadable_lock, fresh_runs, remove_runs),
        cmocka_unit_test_setup_teardown(cannot_write, fresh_runs, remove_runs),
        cmocka_unit_test_setup_teardown(run_json, fresh_runs, remove_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
