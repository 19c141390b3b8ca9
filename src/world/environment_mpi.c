/* Ranks that an MPI's mpirun or mpiexec started. The four numbers are documented variables of each;
 * nothing of MPI is asked for, so ranks on one machine need no MPI library. On several machines the
 * process manager says where rank 0 is, unless MASTER_ADDR and MASTER_PORT do. */
#include "world/environment_sets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"

static const struct {
    ls__place_names names;
    const char *jobs[2]; /* what tells jobs apart, the first that is set; NULL = none */
} sets[] = {
    { { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE" },
      { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid" } },
    { { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" }, { NULL, NULL } },
    { { "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE" }, { "PALS_APID", NULL } },
};

/* Hydra's variables do not tell one job from another; the process at the other end of each rank's
 * PMI_FD does, the proxy that started all ranks of this machine. */
static int proxy_process(int *fd)
{
    *fd = -1;
    if (!ls__variable_get("PMI_FD") || ls__variable_number("PMI_FD", 3, INT_MAX, fd) != LS_OK)
        return 0;
    struct ucred peer;
    socklen_t size = sizeof peer;
    bool known = getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
    if (!known) *fd = -1; /* a leftover number */
    return known ? (int)peer.pid : 0;
}

static ls_status find_store(ls__place *p)
{
    LS_TRY(ls__place_master(p));
    if (p->found != LS__FOUND_NOWHERE) return LS_OK;
    if (ls__variable_get("PMIX_NAMESPACE") && ls__variable_get("PMIX_RANK"))
        p->found = LS__FOUND_BY_PMIX;
    else if (p->pmi_fd >= 0)
        p->found = LS__FOUND_BY_PMI;
    return LS_OK;
}

static ls_status read_set(size_t i, ls__place *p)
{
    const ls__place_names *names = &sets[i].names;
    LS_TRY(ls__variable_number(names->size, 1, LS__RANKS_MAX, &p->size));
    LS_TRY(ls__variable_number(names->rank, 0, INT_MAX, &p->rank));
    LS_TRY(ls__variable_number(names->local_size, 1, INT_MAX, &p->local_size));
    LS_TRY(ls__variable_number(names->local_rank, 0, INT_MAX, &p->local_rank));
    LS_TRY(ls__place_check(p, names));
    const char *job = NULL;
    for (int k = 0; k < 2 && !job; k++)
        if (sets[i].jobs[k]) job = ls__variable_get(sets[i].jobs[k]);
    snprintf(p->job, sizeof p->job, "mpi %.200s", job ? job : "-");
    int proxy = proxy_process(&p->pmi_fd);
    snprintf(p->meeting, sizeof p->meeting, "%s %d", p->job, job ? 0 : proxy);
    p->size_name = names->size;
    p->local_size_name = names->local_size;
    LS_TRY(find_store(p));
    p->world_of_one = p->size == 1;
    p->by = p->world_of_one ? LS__STARTED_ALONE : LS__STARTED_BY_OTHERS;
    return LS_OK;
}

ls_status ls__environment_mpi(ls__place *out)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const ls__place_names *names = &sets[i].names;
        if (ls__variable_get(names->rank) && ls__variable_get(names->size) &&
            ls__variable_get(names->local_rank) && ls__variable_get(names->local_size))
            return read_set(i, out);
    }
    return LS_OK;
}
