/* Launch: starts any program, one process per device of this machine, with the variables that
 * frameworks look for, and watches it to its end.
 *
 *     words of the command line --ls__launcher_split--> our flags | the program's words
 *     flags, variables          --ls__launcher_plan---> what will be started: all of --dry-run
 *     plan                      --ls__launcher_run----> exit code
 *
 * The programs need not know of us, so nothing here may rely on their help: a rank is an exit code,
 * two streams, and files that it may or may not write. */
#ifndef LS_LAUNCH_LAUNCHER_H
#define LS_LAUNCH_LAUNCHER_H

#include <lockstep/world.h>

#include "base/json.h"
#include "base/option.h"
#include "device/device.h"
#include "launch/node_frame.h"

/* --- the command line --- */

/* What the flags of the launcher's own say. NULL = not given. */
typedef struct ls__launcher_flags {
    const char *nproc_per_node, *nnodes, *node_rank, *master_addr, *master_port, *rdzv_id, *role;
    const char *log_dir, *tee, *redirects, *local_ranks_filter;
    const char *events, *inject, *hang_timeout, *silence_warning, *numa_binding;
    const char *join, *hosts, *hostfile, *agent;
    bool isolate_devices, standalone, module, no_python, dry_run, slurm_script;
    ls_flag table[40]; /* of all of them, for the option table */
} ls__launcher_flags;

typedef struct ls__launcher_words {
    int nflags;
    char **flags; /* (nflags) argv[0] and our flags, spelt as the table has them; NULL-ended */
    int nline;    /* the same for the option table, which takes words out of it */
    char **line;
    char **program;  /* the program's words, NULL-ended; borrowed from argv */
    char *variables; /* PET_* that count: "PET_NNODES=1, PET_...", for messages; "" = none */
} ls__launcher_words;

/* The flags of ours that the launcher shares with other programs; NULL-ended. */
extern const char *const ls__launcher_shared_flags[];

/* Flags with nothing given, their table pointing into them. */
void ls__launcher_flags_init(ls__launcher_flags *flags);
/* Cuts the line where the program begins: at the first word that is no flag, or behind "--". Takes in
 * torchrun's spellings (--nproc_per_node, -m, -r, -t) and its PET_* variables. Flags that cannot
 * work here are LS_ERR_CONFIG with the reason. */
ls_status ls__launcher_split(int argc, char **argv, const ls__launcher_flags *flags,
                             ls__launcher_words *out);
void ls__launcher_words_free(ls__launcher_words *words);

/* --- the plan --- */

enum { LS__INJECTIONS_MAX = 64 };

/* A signal to a rank, so many seconds after the first start. */
typedef struct ls__injection {
    int signal, rank;
    double at;
} ls__injection;

enum { LS__SHOW_STDOUT = 1, LS__SHOW_STDERR = 2 };

/* How this launcher takes part in a job of several; nodes_plan.c finds it out. */
typedef enum ls__nodes_role {
    LS__NODES_NONE, /* one machine */
    LS__NODES_FIRST,
    LS__NODES_OTHER
} ls__nodes_role;

typedef struct ls__nodes_plan {
    ls__nodes_role role;
    int launchers;                    /* that make the job; OTHER: 0 = the first one knows */
    int node_rank;                    /* which of them this is; -1 = as it comes, or no ranks */
    int local_launchers;              /* that something else started on this machine: 1 mostly */
    char host[LS__NODE_NAME_MAX + 1]; /* FIRST: "" = as the others see it; OTHER: of the first */
    int port;                         /* the launchers'; FIRST: 0 = a free one */
    char secret[260];                 /* "" = none */
    bool by_agent;                    /* OTHER: the first one started this, and hears it */
    bool made;                        /* it was made here: others need the line that has it */
    bool own_secret;                  /* it was made here, also when agents bring it */
    struct ls__first_before *before;  /* FIRST: what it was before it was lost; NULL = a new job */
    bool loopback;                    /* nobody from outside this machine */
    bool near;                        /* no secret: who is in a network of this machine is let in */
    char pattern[LS__NODE_NAME_MAX +
                 1];   /* no secret: names of the others, "#" = number; "" = near */
    int pattern_first; /* the number of node 1 in it */
    char machine[LS__NODE_NAME_MAX + 1];
    char interface[32]; /* that other nodes are reached by, once they have met; "" = none */
    char found[160];    /* who said so: "--nnodes 2", "SLURM step 7.0" */
    double timeout;     /* seconds for all to come; -1 = none */
    const struct ls__hosts *hosts; /* that agents start launchers on; NULL = none */
    char agent[1024];
} ls__nodes_plan;

/* Where a rank runs. */
typedef struct ls__rank_place {
    cpu_set_t cpus;
    bool bound;            /* to them */
    uint64_t memory_nodes; /* whose memory it takes first, a bit each; 0 = any */
    bool memory_bound;     /* and no other's */
    char gpu[96];          /* entry of CUDA_VISIBLE_DEVICES; "" = none */
} ls__rank_place;

