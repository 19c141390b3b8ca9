/* What a run's folder says about the processes that work on it: for lockstep runs, logs and stop.
 *
 *     runs/NAME/launch.lock   held (flock) while lockstep run runs it
 *     runs/NAME/launch.json   lockstep.launch-state/1: process, host, words, ranks, status, exit code
 *
 * A training run has a lock and a run.json of its own beside these (record/record.h); a folder may
 * have both, or only one. */
#ifndef LS_LAUNCH_LAUNCH_STATE_H
#define LS_LAUNCH_LAUNCH_STATE_H

#include "base/json.h"

/* The lock, held until fd is closed by all who have inherited it. LS_ERR_CONFIG when another launcher
 * has it. */
ls_status ls__launch_lock(const char *folder, const char *name, int *fd);
ls_status ls__launch_state_write(const char *folder,
                                 json_t *document /* stolen; NULL: no memory */);
/* NULL = there is none, or it cannot be read. */
json_t *ls__launch_state_read(const char *folder);

/* A run as its folder shows it. */
typedef struct ls__run_state {
    char name[256], folder[LS_PATH_MAX], logs[LS_PATH_MAX];
    char status[32]; /* "running", "finished", "stopped", "failed", "died", "unknown" */
    char host[256];
    bool live;      /* a process holds a lock of it */
    bool launched;  /* lockstep run holds one */
    int pid;        /* that one takes a request to stop; 0 = unknown */
    int world_size; /* 0 = unknown */
    int64_t step;   /* -1 = unknown */
    double time;    /* of the last change, seconds since 1970 */
    char *command;  /* the words; freed by ls__run_state_free */
} ls__run_state;

/* name: of a run in runs_dir, or a folder's path. LS_ERR_CONFIG when it is not a run. */
ls_status ls__run_state_read(const char *runs_dir, const char *name, ls__run_state *out);
void ls__run_state_free(ls__run_state *state);

#endif
