/* Our own stdout and stderr. Ranks must not wait because a terminal is slow or stopped, so what it does
 * not take at once waits in a bounded queue. Expected: some lines a second, bursts of thousands. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "world/output_parts.h"

enum {
    QUEUE_MAX = 1 << 20, /* bytes that wait */
    CHUNK = 4096,        /* a pipe that polls writable takes so much without blocking */
};

bool ls__bytes_add(ls__bytes *bytes, const void *data, size_t nbytes)
{
    if (nbytes == 0) return true;
    if (ls__bytes_reserve(bytes, nbytes) != LS_OK) return false;
    memcpy(bytes->data + bytes->end, data, nbytes);
    bytes->end += nbytes;
    return true;
}

size_t ls__sink_waiting(const ls__sink *s)
{
    return s->queue.end - s->queue.begin;
}

bool ls__sink_full(const ls__sink *s)
{
    return ls__sink_waiting(s) > QUEUE_MAX;
}

/* Writable at once, or not a thing that poll knows (then a write may block, as it would have). */
static bool writable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) != 0;
}

/* How much of the queue to write now: whole lines within a chunk, or a chunk of a long line; on a
 * terminal always to the line's end, because the status line is drawn behind it. */
static size_t piece_of(const ls__sink *s)
{
    const char *data = s->queue.data + s->queue.begin;
    size_t nbytes = ls__sink_waiting(s);
    size_t limit = nbytes < CHUNK ? nbytes : CHUNK;
    const char *newline = memrchr(data, '\n', limit);
    if (newline) return (size_t)(newline - data) + 1;
    if (isatty(s->fd) && (newline = memchr(data, '\n', nbytes)))
        return (size_t)(newline - data) + 1;
    return limit;
}

static void tell_dropped(ls__sink *s)
{
    char text[96];
    if (s->dropped == 0 || ls__sink_waiting(s) > QUEUE_MAX / 2) return;
    int n =
        snprintf(text, sizeof text,
                 "lockstep: %lld lines were not shown here, which is slow; they are in the logs\n",
                 (long long)s->dropped);
    if (ls__bytes_add(&s->queue, text, (size_t)n)) s->dropped = 0;
}

void ls__sink_flush(ls__sink *s)
{
    while (!s->broken && ls__sink_waiting(s) > 0 && writable(s->fd)) {
        size_t n = piece_of(s);
        if (ls__statusline_print(s->fd, s->queue.data + s->queue.begin, n)) {
            s->queue.begin += n;
            tell_dropped(s);
        } else {
            s->broken = true;
            s->error = errno;
            s->queue.begin = s->queue.end;
        }
    }
}

void ls__sink_end_line(ls__sink *s)
{
    if (s->begun && !s->broken) ls__bytes_add(&s->queue, "\n", 1);
    s->begun = false;
}

void ls__sink_add(ls__sink *s, bool may_drop, const char *prefix, const char *text, size_t nbytes,
                  bool newline)
{
    if (s->broken) return;
    if (may_drop && ls__sink_full(s)) {
        s->dropped++;
        return;
    }
    if (prefix[0]) ls__sink_end_line(s);
    if (ls__bytes_add(&s->queue, prefix, strlen(prefix)) &&
        ls__bytes_add(&s->queue, text, nbytes) && newline)
        ls__bytes_add(&s->queue, "\n", 1);
    if (newline)
        s->begun = false;
    else if (nbytes > 0)
        s->begun = text[nbytes - 1] != '\n' && text[nbytes - 1] != '\r';
}
