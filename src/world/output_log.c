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

int ls__rank_log_open(ls__rank_log *log, const char *path)
{
    snprintf(log->path, sizeof log->path, "%s", path);
    int error = open_file(log);
    if (error == 0 && log->before.end > log->before.begin)
        error = write_all(log, log->before.data + log->before.begin,
                          log->before.end - log->before.begin);
    ls__bytes_free(&log->before);
    return error;
}

void ls__rank_log_close(ls__rank_log *log)
{
    if (log->fd >= 0) close(log->fd);
    log->fd = -1;
    ls__bytes_free(&log->before);
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

int ls__rank_log_add(ls__rank_log *log, const char *text, size_t nbytes)
{
    int error = 0;
    if (log->fd < 0) { /* of what is too much the beginning stays */
        if (!log->off && log->before.end - log->before.begin < BEFORE_MAX)
            ls__bytes_add(&log->before, text, nbytes);
        return 0;
    }
    if (log->limit > 0 && log->nbytes > 0 && log->nbytes + (int64_t)nbytes > log->limit)
        error = rotate(log);
    return error ? error : write_all(log, text, nbytes);
}

int ls__rank_log_drawing(ls__rank_log *log, const char *text, size_t nbytes)
{
    double now = ls__now();
    if (nbytes == 0 || now - log->drawn_at < between_drawings) return 0;
    log->drawn_at = now;
    int error = ls__rank_log_add(log, text, nbytes);
    return error ? error : ls__rank_log_add(log, "\n", 1);
}
