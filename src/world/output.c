/* What ranks print. Each stream of each rank is a pipe, so that lines of different ranks never mix
 * and the supervisor never shares a terminal with its children. Rank 0 is shown as it is; of the
 * others stderr behind "[1] ". What the terminal does not take at once waits in a bounded queue;
 * when that is full, pipes are not read, and ranks that print wait as they would have waited for
 * the terminal. Expected: some lines a second; bursts of thousands. */
#include "world/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/report.h"
#include "world/store_frame.h"

enum {
    LINE_MAX_BYTES = 1 << 16, /* a longer line is shown in pieces */
    QUEUE_MAX = 1 << 20,      /* bytes that wait for stdout, and for stderr */
    KEPT_MAX = 1 << 18,       /* bytes of a rank that wait for its log file */
    TAIL_LINE_MAX = 400,      /* bytes of a last line */
    DRAIN_READS = 64,         /* of one pipe at the end */
    WARNINGS = 32,            /* that are remembered */
    CHUNK = 4096,             /* a pipe that polls writable takes so much without blocking */
};

typedef struct stream {
    int fd; /* -1: at its end */
    bool paused;
    ls__bytes line; /* begun, not ended */
} stream;

typedef struct rank_output {
    stream streams[2]; /* stdout, stderr */
    int log_fd;        /* -1: no file (yet) */
    ls__bytes kept;    /* for the file to come */
    char *tail[LS__TAIL_LINES];
    char *ordered[LS__TAIL_LINES];
    int64_t nlines;
} rank_output;

typedef struct sink {
    int fd; /* 1 or 2 */
    bool broken, watched;
    int error; /* of the write that failed */
    ls__bytes queue;
} sink;

struct ls__output {
    int size, epoll_fd;
    bool has_folder, warned;
    const unsigned char *shown; /* (size); NULL = as ever */
    rank_output *ranks;         /* (size) */
    sink sinks[2];
    struct {
        uint64_t hash;
        int rank; /* that was shown */
    } warnings[WARNINGS];
    int nwarnings;
};

static uint64_t tag_of(int rank, int which)
{
    return (uint64_t)rank * 2 + (uint64_t)which;
}
static const uint64_t sink_tag = (uint64_t)1 << 32;

ls_status ls__output_create(int size, ls__output **out)
{
    *out = NULL;
    ls__output *o = ls__alloc(1, sizeof *o);
    if (!o) return LS_ERR_MEMORY;
    o->size = size;
    o->sinks[0].fd = STDOUT_FILENO;
    o->sinks[1].fd = STDERR_FILENO;
    o->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    o->ranks = ls__alloc((size_t)size, sizeof *o->ranks);
    for (int r = 0; o->ranks && r < size; r++)
        o->ranks[r].streams[0].fd = o->ranks[r].streams[1].fd = o->ranks[r].log_fd = -1;
    if (o->epoll_fd < 0 || !o->ranks) {
        ls__output_destroy(o);
        return ls__fail_errno(LS_ERR_MEMORY, "cannot read the output of ranks");
    }
    *out = o;
    return LS_OK;
}

void ls__output_destroy(ls__output *o)
{
    if (!o) return;
    for (int r = 0; o->ranks && r < o->size; r++) {
        rank_output *rank = &o->ranks[r];
        for (int i = 0; i < 2; i++) {
            if (rank->streams[i].fd >= 0) close(rank->streams[i].fd);
            ls__bytes_free(&rank->streams[i].line);
        }
        for (int i = 0; i < LS__TAIL_LINES; i++) ls__free(rank->tail[i]);
        if (rank->log_fd >= 0) close(rank->log_fd);
        ls__bytes_free(&rank->kept);
    }
    for (int i = 0; i < 2; i++) ls__bytes_free(&o->sinks[i].queue);
    if (o->epoll_fd >= 0) close(o->epoll_fd);
    ls__free(o->ranks);
    ls__free(o);
}

void ls__output_set_shown(ls__output *o, const unsigned char *shown)
{
    o->shown = shown;
}

