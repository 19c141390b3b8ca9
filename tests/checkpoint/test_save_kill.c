/* A process that saves is killed at any moment: what it promised is there, and the next one goes on
 * from it with another number of ranks. */
#include "testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "helper_saved.h"

enum { KILLS = 40 };

static pid_t start(const char *folder, int ranks, FILE **output)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char count[16];
        snprintf(count, sizeof count, "%d", ranks);
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl("./prog_saver", "prog_saver", folder, count, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *output = fdopen(ends[0], "r");
    return pid;
}

/* The last step that was promised before the kill. */
static long long kill_after(pid_t pid, FILE *output, int us)
{
    char line[64];
    long long promised = -1;
    int status;
    if (!fgets(line, sizeof line, output)) fail_msg("the saver ended by itself");
    promised = atoll(line);
    usleep((useconds_t)us);
    kill(pid, SIGKILL);
    while (fgets(line, sizeof line, output))
        if (strchr(line, '\n')) promised = atoll(line);
    fclose(output);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return promised;
}

static void killed(void **state)
{
    (void)state;
    const char *folder = fresh_folder("kill");
    long long before = 0;
    for (int i = 0; i < KILLS; i++) {
        FILE *output;
        pid_t pid = start(folder, 1 + i % 3, &output);
        long long promised = kill_after(pid, output, (i * 997) % 12000);
        char path[LS_PATH_MAX];
        assert_ok(ls__checkpoint_find(folder, i % 2 == 0, path, NULL));
        long long step = path[0] ? atoll(strrchr(path, '-') + 1) : -1;
        if (step != promised && step != promised + 1)
            fail_msg("kill %d: step %lld was promised, %lld is there", i, promised, step);
        const char *differs = saved_check(path, step, 2);
        if (differs) fail_msg("kill %d: %s", i, differs);
        assert_true(step > before);
        before = step;
    }
    assert_ok(ls__folder_remove(&ls__fs_posix, folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(killed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
