/* The inside of a running job; seen by the files that watch it.
 *
 *     WAITING -> RUNNING -> SETTLING -> FAILING -> KILLED -> (WAITING again, or the end)
 *                   \-> STOPPING ------------------^
 */
#ifndef LS_LAUNCH_LAUNCHER_JOB_H
#define LS_LAUNCH_LAUNCHER_JOB_H

#include "launch/launcher.h"
#include "launch/launcher_nodes.h"
#include "launch/stacks.h"
#include "record/record.h"
#include "world/crew.h"
#include "world/output.h"
#include "world/report.h"

typedef enum ls__job_phase {
    LS__JOB_WAITING, /* before a start */
    LS__JOB_RUNNING,
    LS__JOB_SETTLING, /* a rank failed: a moment to see whether another one failed first */
    LS__JOB_FAILING,  /* the others were asked to end */
    LS__JOB_STOPPING, /* a signal asked for the end */
    LS__JOB_KILLED    /* everybody was sent SIGKILL */
} ls__job_phase;

/* What is known of a rank in the current start. */
typedef struct ls__rank_life {
    double output_at;    /* ls__now() of its last line; 0 = none */
    double traceback_at; /* when it began to print one of Python's; 0 = never */
    double ended_at;
    int64_t beat_ns; /* modification time of its heartbeat; 0 = never */
    double beat_at;  /* ls__now() when that was seen */
    int64_t step;    /* it says it is at; -1 */
    double cpu_seconds;
} ls__rank_life;

/* An end that may be the job's: of a rank that ended badly and not because we asked, or of more. */
typedef struct ls__failure {
    ls__end end;  /* .rank: of all machines' */
    double began; /* ls__now() */
    char host[256];
} ls__failure;

enum { LS__FAILURES_MAX = 64 }; /* more are consequences */

typedef struct ls__launcher_job {
    ls__launcher_plan *plan;
    const char *folder; /* for the job's own files */
    int guardian_fd, port_fd, port;
    ls__crew crew;
    ls__output *output;
    int events_fd; /* -1: none */
    int restarts;

    ls__job_phase phase;
    double started;       /* this start */
    double deadline;      /* of the phase, ls__now() scale; negative = none */
    ls__rank_life *ranks; /* (size) */
    bool orphaned;        /* the guardian is gone */
    int stop_signal;
    double stop_at;
    int stop_code; /* of the first rank that ended with one after a signal */
    bool failed;   /* end says how */
    ls__end end;
    char end_host[256];    /* where */
    ls__failure *failures; /* (nfailures) of this start, in the order in which they were seen */
    int nfailures;
    ls__nodes_job *nodes; /* NULL: one machine */
    int64_t oom_kills;    /* before the ranks started */

    /* signs of life */
    double check_at;         /* next look */
    double warned_at;        /* last warning of silence */
    double idle_cpu_seconds; /* of all ranks at the last look, and when that was */
    double idle_cpu_at;
    bool told_early, told_mpi, looked_alone;
    double mpi_look; /* for MPI's libraries, the last one: seconds after the start */

    int ninjected; /* injections that have happened */

    char **stacks; /* (nstacks) of the ranks, a line per thread, when they were last asked */
    int nstacks;
    ls__stack_owed owed;
    int nnamers;
    ls__stack_namer namers[LS__STACK_RANKS]; /* (nnamers) at work */

    /* restarts */
    int64_t best_step, before_step; /* of this start, of all before */
    int stalled;                    /* starts in a row that came no further */
    ls__end before;
    double delay;

    /* foreign metrics */
    int metrics_fd;
    char *metrics_line; /* begun, not ended */
    size_t metrics_used;
    bool metrics_refused;
    ls__run_folder run_folder;
    ls__record_log *record;
} ls__launcher_job;

/* Acts on a signal, wherever it came from. */
void ls__job_take_signal(ls__launcher_job *j, int number);

/* --- launcher_end.c: what an end is called --- */
void ls__job_rank_ended(ls__launcher_job *j, int rank);
/* A rank, here or elsewhere, has failed: the moment begins in which others may prove to be the cause. */
void ls__job_add_failure(ls__launcher_job *j, const ls__failure *failure);
/* The job ends for this, without such a moment. */
void ls__launched_fail(ls__launcher_job *j, const ls__end *end, const char *host);
/* The ranks here get a chance to leave. */
void ls__job_end_ranks(ls__launcher_job *j);
void ls__job_request_end(ls__launcher_job *j, int number);
void ls__job_guardian_died(ls__launcher_job *j);
void ls__job_deadline_passed(ls__launcher_job *j);
/* A failure here that nobody can have come before. */
void ls__job_ended_by(ls__launcher_job *j, const ls__end *end);
/* Of all ranks that the launcher started: how a rank is called, and where its output is kept. */
int ls__job_rank(const ls__launcher_job *j, int local);
/* -1: it is another machine's. */
int ls__job_local(const ls__launcher_job *j, int rank);
void ls__job_kill(ls__launcher_job *j);
/* All ranks are gone. */
void ls__job_close(ls__launcher_job *j);

