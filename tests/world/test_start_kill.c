/* Starting jobs: command lines, variables left over, output of many ranks. Like all tests that start
 * processes it is not run under the thread sanitizer. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helper_job.h"

/* Runs prog_world with words (and variables, may be NULL) to its end; its code. */
static int run(job *j, const char *const *words, const char *const *extra)
{
    job_begin(j);
    job_start(j, "prog_world", words, extra);
    job_wait(j, 20);
    return j->code;
}
#define WORDS(...) ((const char *const[]) { __VA_ARGS__, NULL })

static void refused(const char *const *words, const char *const *extra, const char *text)
{
    job j;
    int code = run(&j, words, extra);
    if (code != 2 || !strstr(job_read(j.err), text))
        fail_msg("code %d; \"%s\" is not in:\n%s", code, text, job_read(j.err));
    job_end(&j);
}

static void wrong_command_lines(void **state)
{
    (void)state;
    refused(WORDS("--devices", "10000"), NULL, "10000");
    refused(WORDS("--devices", "0"), NULL, "at least 1");
    refused(WORDS("--devices", "gpu"), NULL, "--devices gpu");
    refused(WORDS("--device", "2"), NULL, "did you mean --devices?");
    refused(WORDS("--batch-size", "0"), NULL, "--batch-size");
    refused(WORDS("--report", "/nowhere/r.json"), NULL, "/nowhere");
    refused(WORDS("--timeout", "soon"), NULL, "--timeout");
    refused(WORDS("word"), NULL, "word");
    refused(WORDS("--steps", "1"), WORDS("LOCKSTEP_DEVICES=many"), "LOCKSTEP_DEVICES");
}

static void questions_are_answered(void **state)
{
    (void)state;
    job j;
    assert_int_equal(run(&j, WORDS("--help"), NULL), 0);
    const char *text = job_read(j.out);
    assert_non_null(strstr(text, "--devices"));
    assert_non_null(strstr(text, "--pause-us"));
    assert_non_null(strstr(text, "a program of tests"));
    assert_string_equal(job_read(j.err), "");
    job_end(&j);
    assert_int_equal(run(&j, WORDS("--version"), NULL), 0);
    assert_non_null(strstr(job_read(j.out), "prog_world (lockstep "));
    job_end(&j);
}

static void refusals_are_reported(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    job_start(&j, "prog_world", WORDS("--devices", "9999", "--report", j.report, "--json"), NULL);
    job_wait(&j, 5);
    assert_int_equal(j.code, 2);
    assert_report(&j, "usage", 2, 0, "9999");
    assert_non_null(strstr(job_read(j.out), "\"exit_code\":2"));
    job_end(&j);
}

static void leftovers_are_ignored(void **state)
{
    (void)state;
    static const char *const cases[][2] = { { "LOCAL_RANK=0", "LOCAL_RANK=0" },
                                            { "WORLD_SIZE=4", "WORLD_SIZE=4" },
                                            { "MASTER_PORT=29500", "MASTER_PORT=29500" } };
    for (int i = 0; i < 3; i++) {
        job j;
        assert_int_equal(run(&j, WORDS("--devices", "cpu:2", "--steps", "3"), WORDS(cases[i][0])),
                         0);
        const char *err = job_read(j.err), *line = strstr(err, "ignored from the environment");
        assert_non_null(line);
        assert_null(strstr(line + 1, "ignored from")); /* once, not by every rank */
        assert_non_null(strstr(line, cases[i][1]));
        assert_non_null(strstr(err, "1 node x 2 devices = 2 ranks"));
        job_end(&j);
    }
    refused(WORDS("--steps", "1"),
            WORDS("RANK=5", "LOCAL_RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"),
            "contradicts itself");
    refused(WORDS("--devices", "cpu:3", "--steps", "1"),
            WORDS("RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"),
            "--devices cpu:3 means 3 ranks, but the environment says WORLD_SIZE=2");
    job j;
    assert_int_equal(
        run(&j, WORDS("--steps", "3"),
            WORDS("RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=h", "MASTER_PORT=1")),
        0);
    assert_non_null(strstr(job_read(j.err), "1 node x 1 device = 1 rank"));
    job_end(&j);
}

static void programs_have_one_world(void **state)
{
    (void)state;
    refused(WORDS("--devices", "cpu:2", "--act", "twice", "--steps", "1"), NULL,
            "calls ls_world_init once");
    refused(WORDS("--devices", "1", "--act", "twice", "--steps", "1"), NULL,
            "calls ls_world_init once");
}

/* Every line of text matches "N:IIII:000..." of one rank, in order, none missing. */
static void check_lines(const char *text, size_t nbytes, const char *prefix, int rank)
{
    int next = 0;
    for (const char *line = text; line < text + nbytes;) {
        const char *end = memchr(line, '\n', (size_t)(text + nbytes - line));
        assert_non_null(end);
        char start[32], want[64];
        snprintf(start, sizeof start, "%s%d:", prefix, rank);
        if (strncmp(line, start, strlen(start)) == 0) {
            snprintf(want, sizeof want, "%s%d:%04d:", prefix, rank, next);
            assert_int_equal(strncmp(line, want, strlen(want)), 0);
            assert_int_equal(end - line, (long)strlen(want) + 300);
            next++;
        }
        line = end + 1;
    }
    assert_int_equal(next, 2000);
}

