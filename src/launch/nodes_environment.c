/* Started by something that knows the machines already: SLURM's srun, Open MPI's and MPICH's launchers,
 * Kubernetes' operators. Their variables count only when complete, and when they speak of more than one
 * process. A launcher per node starts all its devices; where there are several on a node, each is one
 * rank. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mac.h"
#include "launch/node_names.h"
#include "launch/nodes_plan.h"
#include "world/pmi.h"

/* Below what the kernel hands out, above what services use. */
enum { PORT_LOW = 10000, PORTS = 20000, PMI_MS = 60000 };

static int port_of(const char *what)
{
    return PORT_LOW + (int)(XXH3_64bits(what, strlen(what)) % PORTS);
}

/* A whole number of at least low; false = there is none. */
static bool number_in(const char *name, int low, int *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !isdigit((unsigned char)text[0])) return false;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < low || value > INT_MAX) return false;
    *out = (int)value;
    return true;
}

static ls_status take_place(ls__nodes_plan *nodes, const char *who, int rank, int size, int local)
{
    if (rank >= size || size > LS__NODES_MAX)
        return ls_fail(LS_ERR_CONFIG, "%s: process %d of %d", who, rank, size);
    nodes->role = rank == 0 ? LS__NODES_FIRST : LS__NODES_OTHER;
    nodes->node_rank = rank;
    nodes->launchers = size;
    nodes->local_launchers = local > 0 ? local : 1;
    snprintf(nodes->found, sizeof nodes->found, "%s", who);
    return LS_OK;
}

/* --- a secret in a file --- */

static bool read_secret(const char *path, char *out)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool good = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                info.st_uid == geteuid() && (info.st_mode & 077) == 0 &&
                info.st_size == LS__SECRET_TEXT - 1 &&
                read(fd, out, LS__SECRET_TEXT - 1) == LS__SECRET_TEXT - 1;
    if (fd >= 0) close(fd);
    if (good) out[LS__SECRET_TEXT - 1] = '\0';
    return good;
}

static ls_status write_secret(const char *path, char *out)
{
    char text[LS__SECRET_TEXT];
    LS_TRY(ls__secret_make(text));
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1;
    if (fd >= 0) close(fd);
    if (!good) return ls__fail_errno(LS_ERR_IO, "%s", path);
    snprintf(out, LS__SECRET_TEXT, "%s", text);
    return LS_OK;
}

ls_status ls__nodes_secret_file(ls__launcher_plan *plan, const char *key, bool first)
{
    char path[LS_PATH_MAX], name[96];
    double limit = plan->nodes.timeout, deadline = ls__now() + (limit < 0 ? 1e9 : limit);
    if (plan->nodes.secret[0]) return LS_OK;
    snprintf(name, sizeof name, ".secret-%.80s", key);
    LS_TRY(ls__folder_make(&ls__fs_posix, plan->runs_dir));
    LS_TRY(ls__path_join(path, plan->runs_dir, name));
    if (first && read_secret(path, plan->nodes.secret)) return LS_OK; /* it comes back */
    if (first) return write_secret(path, plan->nodes.secret);
    while (!read_secret(path, plan->nodes.secret)) {
        if (ls__now() > deadline)
            return ls_fail(LS_ERR_TIMEOUT,
                           "the first node's secret did not appear in %.300s: --runs-dir must be a "
                           "folder that all nodes share, or LOCKSTEP_SECRET be the same on all",
                           path);
        ls__sleep_ms(20);
    }
    return LS_OK;
}

/* --- SLURM --- */

static ls_status from_slurm(ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    int job, step, rank, size, node;
    char who[64], key[64];
    const char *list = getenv("SLURM_STEP_NODELIST");
    if (!list || !number_in("SLURM_JOB_ID", 1, &job) || !number_in("SLURM_STEP_ID", 0, &step) ||
        !number_in("SLURM_PROCID", 0, &rank) || !number_in("SLURM_NODEID", 0, &node) ||
        !number_in("SLURM_STEP_NUM_TASKS", 2, &size))
        return LS_OK;
    ls__hosts hosts;
    LS_TRY(ls__nodelist_parse(list, &hosts));
    snprintf(nodes->host, sizeof nodes->host, "%s", hosts.hosts[0].name);
    ls__hosts_free(&hosts);
    snprintf(who, sizeof who, "SLURM step %d.%d", job, step);
    snprintf(key, sizeof key, "slurm-%d-%d", job, step);
    snprintf(nodes->machine, sizeof nodes->machine, "slurm-%d", node);
    nodes->port = port_of(key);
    LS_TRY(take_place(nodes, who, rank, size,
                      ls__tasks_of(getenv("SLURM_STEP_TASKS_PER_NODE"), node)));
    return ls__nodes_secret_file(plan, key, rank == 0);
}

/* --- Open MPI --- */

/* The first address in "jobid.0;tcp://10.0.0.7,10.1.0.7:4711". */
static bool address_of_mpirun(char out[LS__NODE_NAME_MAX + 1])
{
    const char *uri = getenv("OMPI_MCA_orte_hnp_uri"), *at = uri ? strstr(uri, "tcp://") : NULL;
    if (!at) return false;
    at += 6;
    size_t n = strcspn(at, ",:;");
    if (!ls__host_is_good(at, n)) return false;
    snprintf(out, LS__NODE_NAME_MAX + 1, "%.*s", (int)n, at);
    return true;
}

