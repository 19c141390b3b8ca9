/* What ranks print. Each stream of each rank is a pipe, so that lines of different ranks never mix
 * and the supervisor never shares a terminal with its children. Rank 0 is shown as it is; of the
 * others stderr behind "[1] ". Expected: some lines a second; bursts of thousands. */
#include "world/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/output_parts.h"
#include "world/report.h"

enum {
    LINE_MAX_BYTES = 1 << 16, /* a longer line is handled in pieces */
    READ_BYTES = 1 << 14,
    TAIL_LINE_MAX = 400, /* bytes of a last line */
    DRAIN_READS = 64,    /* of one pipe at the end */
    WARNINGS = 32,       /* that are remembered */
};

typedef struct stream {
    int fd; /* -1: at its end */
    bool paused;
    ls__bytes line; /* begun, not ended */
    size_t copied;  /* bytes of it that are shown already: a bare stream's */
} stream;

typedef struct rank_output {
    stream streams[2]; /* stdout, stderr */
    ls__rank_log log;
    char *tail[LS__TAIL_LINES];
    int which[LS__TAIL_LINES]; /* the stream of each */
    char *ordered[LS__TAIL_LINES];
    int64_t nlines;
    int64_t newest, block; /* its last line of ls__output's shown, and how many without another's */
} rank_output;

struct ls__output {
    ls__output_options options;
    int size, epoll_fd;
    bool has_logs, warned;
    rank_output *ranks; /* (size) */
    ls__sink sinks[2];
    bool watched[2];
    int64_t shown;  /* lines on our stderr */
    ls__fold *fold; /* optional */
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
static const uint64_t sink_tag = (uint64_t)1 << 32, fold_tag = (uint64_t)1 << 33;

static bool is_shown(const ls__output *o, int rank, int which)
{
    return o->options.shown ? o->options.shown[rank] >> which & 1 : rank == 0 || which == 1;
}

/* Whether what does not fit may be left out. */
static bool may_drop(const ls__output *o, int rank, int which)
{
    return o->options.drop && (rank > 0 || which == 1 || isatty(STDOUT_FILENO));
}

/* The one machine of all these ranks; NULL = several, or there is but one. */
static const char *host_of_all(const ls__output *o, const uint64_t *ranks)
{
    const char *host = NULL;
    for (int r = 0; o->options.host_of && r < o->size; r++) {
        if (!(ranks[r / 64] >> (r % 64) & 1)) continue;
        const char *its = o->options.host_of(o->options.user, r);
        if (host && its != host && strcmp(its, host) != 0) return NULL;
        host = its;
    }
    return host;
}

/* The line o->shown of our stderr is this rank's. */
static void mark_shown(ls__output *o, int r)
{
    rank_output *rank = &o->ranks[r];
    rank->block = rank->newest == o->shown - 1 ? rank->block + 1 : 1;
    rank->newest = o->shown;
}

static void show_folded(void *user, int which, const uint64_t *ranks, const char *text,
                        size_t nbytes)
{
    ls__output *o = user;
    char prefix[LS__RANKS_TEXT];
    ls__ranks_text(ranks, o->size, host_of_all(o, ranks), prefix);
    ls__sink_add(&o->sinks[which], o->options.drop, prefix, text, nbytes, true);
    if (which == 0) return;
    o->shown++;
    for (int r = 0; r < o->size && o->sinks[1].dropped == 0; r++)
        if (ranks[r / 64] >> (r % 64) & 1) mark_shown(o, r);
}

static ls_status create_fold(ls__output *o)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = fold_tag };
    LS_TRY(ls__fold_create(o->size, show_folded, o, &o->fold));
    if (epoll_ctl(o->epoll_fd, EPOLL_CTL_ADD, ls__fold_fd(o->fold), &event) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    return LS_OK;
}