static void output_comes_in_whole_lines(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    job_start(&j, "prog_world",
              WORDS("--devices", "cpu:4", "--act", "print", "--who", "-1", "--folder", j.folder,
                    "--steps", "20"),
              NULL);
    job_wait(&j, 30);
    assert_int_equal(j.code, 0);
    char path[200];
    static char err[4 << 20];
    FILE *file = fopen(j.err, "r");
    size_t nbytes = fread(err, 1, sizeof err, file);
    fclose(file);
    check_lines(err, nbytes, "", 0);
    check_lines(err, nbytes, "[1] ", 1);
    check_lines(err, nbytes, "[3] ", 3);
    const char *out = job_read(j.out); /* of rank 0 alone, as it is */
    assert_non_null(strstr(out, "out 0:0000:"));
    assert_null(strstr(out, "out 1:"));
    assert_non_null(strstr(out, "unfinisheddone 0\n"));
    size_t longest = strspn(strchr(out, 'x'), "x");
    assert_int_equal(longest, 200000);
    for (int r = 0; r < 4; r++) { /* both streams of each, whole */
        struct stat info;
        snprintf(path, sizeof path, "%s/logs/rank-%d.log", j.folder, r);
        assert_int_equal(stat(path, &info), 0);
        assert_true(info.st_size > 2000 * (307 + 311) + 200000);
    }
    snprintf(path, sizeof path, "%s/report.json", j.folder);
    json_t *report = json_load_file(path, 0, NULL);
    assert_non_null(report);
    assert_int_equal(json_array_size(json_object_get(report, "tail")), 30);
    json_decref(report);
    job_end(&j);
}

/* What every rank finds is said once, what one rank finds is said by it. */
static void the_same_warning_is_shown_once(void **state)
{
    (void)state;
    job j;
    assert_int_equal(
        run(&j, WORDS("--devices", "cpu:3", "--act", "warn", "--who", "-1", "--steps", "20"), NULL),
        0);
    const char *err = job_read(j.err), *first = strstr(err, "all find this");
    assert_non_null(first);
    assert_null(strstr(first + 1, "all find this"));
    assert_non_null(strstr(err, "[2] lockstep: warning: rank 2 finds this"));
    job_end(&j);
}

/* "train | head -1": rank 0 is told as a lone program would be. */
static void a_reader_that_goes_ends_the_job(void **state)
{
    (void)state;
    job j;
    job_begin(&j);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    close(fds[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fds[1]);
    unlink(j.out);
    assert_int_equal(symlink(path, j.out), 0); /* opened by the child before exec */
    job_start(&j, "prog_world",
              WORDS("--devices", "cpu:2", "--act", "print", "--who", "0", "--steps", "-1"), NULL);
    close(fds[1]);
    job_wait(&j, 10);
    assert_int_equal(j.code, 128 + SIGPIPE);
    job_end(&j);
}

/* Nobody reads for a while: nothing is lost, and meanwhile the supervisor hears signals. */
static void a_reader_may_pause(void **state)
{
    (void)state;
    static char out[4 << 20];
    for (int stopped = 0; stopped < 2; stopped++) {
        job j;
        job_begin(&j);
        int fds[2];
        char path[64];
        assert_int_equal(pipe(fds), 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fds[1]);
        assert_int_equal(symlink(path, j.out), 0);
        job_start(&j, "prog_world",
                  WORDS("--devices", "cpu:2", "--act", "print", "--who", "0", "--steps",
                        stopped ? "-1" : "20", "--folder", j.folder),
                  NULL);
        close(fds[1]);
        test_sleep(0.5);
        if (stopped) {
            kill(j.pid, SIGTERM);
            job_wait(&j, 8);
            assert_int_equal(j.code, 75);
        }
        size_t have = 0;
        for (ssize_t n; (n = read(fds[0], out + have, sizeof out - have)) > 0;) have += (size_t)n;
        close(fds[0]);
        if (!stopped) {
            job_wait(&j, 8);
            assert_int_equal(j.code, 0);
            assert_int_equal(have, 2000 * 312 + 200001 + strlen("unfinisheddone 0\n"));
        }
        job_end(&j);
    }
}

static void many_ranks_on_few_cpus(void **state)
{
    (void)state;
    job j;
    struct rlimit limit, few;
    getrlimit(RLIMIT_NOFILE, &limit);
    few = limit;
    few.rlim_cur = 64; /* the supervisor raises it for itself */
    setrlimit(RLIMIT_NOFILE, &few);
    assert_int_equal(run(&j, WORDS("--devices", "cpu:24", "--steps", "3"), NULL), 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    job_end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_command_lines),
        cmocka_unit_test(questions_are_answered),
        cmocka_unit_test(refusals_are_reported),
        cmocka_unit_test(leftovers_are_ignored),
        cmocka_unit_test(programs_have_one_world),
        cmocka_unit_test(output_comes_in_whole_lines),
        cmocka_unit_test(the_same_warning_is_shown_once),
        cmocka_unit_test(a_reader_that_goes_ends_the_job),
        cmocka_unit_test(a_reader_may_pause),
        cmocka_unit_test(many_ranks_on_few_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