typedef struct ls__launcher_plan {
    char path[LS_PATH_MAX]; /* what is executed */
    char **argv;            /* NULL-ended; words borrowed from the command line */
    ls__cpus cpus;
    ls__device_plan devices; /* .threads: of OMP_NUM_THREADS */
    int size;                /* ranks that this launcher starts */
    ls__nodes_plan nodes;
    ls__node_place place; /* once it is known; of a job on one machine from the beginning */
    const ls__launcher_flags *flags; /* borrowed */
    const ls__launcher_words *words; /* borrowed */
    ls__rank_place *places;          /* (size) */
    bool isolate;                    /* each sees its GPU only, and has LOCAL_RANK 0 */
    bool on_cpus;                    /* so are programs that look for accelerators */
    bool by_number;                  /* the GPUs' numbers are in PCI order */
    char visible[LS__VISIBLE_TEXT];  /* CUDA_VISIBLE_DEVICES of all; "" = as it was found */
    bool threads_said;               /* by --threads-per-device */
    bool kind_said;                  /* by --devices, and it is not GPUs */
    bool own_threads;                /* OMP_NUM_THREADS was there already, and stays */
    char host[256];
    char master_addr[256];
    int master_port; /* 0 = any free one, found when the job starts */
    char run_id[256], role[64];
    char name[256]; /* of the run; "" = made up when the job starts */
    bool named;     /* by the user: then its folder must work */
    char runs_dir[LS_PATH_MAX];
    char log_dir[LS_PATH_MAX]; /* "" = in the run's folder */
    bool no_logs;
    int max_restarts;
    double grace; /* seconds; -1 = none */
    bool json;
    char report[LS_PATH_MAX];             /* absolute; "" = none */
    char events[LS_PATH_MAX];             /* the same */
    double hang_timeout, silence_warning; /* seconds; 0 = none */
    int ninjections;
    ls__injection injections[LS__INJECTIONS_MAX]; /* in the order of time */
    unsigned char *
        shown; /* (size; the first of several nodes: all ranks) LS__SHOW_STDOUT | LS__SHOW_STDERR: what is on our streams */
    int pid;   /* of the process that was started as lockstep run */
    double started; /* ls__now() scale */
} ls__launcher_plan;

/* *exit_code: of main when it fails: 126 and 127 for a program that cannot be executed, else the
 * status's. */
ls_status ls__launcher_plan_make(const ls__launcher_flags *flags, const ls__options *options,
                                 const ls__launcher_words *words, ls__launcher_plan *out,
                                 int *exit_code);
void ls__launcher_plan_free(ls__launcher_plan *plan);

/* Resolves the program: its path and words, with an interpreter before a Python file or module. */
ls_status ls__launcher_program(const ls__launcher_flags *flags, char **words,
                               ls__launcher_plan *out, int *exit_code);
/* Which streams of which ranks are shown, by --tee, --redirects and --local-ranks-filter. */
/* size: of one machine; first: it has rank 0. */
ls_status ls__launcher_shown(const ls__launcher_flags *flags, int size, bool first,
                             unsigned char *shown);
/* --inject */
ls_status ls__launcher_injections(const char *text, int size, ls__launcher_plan *out);
/* A whole number in [low, high], or an error that names the flag. */
ls_status ls__launcher_number(const char *flag, const char *text, int low, int high, int *out);

/* --dry-run; where there are several machines, for what is known before they have met. */
ls_status ls__launcher_show(const ls__launcher_plan *plan);
/* --slurm-script: a batch script for sbatch that runs this command line, to stdout. */
ls_status ls__slurm_script(const ls__launcher_flags *flags, const ls__launcher_words *words);
json_t *ls__launcher_json(const ls__launcher_plan *plan);

/* --- the environment of a rank --- */

typedef struct ls__rank_variables {
    int nset;
    char **set;  /* (nset) "NAME=value" that the launcher sets for this rank */
    char **envp; /* NULL-ended: what is inherited, then set; borrowed from both */
} ls__rank_variables;

/* What a start of the job adds to the plan. */
typedef struct ls__launcher_start {
    int restarts;
    int port;
    const char *folder; /* of the job's own files (error files); NULL = a dry run */
} ls__launcher_start;

ls_status ls__rank_variables_make(const ls__launcher_plan *plan, const ls__launcher_start *start,
                                  int rank, ls__rank_variables *out);
void ls__rank_variables_free(ls__rank_variables *variables);
/* Whether an inherited variable ("NAME=value") is another launcher's word about another rank. */
bool ls__launcher_scrubs(const char *entry);
/* Path of a rank's TORCHELASTIC_ERROR_FILE. */
void ls__rank_error_path(const char *folder, int rank, char out[LS_PATH_MAX]);
/* What Python's error file says, in one line; "" when there is nothing (readable). */
void ls__rank_error_read(const char *folder, int rank, char *out, size_t nbytes);

/* --- the job --- */

/* A port nobody else gets: bound, not listening, until somebody with SO_REUSEADDR listens on it.
 * *port 0 = any free one. */
ls_status ls__master_port_hold(int *port, int *fd);
/* A socket that listens for other launchers, for both families; *port 0 = any free one. */
ls_status ls__listen(bool loopback, int *port, int *fd);
/* Whether a name or address is one of this machine's. */
bool ls__address_is_here(const char *name);

/* Runs the job and returns main's exit code; no process of it is left. Process: one thread. */
int ls__launcher_run(ls__launcher_plan *plan);

/* The part of it that a guardian watches: ranks are its children. guardian_fd: a pidfd of the guardian.
 * folder: for the job's own files. */
int ls__launcher_supervise(ls__launcher_plan *plan, int guardian_fd, const char *folder);
/* Runs work in a child and makes sure that none of its descendants survives it, however it ends. */
int ls__guard(int (*work)(void *user, int guardian_fd), void *user);

#endif