ls_status ls__output_create(int size, const ls__output_options *options, ls__output **out)
{
    *out = NULL;
    ls__output *o = ls__alloc(1, sizeof *o);
    if (!o) return LS_ERR_MEMORY;
    if (options) o->options = *options;
    o->size = size;
    o->sinks[0].fd = STDOUT_FILENO;
    o->sinks[1].fd = STDERR_FILENO;
    o->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    o->ranks = ls__alloc((size_t)size, sizeof *o->ranks);
    for (int r = 0; o->ranks && r < size; r++) {
        rank_output *rank = &o->ranks[r];
        rank->streams[0].fd = rank->streams[1].fd = rank->log.fd = -1;
        rank->log.limit = o->options.log_limit;
        rank->log.drawn_at = -1e9;
    }
    ls_status status = LS_OK;
    if (o->epoll_fd < 0 || !o->ranks)
        status = ls__fail_errno(LS_ERR_MEMORY, "cannot read the output of ranks");
    if (status == LS_OK && o->options.fold) status = create_fold(o);
    if (status != LS_OK)
        ls__output_destroy(o);
    else
        *out = o;
    return status;
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
        ls__rank_log_close(&rank->log);
    }
    ls__fold_destroy(o->fold);
    for (int i = 0; i < 2; i++) ls__bytes_free(&o->sinks[i].queue);
    if (o->epoll_fd >= 0) close(o->epoll_fd);
    ls__free(o->ranks);
    ls__free(o);
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
        s->fd = fds[i];
        s->paused = false;
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

/* --- logs --- */

static void warn_once(ls__output *o, const char *what, int error)
{
    if (!o->warned)
        ls__log(LS__LOG_WARN, "%s: %s; the ranks' logs are not complete", what, strerror(error));
    o->warned = true;
}

void ls__output_set_logs(ls__output *o, const char *folder)
{
    char name[32], path[LS_PATH_MAX];
    if (o->has_logs) return;
    o->has_logs = true;
    bool ok = folder && ls__folder_make(&ls__fs_unsynced, folder) == LS_OK;
    if (folder && !ok) ls__log(LS__LOG_WARN, "no logs of the ranks: %s", ls_error_text());
    for (int r = 0; r < o->size; r++) {
        ls__rank_log *log = &o->ranks[r].log;
        log->off = true;
        snprintf(name, sizeof name, "rank-%d.log", o->options.first + r);
        if (!ok || ls__path_join(path, folder, name) != LS_OK) {
            ls__bytes_free(&log->waiting);
            continue;
        }
        int error = ls__rank_log_open(log, path);
        if (error) warn_once(o, path, error);
    }
}

static void flush_log(ls__output *o, rank_output *rank)
{
    int error = ls__rank_log_flush(&rank->log);
    if (error) warn_once(o, "writing a rank's log", error);
}

/* --- our own streams --- */

static void watch_sink(ls__output *o, int which)
{
    const ls__sink *s = &o->sinks[which];
    bool on = !s->broken && ls__sink_waiting(s) > 0;
    if (o->watched[which] == on) return;
    struct epoll_event event = { .events = EPOLLOUT, .data.u64 = sink_tag };
    int operation = on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    if (epoll_ctl(o->epoll_fd, operation, s->fd, &event) == 0) o->watched[which] = on;
}

/* When the reader of our stdout is gone, as in "train | head", rank 0 shall notice as it would have;
 * with a full disk it goes on, and the job's end says what was lost. */
static void flush_sinks(ls__output *o)
{
    for (int i = 0; i < 2; i++) {
        bool was_broken = o->sinks[i].broken;
        ls__sink_flush(&o->sinks[i]);
        stream *bare = &o->ranks[0].streams[0];
        if (i == 0 && !was_broken && o->sinks[0].broken && o->sinks[0].error == EPIPE &&
            bare->fd >= 0) {
            close(bare->fd);
            bare->fd = -1;
        }
        watch_sink(o, i);
    }
}

/* Pipes of streams whose every line is shown rest while the queues are full. */
static void pause_streams(ls__output *o)
{
    bool full[2] = { ls__sink_full(&o->sinks[0]), ls__sink_full(&o->sinks[1]) };
    for (int r = 0; r < o->size; r++) {
        for (int i = 0; i < 2; i++) {
            stream *s = &o->ranks[r].streams[i];
            bool rest = (o->options.drop ? full[i] : full[0] || full[1]) && is_shown(o, r, i) &&
                        !may_drop(o, r, i);
            if (s->fd < 0 || s->paused == rest) continue;
            struct epoll_event event = { .events = rest ? 0 : EPOLLIN, .data.u64 = tag_of(r, i) };
            epoll_ctl(o->epoll_fd, EPOLL_CTL_MOD, s->fd, &event);
            s->paused = rest;
        }
    }
}