/* --- rank_life.c: signs of life --- */
void ls__rank_heartbeat_path(const char *folder, int rank, char out[LS_PATH_MAX]);
/* The step that a heartbeat says; -1 = none. */
int64_t ls__rank_beat_step(const char *path);
ls_status ls__lives_begin(ls__launcher_job *j);
void ls__lives_line(ls__launcher_job *j, int rank, const char *text, size_t nbytes);
/* A rank ended well. */
void ls__lives_ended_well(ls__launcher_job *j);
void ls__lives_read_beats(ls__launcher_job *j);
/* Of the ranks here; ls__now() scale. */
double ls__lives_last_sign(const ls__launcher_job *j);
/* When to look next; negative = never. */
double ls__lives_due(const ls__launcher_job *j);
void ls__lives_check(ls__launcher_job *j);

/* --- activity.c --- */
typedef struct ls__activity {
    char state;         /* as /proc has it: R, S, D, T, ...; '?' = gone */
    double cpu_seconds; /* of it and its descendants */
    char waits_in[64];  /* where in the kernel; "" = unknown */
} ls__activity;
ls__activity ls__activity_of(pid_t pid);
/* The same of n at once, but for waits_in. */
void ls__activities_of(const pid_t *pids, int n, ls__activity *out);

/* --- rank_stacks.c --- */
/* Of all ranks that live, for the report and as an event. Copying takes a millisecond or so each, and what
 * is done to the ranks after it changes nothing; naming waits for seconds at most. */
void ls__rank_stacks_copy(ls__launcher_job *j);
void ls__rank_stacks_name(ls__launcher_job *j);
void ls__rank_stacks_take(ls__launcher_job *j); /* both */
/* On stderr. */
void ls__rank_stacks_tell(const ls__launcher_job *j);
void ls__rank_stacks_free(ls__launcher_job *j);

/* --- mpi_program.c --- */
/* Whether an executable names a library of MPI, and which. */
bool ls__elf_needs_mpi(int fd, char library[64]);
/* Warn of an MPI program: before the start, and by what rank 0 has mapped. */
void ls__mpi_check_program(ls__launcher_job *j);
double ls__mpi_due(const ls__launcher_job *j); /* negative = never */
void ls__mpi_check_process(ls__launcher_job *j);

/* --- alone.c --- */
/* Whether /proc/net/tcp or tcp6 has somebody listening on that port. */
bool ls__tcp_listens(FILE *table, int port);
/* Warns once when ranks of PyTorch do not meet. */
void ls__alone_check(ls__launcher_job *j);

/* --- launcher_inject.c --- */
double ls__injection_due(const ls__launcher_job *j); /* negative = never */
void ls__injection_fire(ls__launcher_job *j);

/* --- launcher_events.c: --events FILE --- */
ls_status ls__events_open(ls__launcher_job *j);
/* One line; fields is stolen, may be NULL. */
void ls__events_write(ls__launcher_job *j, const char *event, json_t *fields);

/* --- launcher_report.c --- */
ls__report ls__job_report_of(ls__launcher_job *j);
/* To its files, to stderr, to stdout with --json. Returns the exit code. */
int ls__job_tell_end(ls__launcher_job *j);

/* --- launcher_restart.c --- */
/* Whether the job starts again; then after j->delay seconds. Says why not. */
bool ls__job_may_restart(ls__launcher_job *j);

/* Writes launch.json; status: running, ... */
void ls__job_write_state(ls__launcher_job *j, const char *status);

/* --- foreign_metrics.c: $LOCKSTEP_METRICS --- */
void ls__metrics_path(const char *folder, char out[LS_PATH_MAX]);
ls_status ls__foreign_metrics_open(ls__launcher_job *j);
void ls__foreign_metrics_read(ls__launcher_job *j);
/* One line, without its newline. */
void ls__foreign_metrics_line(ls__launcher_job *j, const char *text, size_t nbytes);
void ls__foreign_metrics_restart(ls__launcher_job *j);
void ls__foreign_metrics_close(ls__launcher_job *j);

#endif
