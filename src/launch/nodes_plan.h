/* Which machines make a job, and which of them this is: by flags, else by the variables of what has
 * started us (SLURM, Open MPI, MPICH, Kubernetes). */
#ifndef LS_LAUNCH_NODES_PLAN_H
#define LS_LAUNCH_NODES_PLAN_H

#include "launch/launcher.h"
#include "launch/node_link.h"

/* Fills plan->nodes; needs plan->runs_dir and plan->host. The caller frees by ls__nodes_plan_free. */
ls_status ls__nodes_plan_make(const ls__launcher_flags *flags, const ls__options *options,
                              ls__launcher_plan *plan);
void ls__nodes_plan_free(ls__launcher_plan *plan);

/* From the environment alone; leaves role NONE when it says nothing. nodes_environment.c */
ls_status ls__nodes_from_environment(ls__launcher_plan *plan);
/* Prefix and index of a name like "job-worker-0" and "job-node-0-0.job", for those of the others: sets
 * nodes->pattern. */
void ls__nodes_pattern(const char *first, ls__nodes_plan *nodes);
/* A secret that nodes share by a file of mode 0600: the first makes it, the others wait for it. */
ls_status ls__nodes_secret_file(ls__launcher_plan *plan, const char *key, bool first);

/* Without a secret: whether the job's flags or variables name this address. */
bool ls__nodes_names(const ls__nodes_plan *nodes, const struct sockaddr *peer);
/* Says how others join, when the secret was made here. */
void ls__nodes_tell_line_to_join(const ls__launcher_plan *plan, int port);

#endif