/* --- lines --- */

/* The visible part of a line: of one that was redrawn with '\r' the last drawing. */
static const char *visible(const char *line, size_t *nbytes)
{
    while (*nbytes > 0 && (line[*nbytes - 1] == '\n' || line[*nbytes - 1] == '\r')) (*nbytes)--;
    const char *redrawn = *nbytes > 0 ? memrchr(line, '\r', *nbytes) : NULL;
    if (!redrawn) return line;
    *nbytes -= (size_t)(redrawn + 1 - line);
    return redrawn + 1;
}

static void remember(rank_output *rank, int which, const char *text, size_t nbytes)
{
    char **slot = &rank->tail[rank->nlines % LS__TAIL_LINES];
    rank->which[rank->nlines % LS__TAIL_LINES] = which;
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

static void show(ls__output *o, int r, int which, const char *text, size_t nbytes)
{
    char prefix[96];
    if (o->fold) {
        ls__fold_add(o->fold, r, which, text, nbytes);
        return;
    }
    if (which == 1 && said_by_another(o, r, text, nbytes)) return;
    const char *host = o->options.host_of ? o->options.host_of(o->options.user, r) : NULL;
    if (host)
        snprintf(prefix, sizeof prefix, "[%.64s:%d] ", host, r);
    else
        snprintf(prefix, sizeof prefix, "[%d] ", r);
    ls__sink_add(&o->sinks[which], o->options.drop, prefix, text, nbytes, true);
}

/* Rank 0 is shown as it is, to the last newline or '\r', so that its progress bar moves. */
static void show_bare(ls__output *o, int which, bool at_end)
{
    stream *s = &o->ranks[0].streams[which];
    for (;;) {
        const char *data = s->line.data + s->line.begin + s->copied;
        size_t have = s->line.end - s->line.begin - s->copied, n = 0;
        while (n < have && data[n] != '\n' && data[n] != '\r') n++;
        bool whole = n < have;
        if (have == 0 || (!whole && !at_end && have < LINE_MAX_BYTES)) return;
        bool told = which == 1 && !o->fold && said_by_another(o, 0, data, n);
        if (whole) n++;
        if (!told) ls__sink_add(&o->sinks[which], may_drop(o, 0, which), "", data, n, false);
        s->copied += n;
    }
}

/* Of a line of rank 0's stderr that is shown as it is. */
static void mark_bare(ls__output *o)
{
    o->shown++;
    if (o->sinks[1].dropped == 0) mark_shown(o, 0);
}

/* One line with its newline, or a piece of one without. */
static void take_line(ls__output *o, int r, int which, const char *line, size_t nbytes)
{
    rank_output *rank = &o->ranks[r];
    bool whole = line[nbytes - 1] == '\n';
    const char *text = visible(line, &nbytes);
    remember(rank, which, text, nbytes);
    ls__rank_log_add(&rank->log, text, nbytes);
    if (whole) ls__rank_log_add(&rank->log, "\n", 1);
    if (r > 0 && is_shown(o, r, which)) show(o, r, which, text, nbytes);
    if (r == 0 && which == 1 && is_shown(o, r, which)) mark_bare(o);
    if (o->options.line) o->options.line(o->options.user, r, which, text, nbytes);
}

void ls__output_put(ls__output *o, int r, int which, const char *text, size_t nbytes)
{
    rank_output *rank = &o->ranks[r];
    remember(rank, which, text, nbytes);
    ls__rank_log_add(&rank->log, text, nbytes);
    ls__rank_log_add(&rank->log, "\n", 1);
    flush_log(o, rank);
    bool shown = is_shown(o, r, which);
    if (shown && r > 0) show(o, r, which, text, nbytes);
    if (shown && r == 0)
        ls__sink_add(&o->sinks[which], may_drop(o, 0, which), "", text, nbytes, true);
    if (shown && r == 0 && which == 1) mark_bare(o);
    flush_sinks(o);
}

static void consume(stream *s, size_t nbytes)
{
    s->line.begin += nbytes;
    s->copied -= s->copied < nbytes ? s->copied : nbytes;
}

/* What a progress bar has drawn over goes; "\r\n" ends a line, so a '\r' at the end may be that. */
static void skip_drawings(rank_output *rank, stream *s)
{
    const char *data = s->line.data + s->line.begin;
    size_t have = s->line.end - s->line.begin;
    const char *last = have > 1 ? memrchr(data, '\r', have - 1) : NULL;
    if (!last) return;
    size_t whole = (size_t)(last - data) + 1, nbytes = whole;
    const char *text = visible(data, &nbytes);
    ls__rank_log_drawing(&rank->log, text, nbytes);
    consume(s, whole);
}

/* Takes the finished lines out of a stream; at its end, or when a line is too long, also the
 * unfinished one. */
static void take_lines(ls__output *o, int r, int which, bool at_end)
{
    rank_output *rank = &o->ranks[r];
    stream *s = &rank->streams[which];
    if (r == 0 && is_shown(o, r, which)) show_bare(o, which, at_end);
    while (s->line.begin < s->line.end) {
        const char *data = s->line.data + s->line.begin;
        size_t have = s->line.end - s->line.begin;
        const char *newline = memchr(data, '\n', have);
        size_t n = newline ? (size_t)(newline - data) + 1 : have;
        if (!newline && !at_end && have < LINE_MAX_BYTES) break;
        take_line(o, r, which, data, n);
        consume(s, n);
    }
    skip_drawings(rank, s);
    flush_log(o, rank);
}

/* --- reading --- */

/* Reads once; false = nothing there now. */
static bool read_stream(ls__output *o, int r, int which)
{
    stream *s = &o->ranks[r].streams[which];
    if (s->fd < 0 || ls__bytes_reserve(&s->line, READ_BYTES) != LS_OK) return false;
    ssize_t n = read(s->fd, s->line.data + s->line.end, s->line.capacity - s->line.end);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n > 0) {
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
        if (tag < sink_tag) read_stream(o, (int)(tag / 2), (int)(tag % 2));
    }
    if (o->fold) ls__fold_flush(o->fold, false);
    flush_sinks(o);
    pause_streams(o);
}

