/* $LOCKSTEP_METRICS: a pipe with a name, into which rank 0 of any program writes lines like
 * {"step": 10, "loss": 0.5, "val/accuracy": 0.9}, so that its run has a metrics.jsonl as ours have.
 * A name without a stage is one of training. The pipe is held open for writing here, so that a
 * program which opens it for every line, as a shell does, never waits and never ends it. The run's
 * folder becomes one of a training run with the first line, not before. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

enum { LINE_MAX_BYTES = 1 << 16, VALUES_MAX = 256, NAME_BYTES = 128 };

typedef struct point {
    int64_t step;
    double epoch;
    int n;
    char names[VALUES_MAX][NAME_BYTES];
    double values[VALUES_MAX];
} point;

void ls__metrics_path(const char *folder, char out[LS_PATH_MAX])
{
    snprintf(out, LS_PATH_MAX, "%.4000s/metrics", folder);
}

ls_status ls__foreign_metrics_open(ls__launcher_job *j)
{
    char path[LS_PATH_MAX];
    ls__metrics_path(j->folder, path);
    j->metrics_line = ls__alloc(LINE_MAX_BYTES, 1);
    if (!j->metrics_line) return LS_ERR_MEMORY;
    if (mkfifo(path, 0600) != 0) return ls__fail_errno(LS_ERR_IO, "%s", path);
    j->metrics_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return j->metrics_fd >= 0 ? LS_OK : ls__fail_errno(LS_ERR_IO, "%s", path);
}

/* --- a line --- */

static void add_value(point *p, const char *stage, const char *name, const json_t *value)
{
    if (p->n == VALUES_MAX || (!json_is_number(value) && !json_is_null(value))) return;
    int n = snprintf(p->names[p->n], NAME_BYTES, "%s%s%s", stage, stage[0] ? "/" : "", name);
    if (n >= NAME_BYTES) return;
    p->values[p->n++] = json_is_null(value) ? NAN : json_number_value(value);
}

static bool is_place(const char *key)
{
    return strcmp(key, "step") == 0 || strcmp(key, "epoch") == 0 || strcmp(key, "time") == 0;
}

static bool read_point(const char *text, size_t nbytes, point *p)
{
    json_t *line = json_loadb(text, nbytes, 0, NULL);
    const json_t *step = json_object_get(line, "step");
    const char *key, *inner_key;
    json_t *value, *inner;
    bool good = json_is_integer(step) && json_integer_value(step) >= 0;
    p->n = 0;
    p->step = json_integer_value(step);
    p->epoch = json_number_value(json_object_get(line, "epoch"));
    if (good) {
        json_object_foreach(line, key, value)
        {
            if (is_place(key)) continue;
            if (json_is_object(value)) {
                json_object_foreach(value, inner_key, inner) add_value(p, key, inner_key, inner);
            } else {
                add_value(p, strchr(key, '/') ? "" : "train", key, value);
            }
        }
    }
    json_decref(line);
    return good && p->n > 0;
}

/* --- the run --- */

static json_t *document(const ls__launcher_job *j, const char *status)
{
    const ls__launcher_plan *plan = j->plan;
    json_t *argv = json_array();
    for (char **word = plan->argv; argv && *word; word++)
        json_array_append_new(argv, json_string(*word));
    return json_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:i,s:I,s:I}", "name", plan->name, "status", status,
                     "argv", argv, "version", ls_version(), "host", plan->host, "devices",
                     plan->devices.text, "world_size", plan->place.world_size, "step",
                     (json_int_t)j->best_step, "pid", (json_int_t)getpid());
}

static ls_status begin_record(ls__launcher_job *j, int64_t step)
{
    const ls__launcher_plan *plan = j->plan;
    if (!plan->name[0])
        return ls_fail(LS_ERR_CONFIG, "there is no folder of the run (--log-dir none)");
    if (j->run_folder.lock < 0)
        LS_TRY(ls__run_folder_open(plan->runs_dir, plan->name, &j->run_folder));
    LS_TRY(ls__record_open(&j->run_folder, step > 0 ? step - 1 : 0, &j->record));
    json_t *json = document(j, "running");
    if (json) ls__record_heartbeat(j->record, json);
    return LS_OK;
}

static void refuse(ls__launcher_job *j)
{
    if (!j->metrics_refused)
        ls__log(LS__LOG_WARN, "the program's metrics are not recorded: %s", ls_error_text());
    j->metrics_refused = true;
}

void ls__foreign_metrics_line(ls__launcher_job *j, const char *text, size_t nbytes)
{
    static point p; /* 34 KiB: too much for a stack, and there is one thread */
    const char *names[VALUES_MAX];
    while (nbytes > 0 && (text[nbytes - 1] == '\r' || text[nbytes - 1] == ' ')) nbytes--;
    if (nbytes == 0 || j->metrics_refused) return;
    if (!read_point(text, nbytes, &p)) {
        ls_fail(LS_ERR_DATA, "\"%.*s\" is not {\"step\": N, \"NAME\": NUMBER, ...}",
                (int)(nbytes < 100 ? nbytes : 100), text);
        refuse(j);
        return;
    }
    if (p.step > j->best_step) j->best_step = p.step;
    if (!j->record && begin_record(j, p.step) != LS_OK) {
        refuse(j);
        return;
    }
    for (int i = 0; i < p.n; i++) names[i] = p.names[i];
    ls__record_metrics(j->record, p.step, p.epoch, names, p.values, p.n);
}

void ls__foreign_metrics_read(ls__launcher_job *j)
{
    for (;;) {
        ssize_t n = read(j->metrics_fd, j->metrics_line + j->metrics_used,
                         LINE_MAX_BYTES - j->metrics_used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        j->metrics_used += (size_t)n;
        size_t begin = 0;
        for (char *newline;
             (newline = memchr(j->metrics_line + begin, '\n', j->metrics_used - begin));) {
            size_t length = (size_t)(newline - j->metrics_line) - begin;
            if (!ls__nodes_tell_metrics(j, j->metrics_line + begin, length))
                ls__foreign_metrics_line(j, j->metrics_line + begin, length);
            begin += length + 1;
        }
        if (begin == 0 && j->metrics_used == LINE_MAX_BYTES) begin = LINE_MAX_BYTES; /* no line */
        j->metrics_used -= begin;
        memmove(j->metrics_line, j->metrics_line + begin, j->metrics_used);
    }
}

static void close_record(ls__launcher_job *j)
{
    if (j->record && ls__record_close(j->record) != LS_OK)
        ls__log(LS__LOG_WARN, "%s", ls_error_text());
    j->record = NULL;
}

/* The next start may begin at an earlier step: what lies behind that is superseded. */
void ls__foreign_metrics_restart(ls__launcher_job *j)
{
    close_record(j);
    j->metrics_used = 0;
}

void ls__foreign_metrics_close(ls__launcher_job *j)
{
    bool recorded = j->run_folder.lock >= 0;
    close_record(j);
    if (recorded) {
        const char *status = j->end.kind == LS__END_FINISHED  ? "finished"
                             : j->end.kind == LS__END_STOPPED ? "stopped"
                                                              : "failed";
        json_t *json = document(j, status);
        if (json && ls__run_json_write(&j->run_folder, json) != LS_OK)
            ls__log(LS__LOG_WARN, "%s", ls_error_text());
        json_decref(json);
        ls__run_folder_close(&j->run_folder);
    }
    if (j->metrics_fd >= 0) close(j->metrics_fd);
    ls__free(j->metrics_line);
}
