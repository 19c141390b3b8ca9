/* A job of several launchers, as the one here sees it. The first one decides: it collects failures,
 * judges them, relays signals and says when ranks start and what the end is; the others act on its
 * word. All functions do nothing where there is one machine (nodes == NULL). */
#ifndef LS_LAUNCH_LAUNCHER_NODES_H
#define LS_LAUNCH_LAUNCHER_NODES_H

#include "base/json.h"

typedef struct ls__nodes_job ls__nodes_job;
struct ls__launcher_job;
struct ls__failure;

/* --- launcher_nodes.c --- */
/* Begins to listen, or to look for the first one. */
ls_status ls__nodes_open(struct ls__launcher_job *j);
void ls__nodes_close(struct ls__launcher_job *j);
void ls__nodes_serve(struct ls__launcher_job *j);
int ls__nodes_fd(const struct ls__launcher_job *j);
/* What is shown of whose output: plan->shown, once places are known. */
ls_status ls__nodes_plan_shown(struct ls__launcher_job *j);
double ls__nodes_due(const struct ls__launcher_job *j); /* negative = never */
/* All are there (again), or this one has its place. LS_ERR_PEER: it never will. */
ls_status ls__nodes_ready(struct ls__launcher_job *j, bool *ready);
/* A wait begins: when it is told of first. */
void ls__nodes_wait_told(struct ls__launcher_job *j);
/* Fixes places: plan->place is right from here on. */
ls_status ls__nodes_start(struct ls__launcher_job *j);
/* What is missing, when the time for it is over. */
ls_status ls__nodes_late(struct ls__launcher_job *j);
/* One machine, or the first. */
bool ls__nodes_decides(const struct ls__launcher_job *j);
/* Before ranks are started again: who is gone is called. */
void ls__nodes_call_back(struct ls__launcher_job *j);
/* The host of any rank. */
const char *ls__nodes_host_of(void *job, int rank);

/* What happens here, told to the first one (by others), or by it to the others. */
void ls__nodes_tell_failure(struct ls__launcher_job *j, const struct ls__failure *failure);
void ls__nodes_tell_end(struct ls__launcher_job *j); /* j->end is settled; the ranks have to go */
void ls__nodes_tell_traceback(struct ls__launcher_job *j, int rank, double at);
void ls__nodes_tell_line(struct ls__launcher_job *j, int rank, int which, const char *text,
                         size_t nbytes);
/* True: told; the first one writes it. */
bool ls__nodes_tell_event(struct ls__launcher_job *j, const char *line);
bool ls__nodes_tell_metrics(struct ls__launcher_job *j, const char *line, size_t nbytes);
/* A signal came to this launcher: true when the first one was told, and will say what to do. */
bool ls__nodes_pass_on(struct ls__launcher_job *j, int number);
/* A signal is to be acted on; the first one tells the others. False: it is the same one as before. */
bool ls__nodes_signal(struct ls__launcher_job *j, int number);

/* --- launcher_nodes_first.c: what the first one knows of the others --- */
/* Whether others still run ranks. */
bool ls__nodes_busy(const struct ls__launcher_job *j);
/* Whether an earlier cause than one that began then may show itself elsewhere. */
bool ls__nodes_expects(const struct ls__launcher_job *j, double began);
/* How long to wait for it. */
double ls__nodes_patience(const struct ls__launcher_job *j, double seconds);
/* The newest sign of life of other machines' ranks, ls__now() scale; 0 = none. */
double ls__nodes_last_sign(const struct ls__launcher_job *j);
/* Seconds from a failure elsewhere to its being told here, by the slowest connection; at most 0.2. */
double ls__nodes_trip(const struct ls__launcher_job *j);
/* Ranks of all machines that are thought to run. */
int ls__nodes_alive(const struct ls__launcher_job *j);
/* The job is over; the others end with this. */
void ls__nodes_finish(struct ls__launcher_job *j);

/* --- launcher_nodes_other.c --- */
/* No rank is left, and the first one is gone: it is waited for, until it is back or the time is over. */
void ls__nodes_await_first(struct ls__launcher_job *j);
/* No rank is left here: what now? */
void ls__nodes_tell_ended(struct ls__launcher_job *j);
/* The first one has said that it is over, or is gone: j->end. */
bool ls__nodes_over(const struct ls__launcher_job *j);

#endif
