/* Ranks that srun started, one task per device. sbatch and salloc set many of the same variables for
 * their scripts; only srun's tasks have a step, so a script of theirs is no rank. One task alone is
 * somebody who was given a machine: it starts its ranks itself. */
#include "world/environment_sets.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "world/nodelist.h"

enum { PROCID, NTASKS, LOCALID, NODEID, STEP_ID, JOB_ID, STEP_TASKS, NVARIABLES };
static const char *const names[NVARIABLES] = { "SLURM_PROCID",
                                               "SLURM_NTASKS",
                                               "SLURM_LOCALID",
                                               "SLURM_NODEID",
                                               "SLURM_STEP_ID",
                                               "SLURM_JOB_ID",
                                               "SLURM_STEP_TASKS_PER_NODE" };

/* Below the ports that the kernel gives to whoever does not care. */
static int port_of(unsigned job, unsigned step)
{
    return 20000 + (int)((job * 31u + step) % 12000u);
}

/* Without MASTER_ADDR and MASTER_PORT: the first host of the step, which has rank 0, and a port that
 * all can compute. */
static ls_status find_store(ls__place *p, int job, int step)
{
    LS_TRY(ls__place_master(p));
    if (p->found != LS__FOUND_NOWHERE) return LS_OK;
    const char *list = ls__variable_get("SLURM_STEP_NODELIST");
    if (!list) list = ls__variable_get("SLURM_NODELIST");
    if (!list) return LS_OK;
    LS_TRY(ls__nodelist_first(list, p->address, sizeof p->address));
    p->port = port_of((unsigned)job, (unsigned)step);
    p->found = LS__FOUND_AT_ADDRESS;
    return LS_OK;
}

ls_status ls__environment_slurm(ls__place *p)
{
    for (int i = 0; i < NVARIABLES; i++)
        if (!ls__variable_get(names[i])) return LS_OK;
    int node, job, step, restart = 0;
    LS_TRY(ls__variable_number(names[NTASKS], 1, LS__RANKS_MAX, &p->size));
    if (p->size == 1) return LS_OK;
    LS_TRY(ls__variable_number(names[PROCID], 0, INT_MAX, &p->rank));
    LS_TRY(ls__variable_number(names[LOCALID], 0, INT_MAX, &p->local_rank));
    LS_TRY(ls__variable_number(names[NODEID], 0, LS__RANKS_MAX, &node));
    LS_TRY(ls__variable_number(names[JOB_ID], 0, INT_MAX, &job));
    LS_TRY(ls__variable_number(names[STEP_ID], 0, INT_MAX, &step));
    LS_TRY(ls__tasks_of_node(ls__variable_get(names[STEP_TASKS]), node, &p->local_size, &p->nodes));
    LS_TRY(ls__place_check(
        p, &(ls__place_names) { names[PROCID], names[NTASKS], names[LOCALID], names[STEP_TASKS] }));
    if (ls__variable_get("SLURM_RESTART_COUNT"))
        LS_TRY(ls__variable_number("SLURM_RESTART_COUNT", 0, INT_MAX, &restart));
    snprintf(p->job, sizeof p->job, "slurm %d.%d %d", job, step, restart);
    snprintf(p->meeting, sizeof p->meeting, "%s node %d", p->job, node);
    LS_TRY(find_store(p, job, step));
    p->size_name = names[NTASKS];
    p->local_size_name = names[STEP_TASKS];
    p->by = LS__STARTED_BY_OTHERS;
    return LS_OK;
}
