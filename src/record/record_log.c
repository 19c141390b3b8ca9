/* The log: a queue of lines and a thread that writes them. Whoever logs pays for making a string
 * and never waits for a disk. A write that fails is tried again every second while lines wait in
 * memory, so that a disk that was full for a while costs nothing; the queue is bounded, and only
 * what does not fit into it is lost, counted and told at the end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "record/record_internal.h"

enum { QUEUE_BYTES_MAX = 64 << 20, CLOSE_SECONDS = 10, HEARTBEAT_SECONDS = 10, RETRY_SECONDS = 1 };

typedef struct item {
    struct item *next;
    size_t nbytes;
    char *line;
} item;

struct ls__record_log {
    char path[LS_PATH_MAX];
    ls__run_folder folder; /* for run.json; its lock is not used */

    /* the thread's */
    int fd;
    int64_t size; /* of the whole lines in the file */
    bool torn;    /* bytes behind size must go before the next write */

    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    item *first, **last;
    size_t queued_bytes;
    json_t *document; /* of the heartbeat */
    double beat_at;   /* when the next one is due */
    double retry_at;  /* 0 = the last write went well */
    bool closing, ended;
    bool warned_reserved;
    int64_t lost;
    ls_status status; /* the first error */
    char text[1024];
};

/* --- the file --- */

/* All of a line or nothing of it, by one write(). */
static ls_status write_line(ls__record_log *log, const char *line, size_t nbytes)
{
    if (log->torn && ftruncate(log->fd, log->size) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot write", log->path);
    log->torn = false;
    ssize_t n;
    do n = write(log->fd, line, nbytes);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)nbytes) {
        log->size += n;
        return LS_OK;
    }
    if (n >= 0) errno = ENOSPC;
    int error = errno;
    log->torn = n > 0 && ftruncate(log->fd, log->size) != 0;
    errno = error;
    return ls__fail_errno(LS_ERR_IO, "%s: cannot write", log->path);
}

/* The header of a new file, or the mark of a later start in an old one. */
static ls_status begin_file(ls__record_log *log, int64_t step)
{
    char *line = log->size == 0 ? ls__strdup("{\"schema\":\"" LS__METRICS_SCHEMA "\"}\n")
                                : ls__record_rewind_line(step, ls__wall_time());
    if (!line) return LS_ERR_MEMORY;
    ls_status status = write_line(log, line, strlen(line));
    ls__free(line);
    return status;
}

static ls_status open_file(ls__record_log *log, int64_t step)
{
    do log->fd = open(log->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (log->fd < 0 && errno == EINTR);
    if (log->fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", log->path);
    LS_TRY(ls__record_repair(log->fd, log->path, &log->size));
    return begin_file(log, step);
}

/* --- the thread; the mutex is held but where it says so --- */

static void drop_first(ls__record_log *log)
{
    item *gone = log->first;
    log->first = gone->next;
    if (!log->first) log->last = &log->first;
    log->queued_bytes -= gone->nbytes;
    ls__free(gone->line);
    ls__free(gone);
}

static void note_failure(ls__record_log *log, const char *text)
{
    if (log->status == LS_OK) {
        log->status = LS_ERR_IO;
        snprintf(log->text, sizeof log->text, "%s", text);
        ls__log(LS__LOG_WARN, "%s; training goes on, metrics wait in memory", text);
    }
    log->retry_at = ls__now() + RETRY_SECONDS;
}

static void write_first(ls__record_log *log)
{
    item *line = log->first;
    pthread_mutex_unlock(&log->mutex);
    ls_status status = write_line(log, line->line, line->nbytes);
    pthread_mutex_lock(&log->mutex);
    if (status == LS_OK) {
        drop_first(log);
        log->retry_at = 0;
        return;
    }
    note_failure(log, ls_error_text());
    for (; log->closing && log->first; log->lost++) drop_first(log); /* it was the last try */
}

/* A heartbeat that cannot be written is no news: the lines say so. */
static void beat(ls__record_log *log)
{
    json_t *document = log->document;
    log->document = NULL;
    pthread_mutex_unlock(&log->mutex);
    ls_status status = ls__run_json_write(&log->folder, document);
    pthread_mutex_lock(&log->mutex);
    if (status != LS_OK) note_failure(log, ls_error_text());
    if (log->document)
        json_decref(document); /* replaced meanwhile: now is its turn */
    else {
        log->document = document;
        log->beat_at = ls__now() + HEARTBEAT_SECONDS;
    }
}

static void wait_for_work(ls__record_log *log)
{
    double until = 0;
    if (log->document) until = log->beat_at;
    if (log->first && log->retry_at > 0 && (until == 0 || log->retry_at < until))
        until = log->retry_at;
    if (until == 0) {
        pthread_cond_wait(&log->changed, &log->mutex);
        return;
    }
    struct timespec time = { .tv_sec = (time_t)until,
                             .tv_nsec = (long)((until - (double)(time_t)until) * 1e9) };
    pthread_cond_timedwait(&log->changed, &log->mutex, &time);
}

static void *run(void *user)
{
    ls__record_log *log = user;
    pthread_mutex_lock(&log->mutex);
    for (;;) {
        double now = ls__now();
        if (log->first && (log->retry_at <= now || log->closing))
            write_first(log);
        else if (log->closing)
            break;
        else if (log->document && log->beat_at <= now)
            beat(log);
        else
            wait_for_work(log);
    }
    pthread_mutex_unlock(&log->mutex);
    fdatasync(log->fd); /* as well as we can: what failed before was told */
    pthread_mutex_lock(&log->mutex);
    log->ended = true;
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->mutex);
    return NULL;
}

/* --- open --- */

static ls_status start(ls__record_log *log)
{
    sigset_t all, old;
    sigfillset(&all); /* signals are for the thread that trains */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&log->thread, NULL, run, log);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0) return LS_OK;
    return ls_fail(LS_ERR_MEMORY, "cannot start the thread that writes metrics: %s",
                   strerror(error));
}

