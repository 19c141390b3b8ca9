/* Error handling inside the library: try, try-goto, assert. */
#ifndef LS_BASE_CHECK_H
#define LS_BASE_CHECK_H

#include <lockstep/base.h>

#define LS_TRY(expr) /* only while nothing is held */                                              \
    do {                                                                                           \
        ls_status ls__status = (expr);                                                             \
        if (ls__status != LS_OK) return ls__status;                                                \
    } while (0)

#define LS_TRY_GOTO(expr, status, label) /* one exit that frees; the first error is kept */        \
    do {                                                                                           \
        (status) = (expr);                                                                         \
        if ((status) != LS_OK) goto label;                                                         \
    } while (0)

/* A broken invariant of our own: prints the place and ends the process with 70. */
#define LS_ASSERT(condition)                                                                       \
    ((condition) ? (void)0 : ls__assert_failed(#condition, __FILE__, __LINE__))
void ls__assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/* As ls_fail, with ": " and errno's text behind it. Open files that run out are LS_ERR_MEMORY, whatever
 * status was given: the same trouble ends with the same code wherever it is met. */
ls_status ls__fail_errno(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

int ls__exit_code(ls_status status);
const char *ls__status_text(ls_status status);
/* "ERR_DATA" for a status; and back (LS_ERR_INTERNAL for an unknown name). Used when a status
 * crosses processes. */
const char *ls__status_name(ls_status status);
ls_status ls__status_from_name(const char *name);

/* Called by ls_check on a failure, before exit; the world sets it to report the failure. It returns
 * whether the text is told to the user already (a supervisor prints one for all ranks); otherwise
 * ls_check prints it. NULL = none. */
void ls__check_set_hook(bool (*hook)(void *user, ls_status status, const char *text), void *user);

#endif
