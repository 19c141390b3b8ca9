/* What every test includes: cmocka with the headers it wants, and a few asserts that say more. */
#ifndef LS_TESTING_H
#define LS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/base.h>

#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        ls_status assert_status = (expr);                                                          \
        if (assert_status != LS_OK)                                                                \
            fail_msg("%s: status %d: %s", #expr, assert_status, ls_error_text());                  \
    } while (0)

/* expr fails with this status and a text that contains part. */
#define assert_fails(expr, expected, part)                                                         \
    do {                                                                                           \
        ls_status assert_status = (expr);                                                          \
        if (assert_status != (expected))                                                           \
            fail_msg("%s: status %d, not %d: %s", #expr, assert_status, expected,                  \
                     ls_error_text());                                                             \
        if (!strstr(ls_error_text(), part))                                                        \
            fail_msg("%s: \"%s\" does not say \"%s\"", #expr, ls_error_text(), part);              \
    } while (0)

#endif