static void release(ls__record_log *log)
{
    if (log->fd >= 0) close(log->fd);
    while (log->first) drop_first(log);
    json_decref(log->document);
    pthread_cond_destroy(&log->changed);
    pthread_mutex_destroy(&log->mutex);
    ls__free(log);
}

ls_status ls__record_open(const ls__run_folder *folder, int64_t step, ls__record_log **out)
{
    *out = NULL;
    ls__record_log *log = ls__alloc(1, sizeof *log);
    if (!log) return LS_ERR_MEMORY;
    log->fd = -1;
    log->folder = *folder;
    log->last = &log->first;
    pthread_mutex_init(&log->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&log->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    ls_status status = ls__path_join(log->path, folder->path, "metrics.jsonl");
    if (status == LS_OK) status = open_file(log, step);
    if (status == LS_OK) status = start(log);
    if (status == LS_OK)
        *out = log;
    else
        release(log);
    return status;
}

/* --- log --- */

/* Steals line; NULL counts as lost. */
static void push(ls__record_log *log, char *line)
{
    size_t nbytes = line ? strlen(line) : 0;
    item *new = line ? ls__alloc(1, sizeof *new) : NULL;
    pthread_mutex_lock(&log->mutex);
    if (!new || log->queued_bytes + nbytes > QUEUE_BYTES_MAX) {
        log->lost++;
        pthread_mutex_unlock(&log->mutex);
        ls__free(line);
        ls__free(new);
        return;
    }
    *new = (item) { .line = line, .nbytes = nbytes };
    *log->last = new;
    log->last = &new->next;
    log->queued_bytes += nbytes;
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->mutex);
}

void ls__record_metrics(ls__record_log *log, int64_t step, double epoch, const char *const *names,
                        const double *values, int n)
{
    int reserved;
    push(log, ls__record_point_line(step, epoch, ls__wall_time(), names, values, n, &reserved));
    if (reserved == 0 || log->warned_reserved) return;
    log->warned_reserved = true;
    ls__log(LS__LOG_WARN,
            "%d metrics are not recorded: a metric is stage/name, and a stage is not called "
            "schema, step, epoch, time, rewind or event",
            reserved);
}

void ls__record_event(ls__record_log *log, const char *kind, json_t *fields)
{
    push(log, ls__record_event_line(kind, ls__wall_time(), fields));
    json_decref(fields);
}

void ls__record_heartbeat(ls__record_log *log, json_t *document)
{
    json_t *own = json_deep_copy(document); /* the caller's may share parts with others */
    json_decref(document);
    if (!own) return;
    pthread_mutex_lock(&log->mutex);
    json_decref(log->document);
    log->document = own;
    log->beat_at = 0;
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->mutex);
}

/* --- close --- */

/* false = the disk hangs. */
static bool ends_in_time(ls__record_log *log)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_SECONDS;
    int error = 0;
    while (!log->ended && error == 0)
        error = pthread_cond_timedwait(&log->changed, &log->mutex, &until);
    return log->ended;
}

ls_status ls__record_close(ls__record_log *log)
{
    if (!log) return LS_OK;
    pthread_mutex_lock(&log->mutex);
    log->closing = true;
    pthread_cond_broadcast(&log->changed);
    bool ended = ends_in_time(log);
    pthread_mutex_unlock(&log->mutex);
    if (!ended) { /* the thread cannot be taken out of its call: it keeps what it works on */
        pthread_detach(log->thread);
        return ls_fail(LS_ERR_IO, "%s: the last lines are still not written after %d s", log->path,
                       CLOSE_SECONDS);
    }
    pthread_join(log->thread, NULL);
    ls_status status = log->lost > 0 ? LS_ERR_IO : LS_OK;
    if (status != LS_OK)
        ls_fail(status, "%" PRId64 " lines of metrics were lost: %s", log->lost,
                log->status != LS_OK ? log->text : "out of memory");
    release(log);
    return status;
}