static bool is_shown(const ls__output *o, int rank, int which)
{
    return o->shown ? o->shown[rank] >> which & 1 : rank == 0 || which == 1;
}

int ls__output_fd(const ls__output *o)
{
    return o->epoll_fd;
}

ls_status ls__output_attach(ls__output *o, int rank, int out_fd, int err_fd)
{
    int fds[2] = { out_fd, err_fd };
    ls_status status = LS_OK;
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.u64 = tag_of(rank, i) };
        stream *s = &o->ranks[rank].streams[i];
        if (s->fd >= 0) close(s->fd);
        *s = (stream) { .fd = fds[i], .line = s->line };
        fcntl(fds[i], F_SETFL, fcntl(fds[i], F_GETFL) | O_NONBLOCK);
        if (epoll_ctl(o->epoll_fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            status = ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    }
    return status;
}

void ls__output_restart(ls__output *o)
{
    for (int r = 0; r < o->size; r++) {
        for (int i = 0; i < LS__TAIL_LINES; i++) {
            ls__free(o->ranks[r].tail[i]);
            o->ranks[r].tail[i] = NULL;
        }
        o->ranks[r].nlines = 0;
    }
}

static bool append(ls__bytes *bytes, const void *data, size_t nbytes)
{
    if (ls__bytes_reserve(bytes, nbytes) != LS_OK) return false;
    memcpy(bytes->data + bytes->end, data, nbytes);
    bytes->end += nbytes;
    return true;
}

static void warn_once(ls__output *o, const char *what)
{
    if (!o->warned)
        ls__log(LS__LOG_WARN, "%s: %s; the ranks' logs are not complete", what, strerror(errno));
    o->warned = true;
}

static void write_log(ls__output *o, rank_output *rank, const char *data, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t n = write(rank->log_fd, data, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            warn_once(o, "writing a rank's log");
            return;
        }
        data += n;
        nbytes -= (size_t)n;
    }
}

/* To the file, or kept until there is one; of what is too much the beginning stays. */
static void keep(ls__output *o, rank_output *rank, const char *data, size_t nbytes)
{
    if (rank->log_fd >= 0)
        write_log(o, rank, data, nbytes);
    else if (!o->has_folder && rank->kept.end - rank->kept.begin < KEPT_MAX)
        append(&rank->kept, data, nbytes);
}

void ls__output_set_folder(ls__output *o, const char *folder)
{
    char logs[LS_PATH_MAX], name[32], path[LS_PATH_MAX];
    if (o->has_folder) return;
    o->has_folder = true;
    bool ok = ls__path_join(logs, folder, "logs") == LS_OK &&
              ls__folder_make(&ls__fs_posix, logs) == LS_OK;
    for (int r = 0; r < o->size; r++) {
        rank_output *rank = &o->ranks[r];
        snprintf(name, sizeof name, "rank-%d.log", r);
        if (ok && ls__path_join(path, logs, name) == LS_OK) {
            rank->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
            if (rank->log_fd < 0) warn_once(o, path);
        }
        if (rank->log_fd >= 0 && rank->kept.end > rank->kept.begin)
            write_log(o, rank, rank->kept.data + rank->kept.begin,
                      rank->kept.end - rank->kept.begin);
        ls__bytes_free(&rank->kept);
    }
}

/* Writable at once, or not a thing that poll knows (then a write may block, as it would have). */
static bool writable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) != 0;
}

/* How much of the queue to write now: whole lines within a chunk, or a chunk of a long line; on a
 * terminal always to the line's end, because the status line is drawn behind it. */
static size_t piece_of(const sink *s)
{
    const char *data = s->queue.data + s->queue.begin;
    size_t nbytes = s->queue.end - s->queue.begin;
    size_t limit = nbytes < CHUNK ? nbytes : CHUNK;
    const char *newline = memrchr(data, '\n', limit);
    if (newline) return (size_t)(newline - data) + 1;
    if (isatty(s->fd) && (newline = memchr(data, '\n', nbytes)))
        return (size_t)(newline - data) + 1;
    return limit;
}

