/* Links between ranks: over Gloo on the loopback, over MPI where mpirun is. Bytes, their order, and
 * what a rank is told when another one is late, lost, or somebody else. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

#include "base/file.h"
#include "comm/link.h"

enum { MAX_RANKS = 4, TEXT = 4096 };

typedef struct result {
    int exits[MAX_RANKS]; /* code, or 128 + signal */
    char texts[MAX_RANKS][TEXT];
} result;

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/lockstep-link-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_unsynced, folder) == LS_OK ? 0 : -1;
}

/* Reads all that a program says; its exit. */
static int finish(pid_t pid, int fd, char text[TEXT])
{
    int how;
    size_t used = 0;
    for (ssize_t n; (n = read(fd, text + used, TEXT - 1 - used)) > 0;) used += (size_t)n;
    text[used] = '\0';
    close(fd);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static pid_t spawn(char *const argv[], int *fd)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    *fd = ends[0];
    return pid;
}

static result ranks(const char *engine, const char *role, int size, const char *root)
{
    static result r;
    pid_t pids[MAX_RANKS];
    int fds[MAX_RANKS];
    for (int i = 0; i < size; i++) {
        char rank[16], all[16];
        snprintf(rank, sizeof rank, "%d", i);
        snprintf(all, sizeof all, "%d", size);
        char *argv[] = { (char *)"./prog_link_rank",
                         (char *)(uintptr_t)engine,
                         folder,
                         (char *)(uintptr_t)role,
                         rank,
                         all,
                         (char *)(uintptr_t)root,
                         NULL };
        pids[i] = spawn(argv, &fds[i]);
    }
    for (int i = 0; i < size; i++) r.exits[i] = finish(pids[i], fds[i], r.texts[i]);
    return r;
}

static void assert_exit(const result *r, int rank, int code, const char *part)
{
    if (r->exits[rank] != code || !strstr(r->texts[rank], part))
        fail_msg("rank %d: exit %d, not %d: \"%s\" (should say \"%s\")", rank, r->exits[rank], code,
                 r->texts[rank], part);
}

static void need(const char *engine)
{
    if (!ls__link_there(engine)) skip();
}

static void all_ok(const char *role, int size, const char *root)
{
    need("gloo");
    result r = ranks("gloo", role, size, root);
    for (int i = 0; i < size; i++) assert_exit(&r, i, 0, " ok");
}

static void test_order(void **state)
{
    (void)state;
    all_ok("order", 4, "127.0.0.1");
}

static void test_sizes(void **state)
{
    (void)state;
    all_ok("sizes", 2, "127.0.0.1");
}

static void test_ipv6(void **state)
{
    (void)state;
    if (access("/proc/net/if_inet6", R_OK) != 0) skip();
    all_ok("nothing", 2, "::1");
}

static void test_timeout(void **state)
{
    (void)state;
    all_ok("timeout", 2, "localhost");
}

static void test_job_ends(void **state)
{
    (void)state;
    all_ok("ended", 2, "127.0.0.1");
}

static void test_killed(void **state)
{
    static const char *const roles[] = { "killed", "killedsend", "killedwithin" };
    (void)state;
    need("gloo");
    for (int i = 0; i < 3; i++) {
        result r = ranks("gloo", roles[i], 2, "127.0.0.1");
        assert_exit(&r, 0, 0, " ok");
        assert_exit(&r, 1, 128 + SIGKILL, "");
    }
}

static void test_abort(void **state)
{
    (void)state;
    all_ok("abort", 2, "127.0.0.1");
}

static void test_destroy(void **state)
{
    (void)state;
    all_ok("outstanding", 2, "127.0.0.1");
    all_ok("late", 2, "127.0.0.1");
}

static void test_no_connection_within_a_node(void **state)
{
    (void)state;
    all_ok("sockets", 4, "127.0.0.1");
}

