/* Ranks as processes that inherit the shared file: they exchange; one dies, stalls, differs. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

#include "base/clock.h"
#include "comm/shm.h"

enum { SIZE = 3, TEXT = 4096 };

typedef struct job {
    ls__shm *shm;
    pid_t pids[SIZE];
    int outputs[SIZE];
    char texts[SIZE][TEXT];
    int exits[SIZE]; /* status, or 128 + signal */
} job;

static void start(job *j, const char *role)
{
    assert_ok(ls__shm_create(SIZE, &j->shm));
    for (int r = 0; r < SIZE; r++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        j->pids[r] = fork();
        if (j->pids[r] == 0) {
            char fd[16], rank[16], size[16];
            snprintf(fd, sizeof fd, "%d", ls__shm_fd(j->shm));
            snprintf(rank, sizeof rank, "%d", r);
            snprintf(size, sizeof size, "%d", SIZE);
            fcntl(ls__shm_fd(j->shm), F_SETFD, 0);
            dup2(ends[1], 1);
            close(ends[0]);
            execl("./prog_comm_rank", "prog_comm_rank", fd, rank, size, role, (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        j->outputs[r] = ends[0];
    }
}

/* The exit of rank r; the job's supervisor would poison when one dies, and so does this. */
static void finish(job *j)
{
    for (int left = SIZE; left > 0; left--) {
        int how;
        pid_t pid = wait(&how);
        for (int r = 0; r < SIZE; r++) {
            if (j->pids[r] != pid) continue;
            j->exits[r] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
            if (WIFSIGNALED(how)) ls__shm_poison(j->shm, r);
        }
    }
    for (int r = 0; r < SIZE; r++) {
        ssize_t n = read(j->outputs[r], j->texts[r], TEXT - 1);
        j->texts[r][n > 0 ? n : 0] = '\0';
        close(j->outputs[r]);
    }
    ls__shm_destroy(j->shm);
}

static void assert_says(const job *j, int r, const char *part)
{
    if (!strstr(j->texts[r], part))
        fail_msg("rank %d: \"%s\" does not say \"%s\"", r, j->texts[r], part);
}

static void test_exchange(void **state)
{
    (void)state;
    job j = { 0 };
    start(&j, "exchange");
    finish(&j);
    for (int r = 0; r < SIZE; r++)
        if (j.exits[r] != 0) fail_msg("rank %d: %d: %s", r, j.exits[r], j.texts[r]);
}

static void test_killed(void **state)
{
    (void)state;
    job j = { 0 };
    double begin = ls__now();
    start(&j, "die");
    finish(&j);
    assert_int_equal(j.exits[1], 128 + SIGKILL);
    for (int r = 0; r < SIZE; r += 2) {
        assert_int_equal(j.exits[r], LS_ERR_PEER);
        assert_says(&j, r, "rank 1 was lost");
    }
    assert_true(ls__now() - begin < 10); /* poison woke them, not the timeout of 20 s */
}

static void test_stalled(void **state)
{
    (void)state;
    job j = { 0 };
    start(&j, "stall");
    finish(&j);
    for (int r = 0; r < SIZE; r += 2) {
        assert_int_equal(j.exits[r], LS_ERR_TIMEOUT);
        assert_says(&j, r, "rank 1 has not made call 2; its last was barrier, call 1, at prog_");
        assert_says(&j, r, "ranks 0, 2 are in all_reduce of 33 f32 (sum), call 2, at prog_");
        assert_says(&j, r, "--timeout");
    }
}

static void test_differing(void **state)
{
    (void)state;
    job j = { 0 };
    start(&j, "differ");
    finish(&j);
    for (int r = 0; r < SIZE; r++) {
        assert_int_equal(j.exits[r], LS_ERR_MISMATCH);
        assert_says(&j, r, "rank 1 is in barrier, call 2, at prog_comm_rank+0x");
        assert_says(&j, r, "ranks 0, 2 are in all_reduce of 33 f32 (sum), call 2, at prog_");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stalled),
        cmocka_unit_test(test_differing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
