/* The log of one rank: whole lines of both its streams in the order in which they came. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "world/output_parts.h"

enum { BEFORE_MAX = 1 << 18 }; /* bytes that wait for a file */

static const double between_drawings = 10.0; /* seconds */

static int write_all(ls__rank_log *log, const char *data, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t n = write(log->fd, data, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        data += n;
        nbytes -= (size_t)n;
        log->nbytes += n;
    }
    return 0;
}

static int open_file(ls__rank_log *log)
{
    struct stat info;
    log->fd = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->fd < 0) return errno;
    log->nbytes = fstat(log->fd, &info) == 0 ? info.st_size : 0;
    return 0;
}

/* What was full becomes the one old file; the one before is gone. */
static int rotate(ls__rank_log *log)
{
    char old[LS_PATH_MAX + 4];
    snprintf(old, sizeof old, "%s.1", log->path);
    close(log->fd);
    log->fd = -1;
    if (rename(log->path, old) != 0) return errno;
    return open_file(log);
}

void ls__rank_log_add(ls__rank_log *log, const char *text, size_t nbytes)
{
    bool there = log->fd >= 0; /* of what is too much before, the beginning stays */
    if (there || (!log->off && log->waiting.end - log->waiting.begin < BEFORE_MAX))
        ls__bytes_add(&log->waiting, text, nbytes);
}

int ls__rank_log_flush(ls__rank_log *log)
{
    size_t nbytes = log->waiting.end - log->waiting.begin;
    int error = 0;
    if (log->fd < 0 || nbytes == 0) return 0;
    if (log->limit > 0 && log->nbytes > 0 && log->nbytes + (int64_t)nbytes > log->limit)
        error = rotate(log);
    if (error == 0) error = write_all(log, log->waiting.data + log->waiting.begin, nbytes);
    log->waiting.begin = log->waiting.end = 0;
    return error;
}

void ls__rank_log_drawing(ls__rank_log *log, const char *text, size_t nbytes)
{
    double now = ls__now();
    if (nbytes == 0 || now - log->drawn_at < between_drawings) return;
    log->drawn_at = now;
    ls__rank_log_add(log, text, nbytes);
    ls__rank_log_add(log, "\n", 1);
}

int ls__rank_log_open(ls__rank_log *log, const char *path)
{
    snprintf(log->path, sizeof log->path, "%s", path);
    int error = open_file(log);
    return error ? error : ls__rank_log_flush(log);
}

void ls__rank_log_close(ls__rank_log *log)
{
    if (log->fd >= 0) close(log->fd);
    log->fd = -1;
    ls__bytes_free(&log->waiting);
}
