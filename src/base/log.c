/* The log sink and the status line: the one piece of process-wide state. Both write to stderr under
 * one lock, because a log line has to lift the status line and put it back. A line is one write of
 * at most PIPE_BUF bytes: the kernel then never mixes lines of several processes on one pipe. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { STATUSLINE_SIZE = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int level_limit = LS__LOG_INFO;
static atomic_bool quiet;
static char statusline[STATUSLINE_SIZE]; /* what is drawn now; "" = nothing */
static bool erase_at_exit;

void ls__log_set_level(ls__log_level level)
{
    atomic_store(&level_limit, (int)level);
}

void ls__log_set_quiet(bool on)
{
    atomic_store(&quiet, on);
}

bool ls__log_parse_level(const char *text, ls__log_level *out)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (ls__log_level)i;
            return true;
        }
    }
    return false;
}

static bool is_terminal(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

bool ls__color(int fd)
{
    const char *no_color = getenv("NO_COLOR");
    return !(no_color && no_color[0]) && is_terminal(fd);
}

/* Everything, also to a stream that somebody made non-blocking; false leaves errno. */
static bool write_all(int fd, const char *data, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t n = write(fd, data, nbytes);
        if (n >= 0) {
            data += n;
            nbytes -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            struct pollfd writable = { .fd = fd, .events = POLLOUT };
            poll(&writable, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

static const char erase_line[] = "\r\033[K";

static void statusline_erase(void)
{
    if (statusline[0]) write_all(STDERR_FILENO, erase_line, sizeof erase_line - 1);
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* Bytes of text that take at most columns places; every code point counts as one. */
static size_t bytes_of_columns(const char *text, int columns)
{
    size_t i = 0;
    for (; text[i]; i++) {
        bool first_of_character = ((unsigned char)text[i] & 0xc0) != 0x80;
        if (first_of_character && columns-- == 0) break;
    }
    return i;
}

/* Where text that does not fit is cut: at a gap of two blanks, so that no number loses digits. */
static size_t bytes_that_fit(const char *text, int columns)
{
    size_t n = bytes_of_columns(text, columns);
    if (!text[n]) return n;
    for (size_t i = n; i > 0; i--)
        if (text[i] == ' ' && text[i - 1] == ' ') return i - 1;
    return n;
}

/* One write: no flicker. One column stays free, or the terminal would wrap. */
static void statusline_draw(void)
{
    char out[sizeof erase_line + STATUSLINE_SIZE];
    size_t n = bytes_that_fit(statusline, terminal_columns() - 1);
    memcpy(out, erase_line, sizeof erase_line - 1);
    memcpy(out + sizeof erase_line - 1, statusline, n);
    if (statusline[0]) write_all(STDERR_FILENO, out, sizeof erase_line - 1 + n);
}

static void statusline_at_exit(void)
{
    ls__statusline_set(NULL);
}

void ls__statusline_set(const char *text)
{
    if (!is_terminal(STDERR_FILENO)) return;
    int saved = errno;
    pthread_mutex_lock(&lock);
    if (!erase_at_exit) erase_at_exit = atexit(statusline_at_exit) == 0;
    if (!text || !text[0]) statusline_erase();
    snprintf(statusline, sizeof statusline, "%s", text ? text : "");
    statusline[strcspn(statusline, "\r\n")] = '\0';
    statusline_draw();
    pthread_mutex_unlock(&lock);
    errno = saved;
}

bool ls__statusline_print(int fd, const void *lines, size_t nbytes)
{
    pthread_mutex_lock(&lock);
    statusline_erase();
    bool ok = write_all(fd, lines, nbytes);
    int saved = errno;
    statusline_draw();
    pthread_mutex_unlock(&lock);
    errno = saved;
    return ok;
}

static const char *prefix_of(ls__log_level level)
{
    bool color = ls__color(STDERR_FILENO);
    switch (level) {
    case LS__LOG_ERROR:
        return color ? "lockstep: \033[1;31merror:\033[0m " : "lockstep: error: ";
    case LS__LOG_WARN:
        return color ? "lockstep: \033[1;33mwarning:\033[0m " : "lockstep: warning: ";
    default:
        return "lockstep: ";
    }
}

bool ls__log_shows(ls__log_level level)
{
    if ((int)level > atomic_load(&level_limit)) return false;
    return level < LS__LOG_INFO || !atomic_load(&quiet);
}

void ls__log(ls__log_level level, const char *format, ...)
{
    if (!ls__log_shows(level)) return;
    int saved = errno;
    char line[PIPE_BUF];
    size_t used = (size_t)snprintf(line, sizeof line, "%s", prefix_of(level));
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + used, sizeof line - used, format, args);
    va_end(args);
    used += n > 0 ? (size_t)n : 0;
    if (used > sizeof line - 1) { /* was cut, and the newline needs its place */
        used = sizeof line - 1;
        memcpy(line + used - 3, "...", 3);
    }
    line[used++] = '\n';
    ls__statusline_print(STDERR_FILENO, line, used);
    errno = saved;
}
