/* Records: the run's folder, metrics.jsonl, progress. One writer: rank 0. Never blocks the loop (a
 * thread writes from a bounded queue) and never fails the run: a full disk is reported once and
 * remembered.
 *
 *     runs/NAME/lock             held (flock) while a process writes the run; says which one
 *     runs/NAME/run.json         lockstep.run/1
 *     runs/NAME/metrics.jsonl    lockstep.metrics/1
 *     runs/NAME/checkpoints/     see checkpoint/checkpoint.h
 *
 * metrics.jsonl is append-only; each line is one JSON object, written by one write():
 *
 *     {"schema":"lockstep.metrics/1"}                                        the first line
 *     {"step":50,"epoch":0.5,"time":1796160889.25,"train":{"loss":0.43},"val":{"loss":0.5}}
 *     {"event":"checkpoint","time":1796160889.5,"step":500}                  anything else
 *     {"rewind":500,"time":1796160999.0}                                     a later start
 *
 * A metric `stage/name` is nested under its stage; what follows the first slash is one key. NaN and
 * infinities are null. `rewind` s supersedes every point before it in the file whose step is behind
 * s; of two points of one metric at one step the later counts. Readers skip what they do not know.
 */
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
 * the text) or the name is not one (ls__run_name_check); LS_ERR_IO when it cannot be written. */
ls_status ls__run_folder_open(const char *runs_dir, const char *name, ls__run_folder *out);
void ls__run_folder_close(ls__run_folder *folder);
/* 1 to 200 bytes of UTF-8 without '/', '@', control characters, not beginning with '.' or '-'. */
ls_status ls__run_name_check(const char *name);
/* "amber-fox-0412": made up from the clock and the pid, not taken yet in runs_dir. */
ls_status ls__run_name(const char *runs_dir, char out[256]);

/* run.json, lockstep.run/1: document plus "schema" and "heartbeat" (now). Rank 0. Its "status" is
 * running, finished, stopped or failed. */
ls_status ls__run_json_write(const ls__run_folder *folder, const json_t *document);
/* path: a run's folder. *out = NULL without error when there is no run.json. */
ls_status ls__run_json_read(const char *path, json_t **out);

/* --- metrics.jsonl --- */
/* Appends; a torn last line of an earlier process is repaired first. Points behind `step` of an
 * earlier start are superseded: a line says so. */
ls_status ls__record_open(const ls__run_folder *folder, int64_t step, ls__record_log **out);
/* Values and names are copied; names are stage/name. */
void ls__record_metrics(ls__record_log *log, int64_t step, double epoch, const char *const *names,
                        const double *values, int n);
void ls__record_event(ls__record_log *log, const char *kind,
                      json_t *fields /* stolen; may be NULL */);
/* From now on run.json is rewritten in the background every 10 s with a fresh heartbeat, at first
 * now; document is stolen and replaces an earlier one. The last word, with the final status, is
 * ls__run_json_write after ls__record_close. */
void ls__record_heartbeat(ls__record_log *log, json_t *document);
/* Writes what is queued, waiting at most 10 s for a disk that hangs. LS_ERR_IO when lines were
 * lost: how many, and the first error (the run has gone on). */
ls_status ls__record_close(ls__record_log *log);

/* --- reading metrics.jsonl, superseded points left out --- */
typedef struct ls__metric_point {
    int64_t step;
    double epoch, time, value; /* value NAN: it was null */
} ls__metric_point;
typedef struct ls__metric_series {
    char *name; /* "train/loss" */
    int count;
    ls__metric_point *points; /* increasing steps */
    int capacity;
} ls__metric_series;
typedef struct ls__metrics {
    int count; /* in the order of first appearance */
    ls__metric_series *series;
    int64_t skipped; /* lines that are no JSON object: torn ones */
} ls__metrics;
ls_status ls__metrics_read(const char *path, ls__metrics *out);
void ls__metrics_free(ls__metrics *m);
/* NULL when it is not there. */
const ls__metric_series *ls__metrics_find(const ls__metrics *m, const char *name);

/* --- progress: a line of text, <= 10 Hz on a terminal, every 10 s otherwise --- */
typedef struct ls__progress {
    int64_t step, steps;      /* steps 0 = unknown */
    double epoch;             /* finished ones, as a fraction: 1.25 is shown as epoch 2 */
    int64_t epochs;           /* 0 = unknown */
    double loss;              /* NAN = none yet */
    double rate;              /* of units per second; 0 or NAN = unknown */
    const char *unit;         /* NULL = "samples" */
    double eta;               /* seconds; NAN = unknown */
    const char *stage;        /* "train", "val"; NULL = train */
    const char *const *names; /* further values ("accuracy"), as far as there is room */
    const double *values;
    int n;
} ls__progress;
/* "epoch 1/3  step 120/704  loss 0.4312  accuracy 0.913  12.3k samples/s  ETA 0:42" in at most
 * width columns (less important parts give way first); width 0 = all of it. */
void ls__progress_text(const ls__progress *p, int width, char *out, size_t nbytes);
/* Whether it is time for another line; *last (0 at first) is ls__now() of the last one. */
bool ls__progress_due(double *last, bool terminal);

#endif
