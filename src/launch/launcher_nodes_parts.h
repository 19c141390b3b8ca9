/* Inside of launcher_nodes*.c. */
#ifndef LS_LAUNCH_LAUNCHER_NODES_PARTS_H
#define LS_LAUNCH_LAUNCHER_NODES_PARTS_H

#include "launch/agents.h"
#include "launch/hub.h"
#include "launch/launcher_job.h"
#include "launch/spoke.h"

enum { LS__TRACEBACKS_MAX = 64 };

/* Another launcher, seen by the first. */
typedef struct ls__remote {
    bool runs; /* ranks of this start */
    double sign_at;
    double trip;     /* seconds there and back */
    int64_t dropped; /* lines that it had to leave out */
    json_t *figures; /* of its ranks, when somebody last looked; NULL */
} ls__remote;

struct ls__nodes_job {
    int own_port; /* for MASTER_PORT, if rank 0 is here */
    char secret_of_ranks[LS__NODE_NAME_MAX + 1];
    double told_at, told_pause; /* who is waited for */

    /* the first */
    ls__hub *hub;
    ls__agents *agents;
    ls__remote *remotes; /* (launchers) */
    bool started;
    struct {
        int rank; /* elsewhere, still running as far as we know */
        double at;
    } tracebacks[LS__TRACEBACKS_MAX];
    int ntracebacks;
    double touch_at;       /* first_node.c */
    double relayed_at[65]; /* by signal */
    int64_t looked_ns;     /* somebody looked at the run: the file's time */
    double looked_until, figures_at;

    /* another */
    ls__spoke *spoke;
    bool ran;           /* ranks: plan->place is the job's */
    bool placed;        /* and not started yet */
    bool over;          /* j->end is the job's */
    bool lost, rejoins; /* the first one is gone, and may come back; it is looked for */
    int64_t dropped;
};

/* Callbacks of the hub and the spoke; user is the job. */
void ls__first_come(void *user, int launcher);
void ls__first_lost(void *user, int launcher, const char *why);
void ls__first_message(void *user, int launcher, const ls__node_frame *frame);
void ls__other_message(void *user, const ls__node_frame *frame);
void ls__other_pulse(void *user, int64_t numbers[2]);
/* launcher_figures.c: for lockstep top. After the hub was served, and when due (negative = never). */
void ls__first_check_figures(ls__launcher_job *j);
double ls__first_figures_due(const ls__nodes_job *n);
void ls__first_take_figures(ls__launcher_job *j, int launcher, const ls__node_frame *frame);
void ls__first_free_figures(ls__nodes_job *n);
void ls__other_tell_figures(ls__launcher_job *j);
/* What a launcher brings when it joins. */
void ls__nodes_own_join(const ls__launcher_job *j, ls__node_join *out);
/* After the spoke was served. */
void ls__other_check(ls__launcher_job *j);

#endif
