/* Logging: one line to stderr, "lockstep: text" ("warning: ", "error: " before the text), never
 * more than one write. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <lockstep/base.h>

typedef enum ls__log_level {
    LS__LOG_ERROR,
    LS__LOG_WARN,
    LS__LOG_INFO,
    LS__LOG_DEBUG
} ls__log_level;

void ls__log(ls__log_level level, const char *format, ...) LS_PRINTF(2, 3);
bool ls__log_shows(ls__log_level level);
void ls__log_set_level(ls__log_level level); /* default INFO */
/* Every rank logs warnings and errors; only the quiet-less rank (0) logs info. Default: not quiet.
 */
void ls__log_set_quiet(bool quiet);
bool ls__log_parse_level(const char *text, ls__log_level *out); /* error, warn, info, debug */

/* Whether to colour a stream: --color is for later; NO_COLOR, TERM=dumb and isatty decide. */
bool ls__color(int fd);

/* One line at the bottom of a terminal that is redrawn in place (progress). On a stream that is not
 * a terminal nothing is drawn. Text that the process writes to stderr by ls__log goes above it.
 * Thread safe. */
void ls__statusline_set(const char *text); /* NULL or "" = erase */
/* Whole lines of somebody else's (a rank's output) to fd, above the status line; errors of writing
 * are left in errno. */
bool ls__statusline_print(int fd, const void *lines, size_t nbytes);

#endif