static void watch_sink(ls__output *o, sink *s, bool on)
{
    if (s->watched == on) return;
    struct epoll_event event = { .events = EPOLLOUT, .data.u64 = sink_tag };
    int operation = on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    if (epoll_ctl(o->epoll_fd, operation, s->fd, &event) == 0) s->watched = on;
}

/* Nothing more can be shown. When the reader of our stdout is gone, as in "train | head", rank 0
 * shall notice as it would have; with a full disk it goes on, and the job's end says what was lost.
 */
static void sink_broke(ls__output *o, sink *s)
{
    s->broken = true;
    s->error = errno;
    s->queue.begin = s->queue.end;
    stream *bare = &o->ranks[0].streams[0];
    if (s->error == EPIPE && s->fd == STDOUT_FILENO && bare->fd >= 0) {
        close(bare->fd);
        bare->fd = -1;
    }
}

static void flush_sink(ls__output *o, sink *s)
{
    while (!s->broken && s->queue.begin < s->queue.end && writable(s->fd)) {
        size_t n = piece_of(s);
        if (!ls__statusline_print(s->fd, s->queue.data + s->queue.begin, n))
            sink_broke(o, s);
        else
            s->queue.begin += n;
    }
    watch_sink(o, s, !s->broken && s->queue.begin < s->queue.end);
}

/* Pipes of streams that are shown rest while the queues are full. */
static void pause_streams(ls__output *o)
{
    bool full = false;
    for (int i = 0; i < 2; i++)
        full = full || o->sinks[i].queue.end - o->sinks[i].queue.begin > QUEUE_MAX;
    for (int r = 0; r < o->size; r++) {
        for (int i = 0; i < 2; i++) {
            stream *s = &o->ranks[r].streams[i];
            if (s->fd < 0 || s->paused == full || !is_shown(o, r, i)) continue;
            struct epoll_event event = { .events = full ? 0 : EPOLLIN, .data.u64 = tag_of(r, i) };
            epoll_ctl(o->epoll_fd, EPOLL_CTL_MOD, s->fd, &event);
            s->paused = full;
        }
    }
}

/* The visible part of a line: of one that was redrawn with '\r' the last drawing. */
static const char *visible(const char *line, size_t *nbytes)
{
    while (*nbytes > 0 && (line[*nbytes - 1] == '\n' || line[*nbytes - 1] == '\r')) (*nbytes)--;
    const char *redrawn = *nbytes > 0 ? memrchr(line, '\r', *nbytes) : NULL;
    if (!redrawn) return line;
    *nbytes -= (size_t)(redrawn + 1 - line);
    return redrawn + 1;
}

static void remember(rank_output *rank, const char *line, size_t nbytes)
{
    const char *text = visible(line, &nbytes);
    char **slot = &rank->tail[rank->nlines % LS__TAIL_LINES];
    ls__free(*slot);
    *slot = ls__format("%.*s", (int)(nbytes < TAIL_LINE_MAX ? nbytes : TAIL_LINE_MAX), text);
    if (*slot) rank->nlines++;
}

/* Whether another rank's same warning has been shown: they find the same faults. */
static bool said_by_another(ls__output *o, int r, const char *text, size_t nbytes)
{
    static const char prefix[] = "lockstep: warning: ";
    if (nbytes < sizeof prefix || memcmp(text, prefix, sizeof prefix - 1) != 0) return false;
    uint64_t hash = XXH3_64bits(text, nbytes);
    int known = o->nwarnings < WARNINGS ? o->nwarnings : WARNINGS;
    for (int i = 0; i < known; i++)
        if (o->warnings[i].hash == hash) return o->warnings[i].rank != r;
    int slot = o->nwarnings++ % WARNINGS;
    o->warnings[slot].hash = hash;
    o->warnings[slot].rank = r;
    return false;
}

