/* Which variables make a rank, which are ignored, which are an error. */
#include "testing.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "world/environment.h"

static const char *const every[] = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "LOCKSTEP_SECRET",
    "LOCKSTEP__JOIN",
};

/* "NAME=value" words, NULL-ended; all else is unset. */
static ls_status read_with(const char *const *words, ls__place *place)
{
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) unsetenv(every[i]);
    for (int i = 0; words[i]; i++) {
        char name[64];
        size_t n = strcspn(words[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)n, words[i]);
        setenv(name, words[i] + n + 1, 1);
    }
    return ls__environment_read(place);
}
#define READ(place, ...) read_with((const char *[]) { __VA_ARGS__, NULL }, place)
#define FIVE(rank, local, size)                                                                    \
    "RANK=" rank, "LOCAL_RANK=" local, "WORLD_SIZE=" size, "MASTER_ADDR=host", "MASTER_PORT=29500"

#define OMPI(rank, size, local, locals)                                                            \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size,                                    \
        "OMPI_COMM_WORLD_LOCAL_RANK=" local, "OMPI_COMM_WORLD_LOCAL_SIZE=" locals
#define SLURM(rank, size, local, node, tasks)                                                      \
    "SLURM_PROCID=" rank, "SLURM_NTASKS=" size, "SLURM_LOCALID=" local, "SLURM_NODEID=" node,      \
        "SLURM_STEP_TASKS_PER_NODE=" tasks, "SLURM_STEP_ID=3", "SLURM_JOB_ID=41"

static void incomplete_is_ignored(void **state)
{
    (void)state;
    ls__place p;
    const char *const none[] = { NULL };
    assert_ok(read_with(none, &p));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, "LOCAL_RANK=0"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_false(p.world_of_one);
    assert_ok(READ(&p, "MASTER_PORT=29500"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, "WORLD_SIZE=nonsense", "RANK=3"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, FIVE("0", "0", "2"), "RANK=")); /* empty is not set */
    assert_int_equal(p.by, LS__STARTED_ALONE);
}

static void complete_is_a_rank(void **state)
{
    (void)state;
    ls__place p, q;
    assert_ok(READ(&p, FIVE("1", "1", "2")));
    assert_int_equal(p.by, LS__STARTED_BY_OTHERS);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.size, 2);
    assert_int_equal(p.local_rank, 1);
    assert_ok(READ(&p, FIVE("0", "0", "1")));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_true(p.world_of_one);
    assert_ok(READ(&p, FIVE("0", "0", "2"), "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a"));
    assert_ok(READ(&q, FIVE("0", "0", "2"), "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=a",
                   "TORCHELASTIC_RESTART_COUNT=1"));
    assert_string_not_equal(p.job, q.job); /* a restart is another job */
}

static void contradictions_are_errors(void **state)
{
    (void)state;
    ls__place p;
    assert_fails(READ(&p, FIVE("2", "0", "2")), LS_ERR_CONFIG, "RANK=2");
    assert_fails(READ(&p, FIVE("0", "5", "2")), LS_ERR_CONFIG, "LOCAL_RANK=5");
    assert_fails(READ(&p, FIVE("x", "0", "2")), LS_ERR_CONFIG, "RANK=x");
    assert_fails(READ(&p, FIVE("0", "0", "0")), LS_ERR_CONFIG, "WORLD_SIZE=0");
    assert_fails(READ(&p, FIVE("-1", "0", "2")), LS_ERR_CONFIG, "RANK=-1");
    assert_fails(READ(&p, FIVE("0", "0", "2"), "MASTER_PORT=99999"), LS_ERR_CONFIG, "MASTER_PORT");
    assert_fails(READ(&p, FIVE("0", "0", "2"), "LOCAL_WORLD_SIZE=3"), LS_ERR_CONFIG,
                 "LOCAL_WORLD_SIZE=3");
    assert_fails(READ(&p, FIVE("3", "0", "4"), "LOCAL_WORLD_SIZE=2"), LS_ERR_CONFIG,
                 "LOCAL_RANK=0 of LOCAL_WORLD_SIZE=2 here, RANK=3 of WORLD_SIZE=4");
    assert_fails(READ(&p, FIVE("0", "0", "2"), "GROUP_RANK=2", "GROUP_WORLD_SIZE=2"), LS_ERR_CONFIG,
                 "GROUP_RANK=2");
    assert_fails(READ(&p, FIVE("0", "0", "4"), "LOCAL_WORLD_SIZE=2", "MASTER_PORT=0"),
                 LS_ERR_CONFIG, "MASTER_PORT=0");
    assert_fails(READ(&p, OMPI("0", "2", "0", "x")), LS_ERR_CONFIG, "OMPI_COMM_WORLD_LOCAL_SIZE=x");
    assert_fails(READ(&p, OMPI("2", "2", "0", "1")), LS_ERR_CONFIG, "OMPI_COMM_WORLD_RANK=2");
    assert_fails(READ(&p, SLURM("1", "4", "0", "5", "2(x2)")), LS_ERR_CONFIG, "SLURM_NODEID=5");
    assert_fails(READ(&p, SLURM("1", "4", "0", "0", "2(y2)")), LS_ERR_CONFIG, "tasks per node");
    char longest[400] = "LOCKSTEP_SECRET=";
    memset(longest + 16, 'x', 300);
    assert_fails(READ(&p, longest), LS_ERR_CONFIG, "LOCKSTEP_SECRET has 300 bytes");
}

