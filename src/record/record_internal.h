/* What the files of this room share. */
#ifndef LS_RECORD_INTERNAL_H
#define LS_RECORD_INTERNAL_H

#include "record/record.h"

#define LS__METRICS_SCHEMA "lockstep.metrics/1"
#define LS__RUN_SCHEMA     "lockstep.run/1"

enum { LS__LINE_MAX = 1 << 20 }; /* bytes of a line of metrics.jsonl that are believed */

/* Holds path locked until the descriptor is closed; waits `patience` seconds for whoever has it. what:
 * the run, for messages. */
ls_status ls__run_lock(const char *path, const char *what, double patience, int *fd);
void ls__run_unlock(int fd);

/* Lines with their newline; NULL = out of memory. Freed by ls__free. names that a reader could take
 * for something else are left out and counted in *reserved. */
char *ls__record_point_line(int64_t step, double epoch, double time, const char *const *names,
                            const double *values, int n, int *reserved);
char *ls__record_event_line(const char *kind, double time, json_t *fields /* borrowed; or NULL */);
char *ls__record_rewind_line(int64_t step, double time);
/* Members of a line that are no stages. */
bool ls__record_is_reserved(const char *member);

/* Cuts what is behind the last whole line; *size: of what is left. */
ls_status ls__record_repair(int fd, const char *path, int64_t *size);

#endif