static void show(ls__output *o, int r, int which, const char *line, size_t nbytes)
{
    sink *s = &o->sinks[which];
    if (s->broken || !is_shown(o, r, which)) return;
    size_t whole = nbytes;
    const char *text = visible(line, &nbytes);
    if (which == 1 && said_by_another(o, r, text, nbytes)) return;
    if (r == 0) {
        append(&s->queue, line, whole);
        return;
    }
    char prefix[16];
    int n = snprintf(prefix, sizeof prefix, "[%d] ", r);
    if (append(&s->queue, prefix, (size_t)n) && append(&s->queue, text, nbytes))
        append(&s->queue, "\n", 1);
}

/* Takes the finished lines out of a stream; at its end, or when a line is too long, also the
 * unfinished one. A '\r' ends a line of rank 0, so that a program's own progress bar moves. */
static void take_lines(ls__output *o, int r, int which, bool at_end)
{
    rank_output *rank = &o->ranks[r];
    ls__bytes *line = &rank->streams[which].line;
    while (line->begin < line->end) {
        char *data = line->data + line->begin;
        size_t have = line->end - line->begin, n = 0;
        while (n < have && data[n] != '\n' && !(r == 0 && data[n] == '\r')) n++;
        bool whole = n < have;
        if (!whole && !at_end && have < LINE_MAX_BYTES) return;
        if (whole) n++;
        show(o, r, which, data, n);
        remember(rank, data, n);
        line->begin += n;
    }
}

/* Reads once; false = nothing there now. */
static bool read_stream(ls__output *o, int r, int which)
{
    rank_output *rank = &o->ranks[r];
    stream *s = &rank->streams[which];
    if (s->fd < 0 || ls__bytes_reserve(&s->line, CHUNK * 4) != LS_OK) return false;
    ssize_t n = read(s->fd, s->line.data + s->line.end, s->line.capacity - s->line.end);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n > 0) {
        keep(o, rank, s->line.data + s->line.end, (size_t)n);
        s->line.end += (size_t)n;
    } else {
        close(s->fd);
        s->fd = -1;
    }
    take_lines(o, r, which, n <= 0);
    return n > 0;
}

void ls__output_serve(ls__output *o)
{
    struct epoll_event events[64];
    int n = epoll_wait(o->epoll_fd, events, 64, 0);
    for (int i = 0; i < n; i++) {
        uint64_t tag = events[i].data.u64;
        if (tag != sink_tag) read_stream(o, (int)(tag / 2), (int)(tag % 2));
    }
    for (int i = 0; i < 2; i++) flush_sink(o, &o->sinks[i]);
    pause_streams(o);
}

static bool flush_all(ls__output *o)
{
    bool waiting = false;
    for (int i = 0; i < 2; i++) {
        flush_sink(o, &o->sinks[i]);
        waiting = waiting || o->sinks[i].watched;
    }
    return !waiting;
}

void ls__output_drain(ls__output *o, double seconds, int interrupt_fd)
{
    for (int r = 0; r < o->size; r++) {
        for (int i = 0; i < 2; i++) {
            for (int n = 0; n < DRAIN_READS && read_stream(o, r, i); n++) {}
            take_lines(o, r, i, true);
        }
    }
    double deadline = ls__now() + seconds;
    while (!flush_all(o)) {
        double left = seconds < 0 ? 1 : deadline - ls__now();
        struct pollfd fds[2] = { { .fd = o->epoll_fd, .events = POLLIN },
                                 { .fd = interrupt_fd, .events = POLLIN } };
        if (left <= 0 || (poll(fds, 2, (int)(left * 1000) + 1) > 0 && fds[1].revents)) return;
    }
}

int ls__output_error(const ls__output *o)
{
    const sink *s = &o->sinks[0];
    return s->broken && s->error != EPIPE ? s->error : 0;
}

char *const *ls__output_tail(ls__output *o, int r, int *n)
{
    rank_output *rank = &o->ranks[r];
    int64_t count = rank->nlines < LS__TAIL_LINES ? rank->nlines : LS__TAIL_LINES;
    for (int64_t i = 0; i < count; i++)
        rank->ordered[i] = rank->tail[(rank->nlines - count + i) % LS__TAIL_LINES];
    *n = (int)count;
    return rank->ordered;
}