/* Ranks of one of two machines, as torchrun tells them. */
static void several_machines(void **state)
{
    (void)state;
    ls__place p, q;
    assert_ok(READ(&p, FIVE("3", "1", "4"), "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
                   "GROUP_WORLD_SIZE=2", "LOCKSTEP_SECRET=abc"));
    assert_int_equal(p.by, LS__STARTED_BY_OTHERS);
    assert_int_equal(p.local_size, 2);
    assert_int_equal(p.nodes, 2);
    assert_int_equal(p.found, LS__FOUND_AT_ADDRESS);
    assert_string_equal(p.address, "host");
    assert_int_equal(p.port, 29500);
    assert_string_equal(p.secret, "abc");
    assert_null(getenv("LOCKSTEP_SECRET"));
    assert_ok(READ(&q, FIVE("0", "0", "4"), "MASTER_ADDR=host.domain", "LOCAL_WORLD_SIZE=2",
                   "GROUP_RANK=0", "TORCHELASTIC_USE_AGENT_STORE=True"));
    assert_int_equal(q.found, LS__FOUND_AT_AGENT);
    assert_string_equal(p.job, q.job);             /* however the address is written */
    assert_string_not_equal(p.meeting, q.meeting); /* nodes on one host do not mix */
    assert_ok(
        READ(&p, FIVE("0", "0", "1"), "LOCAL_WORLD_SIZE=1", "TORCHELASTIC_USE_AGENT_STORE=True"));
    assert_int_equal(p.found, LS__FOUND_HERE);
}

static void mpi_is_a_rank(void **state)
{
    (void)state;
    ls__place p, q;
    assert_ok(READ(&p, OMPI("1", "2", "1", "2"), "PMIX_NAMESPACE=77"));
    assert_int_equal(p.by, LS__STARTED_BY_OTHERS);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.local_size, 2);
    assert_int_equal(p.found, LS__FOUND_HERE);
    assert_ok(READ(&q, OMPI("1", "2", "1", "2"), "PMIX_NAMESPACE=78"));
    assert_string_not_equal(p.meeting, q.meeting);
    assert_ok(READ(&p, "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2")); /* left over */
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, OMPI("0", "1", "0", "1")));
    assert_true(p.world_of_one);
    assert_ok(READ(&p, OMPI("2", "4", "0", "2"), "MASTER_ADDR=first", "MASTER_PORT=777"));
    assert_int_equal(p.found, LS__FOUND_AT_ADDRESS);
    assert_string_equal(p.address, "first");
    assert_ok(READ(&p, OMPI("2", "4", "0", "2")));
    assert_int_equal(p.found, LS__FOUND_NOWHERE);
    assert_ok(READ(&p, OMPI("2", "4", "0", "2"), "PMIX_NAMESPACE=77", "PMIX_RANK=2"));
    assert_int_equal(p.found, LS__FOUND_BY_PMIX);
    assert_ok(READ(&p, OMPI("2", "4", "0", "2"), "PMIX_NAMESPACE=77", "PMIX_RANK=2",
                   "MASTER_ADDR=first", "MASTER_PORT=777"));
    assert_int_equal(p.found, LS__FOUND_AT_ADDRESS);
    assert_ok(READ(&p, "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"));
    assert_int_equal(p.by, LS__STARTED_BY_OTHERS);
    assert_ok(READ(&p, "PMI_RANK=1", "PMI_SIZE=2"));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, OMPI("0", "1", "0", "1"), FIVE("1", "1", "2"))); /* torchrun inside mpirun */
    assert_int_equal(p.size, 2);
}

#define HYDRA "PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"