static ls_status from_open_mpi(ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    int rank, size, local_size;
    char key[64];
    if (!number_in("OMPI_COMM_WORLD_RANK", 0, &rank) ||
        !number_in("OMPI_COMM_WORLD_SIZE", 2, &size) ||
        !number_in("OMPI_COMM_WORLD_LOCAL_SIZE", 1, &local_size))
        return LS_OK;
    const char *space = getenv("PMIX_NAMESPACE"),
               *shared = getenv("OMPI_MCA_orte_precondition_transports");
    nodes->loopback = local_size == size;
    if (nodes->loopback)
        snprintf(nodes->host, sizeof nodes->host, "127.0.0.1");
    else if (!address_of_mpirun(nodes->host))
        return ls_fail(LS_ERR_CONFIG, "mpirun does not say where its first process is: give all of "
                                      "them --nnodes, --node-rank and --master-addr");
    snprintf(key, sizeof key, "mpi-%016llx",
             (unsigned long long)XXH3_64bits(space ? space : "", space ? strlen(space) : 0));
    nodes->port = port_of(key);
    snprintf(nodes->machine, sizeof nodes->machine, "mpi-%.240s", plan->host);
    LS_TRY(take_place(nodes, "Open MPI", rank, size, local_size));
    /* mpirun gives its processes, and nobody else, a random key of their own. */
    if (!nodes->secret[0] && shared && shared[0])
        ls__secret_derive(shared, "lockstep run", nodes->secret);
    return ls__nodes_secret_file(plan, key, rank == 0);
}

/* --- MPICH and its relatives --- */

/* The first process says by the process manager's own exchange where it is. */
static ls_status from_pmi(ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    int rank, size, local_size = 0, fd, listener = -1;
    char text[LS__PMI_VALUE_MAX], address[LS__ADDRESS_TEXT], secret[LS__SECRET_TEXT];
    if (!number_in("PMI_RANK", 0, &rank) || !number_in("PMI_SIZE", 2, &size) ||
        !number_in("PMI_FD", 0, &fd))
        return LS_OK;
    number_in("MPI_LOCALNRANKS", 1, &local_size);
    LS_TRY(take_place(nodes, "MPICH's process manager", rank, size, local_size));
    snprintf(nodes->machine, sizeof nodes->machine, "mpi-%.240s", plan->host);
    nodes->loopback = local_size == size;
    ls__address_guess(address);
    LS_TRY(ls__secret_make(secret));
    if (rank == 0) {
        LS_TRY(ls__listen(nodes->loopback, &nodes->port, &listener));
        close(listener);
        snprintf(text, sizeof text, "%s/%d/%s", nodes->loopback ? "127.0.0.1" : address,
                 nodes->port, secret);
    }
    LS_TRY(ls__pmi_share(fd, rank == 0, PMI_MS, text));
    ls__pmi_leave(fd);
    char host[LS__ADDRESS_TEXT];
    int used = -1;
    if (sscanf(text, "%63[^/]/%d/%32[0-9a-f]%n", host, &nodes->port, secret, &used) != 3 ||
        text[used] != '\0' || nodes->port < 1 || nodes->port > 65535 ||
        !ls__host_is_good(host, strlen(host)))
        return ls_fail(LS_ERR_DATA,
                       "the process manager handed out something else than was shared");
    snprintf(nodes->host, sizeof nodes->host, "%s", host);
    if (!nodes->secret[0]) snprintf(nodes->secret, sizeof nodes->secret, "%s", secret);
    return LS_OK;
}

/* --- Kubernetes --- */

/* PyTorchJob's variables count pods; RANK is a pod's. (TrainJob has PET_*, which are flags.) */
static ls_status from_kubernetes(ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    int rank, size, port;
    const char *address = getenv("MASTER_ADDR");
    if (!getenv("KUBERNETES_SERVICE_HOST") || getenv("LOCAL_RANK") || !address ||
        !number_in("RANK", 0, &rank) || !number_in("WORLD_SIZE", 2, &size) ||
        !number_in("MASTER_PORT", 1, &port) || port > 65535)
        return LS_OK;
    if (!ls__host_is_good(address, strlen(address)))
        return ls_fail(LS_ERR_CONFIG, "MASTER_ADDR=%.64s: no name of a host", address);
    snprintf(nodes->host, sizeof nodes->host, "%s", address);
    nodes->port = port;
    LS_TRY(take_place(nodes, "Kubernetes' RANK and WORLD_SIZE", rank, size, 1));
    if (nodes->secret[0]) return LS_OK;
    nodes->near = true;
    ls__nodes_pattern(address, nodes);
    return LS_OK;
}

ls_status ls__nodes_from_environment(ls__launcher_plan *plan)
{
    static ls_status (*const sources[])(ls__launcher_plan *) = { from_slurm, from_open_mpi,
                                                                 from_pmi, from_kubernetes };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (plan->nodes.role != LS__NODES_NONE) return LS_OK;
        LS_TRY(sources[i](plan));
    }
    return LS_OK;
}
