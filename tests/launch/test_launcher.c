/* The launcher's parts: cutting the command line, which variables go, which streams are shown, and
 * the port that nobody else gets. */
#include "testing.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "launch/launcher_job.h"

static ls__launcher_flags flags;
static ls__launcher_words words;

static ls_status split(const char *const *line)
{
    static char *argv[16];
    int argc = 0;
    for (; line[argc]; argc++) argv[argc] = (char *)(uintptr_t)line[argc];
    argv[argc] = NULL;
    ls__launcher_flags_init(&flags);
    return ls__launcher_split(argc, argv, &flags, &words);
}

static void assert_split(const char *const *line, const char *const *ours, const char *program)
{
    assert_ok(split(line));
    int n = 0;
    for (; ours[n]; n++) assert_string_equal(words.flags[n], ours[n]);
    assert_int_equal(words.nflags, n);
    assert_null(words.flags[n]);
    if (program)
        assert_string_equal(words.program[0], program);
    else
        assert_null(words.program[0]);
    ls__launcher_words_free(&words);
}

#define LINE(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void the_program_begins_behind_the_flags(void **state)
{
    (void)state;
    assert_split(LINE("r", "true"), LINE("r"), "true");
    assert_split(LINE("r"), LINE("r"), NULL);
    assert_split(LINE("r", "--nproc_per_node", "2", "a.py", "--tee", "3"),
                 LINE("r", "--nproc-per-node", "2"), "a.py");
    assert_split(LINE("r", "--nproc_per_node=a_b", "x"), LINE("r", "--nproc-per-node=a_b"), "x");
    assert_split(LINE("r", "--json", "--standalone", "x"), LINE("r", "--json", "--standalone"),
                 "x");
    assert_split(LINE("r", "-m", "-t", "3", "pkg.mod", "-m"), LINE("r", "--module", "--tee", "3"),
                 "pkg.mod");
    assert_split(LINE("r", "--devices", "2", "--", "--odd"), LINE("r", "--devices", "2"), "--odd");
    assert_split(LINE("r", "--tee", "--", "x"), LINE("r", "--tee", "--"),
                 "x"); /* the table objects */
    assert_split(LINE("r", "--tee"), LINE("r", "--tee"), NULL);
    assert_fails(split(LINE("r", "--start-method", "spawn", "x")), LS_ERR_CONFIG, "by exec");
}

static void variables_of_torchrun_stand_for_flags(void **state)
{
    (void)state;
    setenv("PET_NPROC_PER_NODE", "3", 1);
    assert_split(LINE("r", "x"), LINE("r", "--nproc-per-node=3"), "x");
    assert_split(LINE("r", "--nproc-per-node=2", "x"), LINE("r", "--nproc-per-node=2"), "x");
    setenv("LOCKSTEP_NPROC_PER_NODE", "4", 1);
    assert_split(LINE("r", "x"), LINE("r"), "x");
    unsetenv("LOCKSTEP_NPROC_PER_NODE");
    setenv("PET_RDZV_BACKEND", "c10d", 1);
    assert_fails(split(LINE("r", "x")), LS_ERR_CONFIG, "PET_RDZV_BACKEND=c10d");
    unsetenv("PET_RDZV_BACKEND");
    unsetenv("PET_NPROC_PER_NODE");
}

static void allocations_may_fail(void **state)
{
    (void)state;
    setenv("PET_NNODES", "1", 1);
    for (int n = 1;; n++) {
        ls__alloc_fail_at(n);
        ls_status status = split(LINE("r", "--tee", "3", "x"));
        ls__alloc_fail_at(0);
        if (status == LS_OK) break;
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_true(n < 50);
    }
    ls__launcher_words_free(&words);
    unsetenv("PET_NNODES");
}

