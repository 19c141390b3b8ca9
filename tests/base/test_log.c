/* What a pipe and what a terminal get to see of log lines and the status line. */
#include "testing.h"

#include <limits.h>
#include <pthread.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static char seen[200000];

static void read_to_end(int fd)
{
    size_t used = 0;
    ssize_t n;
    while ((n = read(fd, seen + used, sizeof seen - 1 - used)) > 0) used += (size_t)n;
    seen[used] = '\0';
    close(fd);
}

/* Runs what in a child whose stderr is the given end; reads the other end into seen. */
static void run(void (*what)(void), int ours, int theirs)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(theirs, 2);
        close(ours);
        close(theirs);
        what();
        exit(0);
    }
    close(theirs);
    read_to_end(ours);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void on_pipe(void (*what)(void))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    run(what, ends[0], ends[1]);
}

static void on_terminal(void (*what)(void), int columns)
{
    int master, slave;
    struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)columns };
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    run(what, master, slave);
}

static int plain_environment(void **state)
{
    (void)state;
    setenv("TERM", "xterm", 1);
    return setenv("NO_COLOR", "1", 1);
}

static void log_all_levels(void)
{
    ls__log(LS__LOG_ERROR, "e %d", 1);
    ls__log(LS__LOG_WARN, "w");
    ls__log(LS__LOG_INFO, "i");
    ls__log(LS__LOG_DEBUG, "d");
}

static void log_quietly(void)
{
    ls__log_set_level(LS__LOG_DEBUG);
    ls__log_set_quiet(true);
    log_all_levels();
}

static void log_errors_only(void)
{
    ls__log_set_level(LS__LOG_ERROR);
    log_all_levels();
}

static void levels_choose_lines(void **state)
{
    (void)state;
    on_pipe(log_all_levels);
    assert_string_equal(seen, "lockstep: error: e 1\nlockstep: warning: w\nlockstep: i\n");
    on_pipe(log_quietly);
    assert_string_equal(seen, "lockstep: error: e 1\nlockstep: warning: w\n");
    on_pipe(log_errors_only);
    assert_string_equal(seen, "lockstep: error: e 1\n");

    ls__log_level level;
    assert_true(ls__log_parse_level("debug", &level) && level == LS__LOG_DEBUG);
    assert_true(ls__log_parse_level("error", &level) && level == LS__LOG_ERROR);
    assert_false(ls__log_parse_level("", &level));
    assert_false(ls__log_parse_level("Debug", &level));
}

static void log_long_line(void)
{
    static char text[3 * PIPE_BUF];
    memset(text, 'x', sizeof text - 1);
    ls__log(LS__LOG_INFO, "%s", text);
    ls__log(LS__LOG_INFO, "%.*s", PIPE_BUF - 11, text); /* with prefix and newline PIPE_BUF */
}

static void long_lines_are_cut_to_one_write(void **state)
{
    (void)state;
    on_pipe(log_long_line);
    assert_int_equal(strcspn(seen, "\n"), PIPE_BUF - 1);
    assert_memory_equal(seen + PIPE_BUF - 4, "...\n", 4);
    assert_int_equal(strcspn(seen + PIPE_BUF, "\n"), PIPE_BUF - 1);
    assert_memory_equal(seen + 2 * PIPE_BUF - 4, "xxx\n", 4);
}

static void *log_many(void *name)
{
    for (int i = 0; i < 500; i++) ls__log(LS__LOG_INFO, "%s%0100d", (char *)name, i);
    return NULL;
}

static void log_from_threads(void)
{
    static char names[][2] = { "a", "b", "c" };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, log_many, names[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

static void lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    on_pipe(log_from_threads);
    int lines = 0;
    for (const char *at = seen; *at; at += 112, lines++) {
        assert_memory_equal(at, "lockstep: ", 10);
        assert_int_equal(strcspn(at, "\n"), 111);
    }
    assert_int_equal(lines, 1500);
}

#define ERASE "\r\033[K"

static void work_with_statusline(void)
{
    ls__statusline_set("step 1\nnever seen");
    ls__log(LS__LOG_INFO, "hello");
    ls__statusline_set("step 2");
    ls__statusline_print(2, "rank's\n", 7);
    ls__statusline_set(NULL);
    ls__statusline_set(NULL);
    ls__log(LS__LOG_INFO, "bare");
    ls__statusline_set("step 3"); /* erased at exit */
}

static void the_status_line_stays_below(void **state)
{
    (void)state;
    on_terminal(work_with_statusline, 80);
    assert_string_equal(seen, ERASE "step 1" ERASE "lockstep: hello\r\n" ERASE "step 1" ERASE
                                    "step 2" ERASE "rank's\r\n" ERASE "step 2" ERASE
                                    "lockstep: bare\r\n" ERASE "step 3" ERASE);
    on_pipe(work_with_statusline);
    assert_string_equal(seen, "lockstep: hello\nrank's\nlockstep: bare\n");
    setenv("TERM", "dumb", 1);
    on_terminal(work_with_statusline, 80);
    assert_string_equal(seen, "lockstep: hello\r\nrank's\r\nlockstep: bare\r\n");
    setenv("TERM", "xterm", 1);
}

static void draw_wide(void)
{
    ls__statusline_set("0123456789\xc3\xa4\xc3\xb6\xc3\xbc\xe2\x80\xa6"
                       "and more");
}

static void the_status_line_fits_the_terminal(void **state)
{
    (void)state;
    on_terminal(draw_wide, 13); /* twelve characters, two of them of two bytes */
    assert_string_equal(seen, ERASE "0123456789\xc3\xa4\xc3\xb6" ERASE);
}

static void colors_only_where_they_are_wanted(void **state)
{
    (void)state;
    unsetenv("NO_COLOR");
    on_terminal(log_all_levels, 80);
    assert_non_null(strstr(seen, "lockstep: \033[1;31merror:\033[0m e 1\r\n"));
    assert_non_null(strstr(seen, "lockstep: \033[1;33mwarning:\033[0m w\r\n"));
    on_pipe(log_all_levels);
    assert_null(strchr(seen, '\033'));
    setenv("NO_COLOR", "1", 1);
    on_terminal(log_all_levels, 80);
    assert_null(strchr(seen, '\033'));
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    on_terminal(log_all_levels, 80);
    assert_null(strchr(seen, '\033'));
}

#define plain_test(test) cmocka_unit_test_setup(test, plain_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        plain_test(levels_choose_lines),
        plain_test(long_lines_are_cut_to_one_write),
        plain_test(lines_of_threads_do_not_mix),
        plain_test(the_status_line_stays_below),
        plain_test(the_status_line_fits_the_terminal),
        plain_test(colors_only_where_they_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
