/* Status and error text. The text is a fixed buffer per thread, so that recording a failure can
 * itself not fail (out of memory is one of the failures) and ranks run as threads do not mix. */
#include "base/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { TEXT_SIZE = 2048 };

static _Thread_local char error_text[TEXT_SIZE];
static _Thread_local ls_status error_status;

static bool (*check_hook)(void *user, ls_status status, const char *text);
static void *check_hook_user;

static const struct {
    const char *name;
    const char *text;
    int exit_code;
} statuses[] = {
#define STATUS_ROW(name, text, code) { #name, text, code },
    LS_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};
enum { NSTATUSES = sizeof statuses / sizeof statuses[0] };

const char *ls_error_text(void)
{
    return error_text;
}

/* The arguments may point into error_text ("...: %s", ls_error_text()), so the new text is made
 * beside it. A text that does not fit ends with "...". */
static void keep_text(ls_status status, const char *format, va_list args, const char *tail)
{
    char text[TEXT_SIZE];
    int n = vsnprintf(text, sizeof text, format, args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof text) {
        n = snprintf(text + used, sizeof text - used, "%s", tail);
        used += n < 0 ? 0 : (size_t)n;
    }
    if (used >= sizeof text) memcpy(text + sizeof text - 4, "...", 4);
    memcpy(error_text, text, sizeof text);
    error_status = status;
}

ls_status ls_fail(ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep_text(status, format, args, "");
    va_end(args);
    return status;
}

ls_status ls__fail_errno(ls_status status, const char *format, ...)
{
    char reason[128], tail[192];
    const char *hint = errno == EMFILE ? " (ulimit -n raises how many)" : "";
    if (errno == EMFILE || errno == ENFILE) status = LS_ERR_MEMORY; /* whatever met it first */
    snprintf(tail, sizeof tail, ": %s%s", strerror_r(errno, reason, sizeof reason), hint);
    va_list args;
    va_start(args, format);
    keep_text(status, format, args, tail);
    va_end(args);
    return status;
}

static bool is_status(ls_status status)
{
    return (int)status >= 0 && (int)status < NSTATUSES;
}

int ls__exit_code(ls_status status)
{
    return is_status(status) ? statuses[status].exit_code : statuses[LS_ERR_INTERNAL].exit_code;
}

const char *ls__status_text(ls_status status)
{
    return is_status(status) ? statuses[status].text : "unknown status";
}

const char *ls__status_name(ls_status status)
{
    return is_status(status) ? statuses[status].name : "ERR_INTERNAL";
}

ls_status ls__status_from_name(const char *name)
{
    for (int i = 0; i < NSTATUSES; i++)
        if (strcmp(statuses[i].name, name) == 0) return (ls_status)i;
    return LS_ERR_INTERNAL;
}

void ls__check_set_hook(bool (*hook)(void *user, ls_status status, const char *text), void *user)
{
    check_hook = hook;
    check_hook_user = user;
}

void ls_check(ls_status status)
{
    if (status == LS_OK) return;
    /* A caller may make up a status of its own; then this thread's last text is about something
     * else. */
    const char *text =
        error_status == status && error_text[0] ? error_text : ls__status_text(status);
    bool told = check_hook && check_hook(check_hook_user, status, text);
    if (!told) ls__log(LS__LOG_ERROR, "%s", text);
    exit(ls__exit_code(status));
}

void ls__assert_failed(const char *condition, const char *file, int line)
{
    ls__log(LS__LOG_ERROR, "%s:%d: %s does not hold: this is a bug in lockstep, please report it",
            file, line, condition);
    _exit(ls__exit_code(LS_ERR_INTERNAL));
}
