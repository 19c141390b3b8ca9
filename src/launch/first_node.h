/* What the first of several nodes leaves in the run's folder while a job may start again, so that its
 * own same command line, started after it was lost, takes the run up: the run's name and id, the secret
 * if it was made here, the port, how many starts there were, and whose ranks are which. Mode 0600, and
 * only one's own is read. It goes when the job ends in order. */
#ifndef LS_LAUNCH_FIRST_NODE_H
#define LS_LAUNCH_FIRST_NODE_H

#include "launch/launcher.h"

struct ls__launcher_job;

typedef struct ls__first_before {
    char key[32]; /* of the command line */
    char host[256], run_id[256], secret[260];
    int port, restarts;
    bool started;         /* ranks ran */
    int nodes;            /* launchers */
    ls__node_join *joins; /* (nodes) host and size; size 0 = had not come */
} ls__first_before;

/* The text of the file. LS_ERR_DATA: it is not one. Freed by ls__first_before_free. */
ls_status ls__first_before_parse(const char *text, size_t nbytes, ls__first_before *out);
void ls__first_before_free(ls__first_before *before);

/* Before the run has its name: when this command line was the first node of a run that was lost and whose
 * other nodes still wait, the plan becomes that run's: name, run_id, secret, port, nodes.before. */
void ls__first_node_find(ls__launcher_plan *plan);

/* Of the job; nothing happens where there is no folder, or no restart to come. */
void ls__first_node_keep(const struct ls__launcher_job *j); /* as it is now */
void ls__first_node_touch(struct ls__launcher_job *j);      /* it lives; also when not due */
void ls__first_node_forget(const struct ls__launcher_job *j);

#endif
