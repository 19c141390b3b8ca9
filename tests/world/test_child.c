/* What a child gets before its program runs: the memory policy, as the kernel tells it to a real one. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world/child.h"

extern char **environ;

/* "mode nodes" of this process. */
static int tell_policy(void)
{
    int mode = -1;
    unsigned long nodes[16] = { 0 };
    if (syscall(SYS_get_mempolicy, &mode, nodes, 1024ul, NULL, 0ul) != 0) return 1;
    printf("%d %lx\n", mode, nodes[0]);
    return 0;
}

static void policy_of_child(uint64_t nodes, bool bound, int *mode, unsigned long *got)
{
    int pipes[2], null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    char text[64] = "";
    sigset_t none;
    struct rlimit files;
    char *argv[] = { (char *)"test_child", (char *)"policy", NULL };
    ls__child child;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    sigemptyset(&none);
    getrlimit(RLIMIT_NOFILE, &files);
    assert_ok(ls__child_start(&(ls__child_options) { .argv = argv,
                                                     .envp = environ,
                                                     .null_fd = null_fd,
                                                     .out_fd = pipes[1],
                                                     .err_fd = STDERR_FILENO,
                                                     .memory_nodes = nodes,
                                                     .memory_bound = bound,
                                                     .mask = &none,
                                                     .files = &files },
                              &child));
    close(pipes[1]);
    assert_true(read(pipes[0], text, sizeof text - 1) > 0);
    close(pipes[0]);
    close(null_fd);
    int status;
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.pid_fd);
    assert_int_equal(status, 0);
    assert_int_equal(sscanf(text, "%d %lx", mode, got), 2);
}

static void memory_is_bound_or_preferred(void **state)
{
    (void)state;
    int mode;
    unsigned long nodes;
    if (!ls__memory_can_be_bound(1)) skip(); /* no NUMA, or not allowed here */
    policy_of_child(0, false, &mode, &nodes);
    assert_int_equal(mode, MPOL_DEFAULT); /* asking has changed nothing for this process */
    policy_of_child(1, true, &mode, &nodes);
    assert_int_equal(mode, MPOL_BIND);
    assert_int_equal(nodes, 1);
    policy_of_child(1, false, &mode, &nodes);
    assert_int_equal(mode, MPOL_PREFERRED);
    assert_int_equal(nodes, 1);
}

/* A node that is not there: asked before, and a child begins all the same. */
static void memory_of_no_node(void **state)
{
    (void)state;
    int mode;
    unsigned long nodes;
    if (!ls__memory_can_be_bound(1) || ls__memory_can_be_bound(1ull << 63)) skip();
    assert_false(ls__memory_can_be_bound(1ull << 63));
    assert_int_equal(errno, EINVAL);
    policy_of_child(1ull << 63, true, &mode, &nodes);
    assert_int_equal(mode, MPOL_DEFAULT);
}

/* A policy of the starter's own comes back after the question. */
static void a_question_changes_nothing(void **state)
{
    (void)state;
    unsigned long one = 1, nodes[16] = { 0 };
    int mode;
    if (!ls__memory_can_be_bound(1)) skip();
    assert_int_equal(syscall(SYS_set_mempolicy, MPOL_PREFERRED, &one, 65ul), 0);
    assert_true(ls__memory_can_be_bound(1));
    assert_int_equal(syscall(SYS_get_mempolicy, &mode, nodes, 1024ul, NULL, 0ul), 0);
    assert_int_equal(mode, MPOL_PREFERRED);
    assert_int_equal(nodes[0], 1);
    syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "policy") == 0) return tell_policy();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_bound_or_preferred),
        cmocka_unit_test(memory_of_no_node),
        cmocka_unit_test(a_question_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