static void words_of_other_launchers_go(void **state)
{
    (void)state;
    assert_true(ls__launcher_scrubs("SLURM_PROCID=1"));
    assert_true(ls__launcher_scrubs("SLURM_STEP_NODELIST=a"));
    assert_true(ls__launcher_scrubs("PMI_RANK=0"));
    assert_true(ls__launcher_scrubs("PMIX_NAMESPACE=x"));
    assert_true(ls__launcher_scrubs("OMPI_COMM_WORLD_RANK=1"));
    assert_true(ls__launcher_scrubs("LOCKSTEP__JOIN=1"));
    assert_false(ls__launcher_scrubs("SLURM_JOB_ID=1"));
    assert_false(ls__launcher_scrubs("SLURM_PROCIDS=1"));
    assert_false(ls__launcher_scrubs("OMPI_MCA_btl=tcp"));
    assert_false(ls__launcher_scrubs("LOCKSTEP_DEVICES=2"));
    assert_false(ls__launcher_scrubs("PATH=/bin"));
}

static void assert_shown(const char *tee, const char *redirects, const char *filter,
                         const char *expected)
{
    unsigned char shown[3];
    ls__launcher_flags f = { .tee = tee, .redirects = redirects, .local_ranks_filter = filter };
    assert_ok(ls__launcher_shown(&f, 3, true, shown));
    for (int r = 0; r < 3; r++) assert_int_equal(shown[r], expected[r] - '0');
}

static void streams_that_are_shown(void **state)
{
    (void)state;
    assert_shown(NULL, NULL, NULL, "322");
    assert_shown("3", NULL, NULL, "333");
    assert_shown("2:1", NULL, NULL, "323");
    assert_shown(NULL, "2", NULL, "100");
    assert_shown("3", "3", NULL, "333");
    assert_shown(NULL, "0:3,1:2", NULL, "002");
    assert_shown(NULL, NULL, "0,2", "302");
    ls__launcher_flags wrong = { .tee = "3:3" };
    unsigned char shown[3];
    assert_fails(ls__launcher_shown(&wrong, 3, true, shown), LS_ERR_CONFIG, "--tee");
}

static int listening(int family, int port, bool reuse)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int on = 1, fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    if (reuse) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool ok = family == AF_INET6 ? bind(fd, (struct sockaddr *)&six, sizeof six) == 0
                                 : bind(fd, (struct sockaddr *)&four, sizeof four) == 0;
    if (ok && listen(fd, 8) == 0) return fd;
    close(fd);
    return -1;
}

static void a_held_port_is_for_who_knows_it(void **state)
{
    (void)state;
    enum { HOLDERS = 50 };
    int ports[HOLDERS], fds[HOLDERS];
    for (int i = 0; i < HOLDERS; i++) {
        ports[i] = 0;
        assert_ok(ls__master_port_hold(&ports[i], &fds[i]));
        for (int k = 0; k < i; k++) assert_int_not_equal(ports[i], ports[k]);
    }
    assert_int_equal(listening(AF_INET, ports[0], false), -1);
    int server = listening(AF_INET, ports[0], true);
    assert_true(server >= 0);
    int again = ports[0], fd;
    assert_fails(ls__master_port_hold(&again, &fd), LS_ERR_CONFIG, "--master-port");
    close(server);
    for (int i = 0; i < HOLDERS; i++) close(fds[i]);
}

static bool listens(const char *row, int port)
{
    char text[512];
    int n =
        snprintf(text, sizeof text,
                 "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n%s\n", row);
    FILE *table = fmemopen(text, (size_t)n, "r");
    bool found = ls__tcp_listens(table, port);
    fclose(table);
    return found;
}

static void who_listens(void **state)
{
    (void)state;
    const char *server = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000",
               *client = "   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000",
               *wide = " 203: 00000000000000000000000000000000:0050 "
                       "00000000000000000000000000000000:0000 0A 00000000:00000000";
    assert_true(listens(server, 8080));
    assert_false(listens(server, 8081));
    assert_false(listens(client, 8080));
    assert_true(listens(wide, 80));
    assert_false(listens("nonsense", 80));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_begins_behind_the_flags),
        cmocka_unit_test(variables_of_torchrun_stand_for_flags),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(words_of_other_launchers_go),
        cmocka_unit_test(streams_that_are_shown),
        cmocka_unit_test(a_held_port_is_for_who_knows_it),
        cmocka_unit_test(who_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