/* Hydra is asked where there is a connection to it, and not where only its number is left over. */
static void hydra_is_asked(void **state)
{
    (void)state;
    ls__place p;
    int pair[2];
    char word[32];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    snprintf(word, sizeof word, "PMI_FD=%d", pair[0]);
    assert_ok(READ(&p, HYDRA, word));
    assert_int_equal(p.found, LS__FOUND_BY_PMI);
    assert_int_equal(p.pmi_fd, pair[0]);
    close(pair[0]);
    close(pair[1]);
    assert_ok(READ(&p, HYDRA, word));
    assert_int_equal(p.found, LS__FOUND_NOWHERE);
    assert_ok(READ(&p, HYDRA, "PMI_FD=no"));
    assert_int_equal(p.found, LS__FOUND_NOWHERE);
}

static void slurm_is_a_rank(void **state)
{
    (void)state;
    ls__place p, q;
    assert_ok(
        READ(&p, SLURM("0", "3", "0", "0", "2,1"), "SLURM_STEP_NODELIST=gpu[007-008,12]-x,z"));
    assert_int_equal(p.by, LS__STARTED_BY_OTHERS);
    assert_int_equal(p.local_size, 2);
    assert_int_equal(p.nodes, 2);
    assert_string_equal(p.address, "gpu007-x");
    assert_in_range(p.port, 20000, 31999);
    assert_ok(
        READ(&q, SLURM("2", "3", "0", "1", "2,1"), "SLURM_STEP_NODELIST=gpu[007-008,12]-x,z"));
    assert_int_equal(q.local_size, 1);
    assert_int_equal(q.port, p.port);
    assert_string_equal(q.job, p.job);
    assert_ok(READ(&p, SLURM("1", "2", "1", "0", "2")));
    assert_int_equal(p.found, LS__FOUND_HERE);
    /* sbatch's script has no step; one task starts its ranks itself */
    assert_ok(READ(&p, SLURM("0", "2", "0", "0", "2"), "SLURM_STEP_ID="));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_ok(READ(&p, SLURM("0", "1", "0", "0", "1")));
    assert_int_equal(p.by, LS__STARTED_ALONE);
    assert_false(p.world_of_one);
    assert_fails(READ(&p, SLURM("0", "2", "0", "0", "1(x2)"), "SLURM_STEP_NODELIST=n[x]"),
                 LS_ERR_CONFIG, "list of hosts");
}

static void our_own_goes_round(void **state)
{
    (void)state;
    ls__place p = { .rank = 2,
                    .size = 3,
                    .socket_fd = 5,
                    .memory_fd = 6,
                    .board_fd = 7,
                    .restarts = 1,
                    .terminal = true,
                    .crowded = true,
                    .started = 1.0 / 3,
                    .plan = { .threads = 4, .pin = true, .text = "3 CPU devices" } },
              q;
    for (int i = 0; i < 2; i++) {
        char *word = ls__environment_for_child(&p);
        assert_non_null(word);
        assert_ok(READ(&q, word, FIVE("0", "0", "9"))); /* ours counts */
        ls__free(word);
        assert_int_equal(q.by, LS__STARTED_BY_US);
        assert_int_equal(q.rank, 2);
        assert_int_equal(q.size, 3);
        assert_int_equal(q.board_fd, 7);
        assert_int_equal(q.restarts, 1);
        assert_true(q.terminal && q.crowded && q.plan.pin);
        assert_true(q.started == p.started);
        assert_int_equal(q.plan.threads, 4);
        assert_int_equal(q.plan.count, 3);
        assert_string_equal(q.plan.text, p.plan.text);
        assert_string_equal(q.plan.hint, p.plan.hint);
        assert_null(getenv("LOCKSTEP__JOIN")); /* children of a rank are no ranks */
        snprintf(p.plan.hint, sizeof p.plan.hint,
                 "3 of 8 CPUs in use; --threads-per-device 2 would use more");
    }
    assert_fails(READ(&q, "LOCKSTEP__JOIN=1 rank=0"), LS_ERR_CONFIG, "unset it");
    assert_fails(READ(&q, "LOCKSTEP__JOIN="), LS_ERR_CONFIG, "unset it");
    p.rank = 3;
    char *word = ls__environment_for_child(&p);
    assert_fails(READ(&q, word), LS_ERR_CONFIG, "unset it");
    ls__free(word);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(incomplete_is_ignored),
                                        cmocka_unit_test(complete_is_a_rank),
                                        cmocka_unit_test(contradictions_are_errors),
                                        cmocka_unit_test(several_machines),
                                        cmocka_unit_test(mpi_is_a_rank),
                                        cmocka_unit_test(hydra_is_asked),
                                        cmocka_unit_test(slurm_is_a_rank),
                                        cmocka_unit_test(our_own_goes_round) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
