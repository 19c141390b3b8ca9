/* A job in a test. Processes are found by a variable in their environment, so that also a
 * grandchild in a session of its own is seen. */
#include "testing.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "helper_job.h"

extern char **environ;

double test_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void test_sleep(double seconds)
{
    struct timespec t = { .tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

void job_begin(job *j)
{
    static int count;
    memset(j, 0, sizeof *j);
    snprintf(j->mark, sizeof j->mark, "WORLD_TEST_MARK=%d-%d", (int)getpid(), ++count);
    snprintf(j->folder, sizeof j->folder, "/tmp/world-test-%d-%d", (int)getpid(), count);
    assert_int_equal(mkdir(j->folder, 0700), 0);
    snprintf(j->out, sizeof j->out, "%s/out", j->folder);
    snprintf(j->err, sizeof j->err, "%s/err", j->folder);
    snprintf(j->report, sizeof j->report, "%s/report.json", j->folder);
}

static void become(const job *j, const char *program, const char *const *words,
                   const char *const *extra)
{
    const char *argv[32], *envp[512];
    char path[256];
    int n = 0, e = 0;
    snprintf(path, sizeof path, "%s/tests/%s", getenv("LS_BINARY_DIR"), program);
    argv[n++] = path;
    for (int i = 0; words && words[i]; i++) argv[n++] = words[i];
    argv[n] = NULL;
    for (int i = 0; environ[i] && e < 480; i++)
        if (strncmp(environ[i], "LOCKSTEP", 8) != 0) envp[e++] = environ[i];
    envp[e++] = j->mark;
    for (int i = 0; extra && extra[i]; i++) envp[e++] = extra[i];
    envp[e] = NULL;
    setpgid(0, 0);
    int out = open(j->out, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int err = open(j->err, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execve(path, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
    dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

void job_start(job *j, const char *program, const char *const *words, const char *const *extra)
{
    j->started = test_now();
    j->pid = fork();
    assert_true(j->pid >= 0);
    if (j->pid == 0) become(j, program, words, extra);
    setpgid(j->pid, j->pid);
}

void job_wait(job *j, double seconds)
{
    double deadline = test_now() + seconds;
    int status;
    for (;;) {
        pid_t pid = waitpid(j->pid, &status, WNOHANG);
        if (pid == j->pid) break;
        if (test_now() > deadline) {
            kill(-j->pid, SIGKILL);
            fail_msg("the job is not over after %g s; stderr:\n%s", seconds, job_read(j->err));
        }
        test_sleep(0.002);
    }
    j->seconds = test_now() - j->started;
    j->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Whether the process has the mark and is not a zombie; a zombie has no environment any more. */
static bool carries(const char *pid, const char *mark)
{
    static char text[1 << 17];
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    return n > 0 && memmem(text, (size_t)n, mark, strlen(mark) + 1) != NULL;
}

int job_processes(const job *j)
{
    int count = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (struct dirent *e; (e = readdir(proc)) != NULL;)
        count += isdigit((unsigned char)e->d_name[0]) && carries(e->d_name, j->mark);
    closedir(proc);
    return count;
}

void job_end(job *j)
{
    double deadline = test_now() + 2;
    int left;
    while ((left = job_processes(j)) > 0 && test_now() < deadline) test_sleep(0.02);
    if (left > 0) fail_msg("%d processes of the job are left", left);
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", j->folder);
    assert_int_equal(system(command), 0);
}

const char *job_read(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = '\0';
    return text;
}

long job_number(const job *j, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", j->folder, name);
    double deadline = test_now() + 20;
    for (;;) {
        const char *text = job_read(path);
        if (strchr(text, '\n')) return strtol(text, NULL, 10);
        if (test_now() > deadline)
            fail_msg("%s does not come; stderr:\n%s", path, job_read(j->err));
        test_sleep(0.002);
    }
}

json_t *job_report(const job *j)
{
    json_error_t error;
    json_t *report = json_load_file(j->report, 0, &error);
    if (!report) fail_msg("%s: %s; stderr:\n%s", j->report, error.text, job_read(j->err));
    return report;
}

void assert_report(const job *j, const char *verdict, int exit_code, int rank, const char *text)
{
    json_t *report = job_report(j);
    assert_string_equal(json_string_value(json_object_get(report, "schema")), "lockstep.report/1");
    assert_string_equal(json_string_value(json_object_get(report, "verdict")), verdict);
    assert_int_equal(json_integer_value(json_object_get(report, "exit_code")), exit_code);
    json_t *who = json_object_get(report, "rank");
    if (rank < 0)
        assert_true(json_is_null(who));
    else
        assert_int_equal(json_integer_value(who), rank);
    const char *said = json_string_value(json_object_get(report, "text"));
    if (!strstr(said, text)) fail_msg("\"%s\" does not say \"%s\"", said, text);
    json_decref(report);
}