static void test_impostor(void **state)
{
    (void)state;
    need("gloo");
    result r = ranks("gloo", "impostor", 2, "127.0.0.1");
    assert_exit(&r, 0, 3, "not of this job");
    assert_int_not_equal(r.exits[1], 0);
}

static void test_interface(void **state)
{
    (void)state;
    need("gloo");
    setenv("GLOO_SOCKET_IFNAME", "none0,lo", 1);
    all_ok("nothing", 2, "192.0.2.7"); /* no machine's address: not asked */
    setenv("GLOO_SOCKET_IFNAME", "none0", 1);
    result r = ranks("gloo", "nothing", 1, "127.0.0.1");
    unsetenv("GLOO_SOCKET_IFNAME");
    assert_exit(&r, 0, 3, "GLOO_SOCKET_IFNAME is \"none0\"");
    r = ranks("gloo", "nothing", 1, "no-such-host.invalid");
    assert_exit(&r, 0, 3, "no-such-host.invalid");
}

static void test_no_plugin(void **state)
{
    (void)state;
    ls__link_options options = { .size = 1 };
    ls__link *link;
    setenv("LOCKSTEP_PLUGIN_DIR", folder, 1);
    assert_false(ls__link_there("gloo"));
    assert_fails(ls__link_open("gloo", &options, &link), LS_ERR_UNSUPPORTED, "libgloo-dev");
    assert_fails(ls__link_open("mpi", &options, &link), LS_ERR_UNSUPPORTED, "libopenmpi-dev");
    unsetenv("LOCKSTEP_PLUGIN_DIR");
}

/* --- MPI --- */

static int mpirun(int n, const char *role, char text[TEXT])
{
    const char *mpiexec = getenv("LS_MPIEXEC");
    char count[16];
    int fd;
    need("mpi");
    if (!mpiexec || access(mpiexec, X_OK) != 0) skip();
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1); /* of Open MPI's own */
    snprintf(count, sizeof count, "%d", n);
    char *argv[] = { (char *)(uintptr_t)mpiexec,
                     (char *)"-n",
                     count,
                     (char *)"./prog_link_rank",
                     (char *)"mpi",
                     folder,
                     (char *)(uintptr_t)role,
                     (char *)"-",
                     (char *)"-",
                     NULL };
    pid_t pid = spawn(argv, &fd);
    return finish(pid, fd, text);
}

static void assert_times(const char *text, const char *part, int times)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) found++;
    if (found != times) fail_msg("\"%s\" says \"%s\" %d times, not %d", text, part, found, times);
}

static void test_mpi(void **state)
{
    char text[TEXT];
    (void)state;
    int code = mpirun(3, "nothing,share,order", text); /* a link after a link */
    if (code != 0) fail_msg("exit %d: %s", code, text);
    assert_times(text, "share ok", 3);
    assert_times(text, "nothing ok", 3);
    assert_times(text, "order ok", 3);
}

/* After an abort MPI is not ended in order, so mpirun's exit code is its affair. */
static void test_mpi_failures(void **state)
{
    static const char *const roles[] = { "sizes", "late", "timeout", "ended", "outstanding" };
    char text[TEXT], part[32];
    (void)state;
    mpirun(2, "sizes,late,timeout,ended,outstanding", text);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        snprintf(part, sizeof part, "%s ok", roles[i]);
        assert_times(text, part, 2);
    }
}

static void test_mpi_without_mpirun(void **state)
{
    (void)state;
    need("mpi");
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
    result r = ranks("mpi", "nothing", 2, "127.0.0.1");
    assert_exit(&r, 1, 3, "this is rank 1 of 2, but MPI calls it rank 0 of 1");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_order),    TEST(test_sizes),        TEST(test_ipv6),
        TEST(test_timeout),  TEST(test_job_ends),     TEST(test_killed),
        TEST(test_abort),    TEST(test_destroy),      TEST(test_no_connection_within_a_node),
        TEST(test_impostor), TEST(test_interface),    TEST(test_no_plugin),
        TEST(test_mpi),      TEST(test_mpi_failures), TEST(test_mpi_without_mpirun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