/* What follows is our own report, on stderr. Standard output in a file or pipe of its own stays what
 * rank 0 has written, to the byte. */
static void end_lines(ls__output *o)
{
    struct stat out, err;
    ls__sink_end_line(&o->sinks[1]);
    if (fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
        out.st_dev == err.st_dev && out.st_ino == err.st_ino)
        ls__sink_end_line(&o->sinks[0]);
}

void ls__output_drain(ls__output *o, double seconds, int interrupt_fd)
{
    for (int r = 0; r < o->size; r++) {
        for (int i = 0; i < 2; i++) {
            for (int n = 0; n < DRAIN_READS && read_stream(o, r, i); n++) {}
            take_lines(o, r, i, true);
        }
    }
    if (o->fold) ls__fold_flush(o->fold, true);
    end_lines(o);
    double deadline = ls__now() + seconds;
    for (;;) {
        flush_sinks(o);
        if (!o->watched[0] && !o->watched[1]) return;
        double left = seconds < 0 ? 1 : deadline - ls__now();
        struct pollfd fds[2] = { { .fd = o->epoll_fd, .events = POLLIN },
                                 { .fd = interrupt_fd, .events = POLLIN } };
        if (left <= 0 || (poll(fds, 2, (int)(left * 1000) + 1) > 0 && fds[1].revents)) return;
    }
}

int ls__output_error(const ls__output *o)
{
    const ls__sink *s = &o->sinks[0];
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

bool ls__output_tail_seen(const ls__output *o, int r, int line)
{
    const rank_output *rank = &o->ranks[r];
    const ls__sink *sink = &o->sinks[1];
    int64_t count = rank->nlines < LS__TAIL_LINES ? rank->nlines : LS__TAIL_LINES, said = 0;
    for (int64_t i = 0; i < count; i++) said += rank->which[i];
    bool last = said > 0 && said <= rank->block && rank->newest == o->shown;
    if (!last || sink->broken || sink->dropped > 0 || ls__sink_waiting(sink) > 0) return false;
    return is_shown(o, r, rank->which[(rank->nlines - count + line) % LS__TAIL_LINES]);
}
