/* Records: the run's folder, metrics.jsonl, progress. One writer: rank 0. Never blocks the loop (a
 * thread writes; a full queue drops progress, never metrics) and never fails the run: a full disk
 * is reported once and remembered. */
#ifndef LS_RECORD_H
#define LS_RECORD_H

#include <lockstep/base.h>

#include "base/json.h"

typedef struct ls__record_log ls__record_log;

/* --- the run's folder --- */
typedef struct ls__run_folder {
    char path[LS_PATH_MAX];        /* runs/NAME */
    char checkpoints[LS_PATH_MAX]; /* runs/NAME/checkpoints */
    char name[256];
    int lock; /* descriptor of the held lock file; -1 */
} ls__run_folder;
/* Makes or opens it and takes its lock. LS_ERR_CONFIG when a live process has it (pid and host in
 * the text) or the name is not one ('/', "..", empty, longer than 200 bytes); LS_ERR_IO when it
 * cannot be written. */
ls_status ls__run_folder_open(const char *runs_dir, const char *name, ls__run_folder *out);
void ls__run_folder_close(ls__run_folder *folder);
/* "amber-fox-0412": made up from the clock and the pid, not taken yet in runs_dir. */
ls_status ls__run_name(const char *runs_dir, char out[256]);

/* run.json, lockstep.run/1: status running, finished, stopped, failed; heartbeat. Rank 0. */
ls_status ls__run_json_write(const ls__run_folder *folder, const json_t *document);

/* --- metrics.jsonl, lockstep.metrics/1 --- */
/* Appends; a torn last line of an earlier process is repaired first. Points behind `step` of an
 * earlier start are superseded: a line says so. */
ls_status ls__record_open(const ls__run_folder *folder, int64_t step, ls__record_log **out);
/* {"step":..,"epoch":..,"time":..,"train":{"loss":..}}: values are copied; names are stage/name. */
void ls__record_metrics(ls__record_log *log, int64_t step, double epoch, const char *const *names,
                        const double *values, int n);
void ls__record_event(ls__record_log *log, const char *kind,
                      json_t *fields /* stolen; may be NULL */);
/* Writes what is queued. The first error of this log, if any (the run goes on). */
ls_status ls__record_close(ls__record_log *log);

/* --- progress: a line of text, <= 10 Hz on a terminal, every 10 s otherwise --- */
typedef struct ls__progress {
    int64_t step, steps; /* steps 0 = unknown */
    double epoch, loss;
    double rate;       /* samples per second */
    double eta;        /* seconds; NAN = unknown */
    const char *stage; /* "train", "val" */
} ls__progress;
void ls__progress_text(const ls__progress *p, int width, char *out, size_t nbytes);

#endif
