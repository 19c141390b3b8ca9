/* Text that grows. A failed allocation is remembered, so that only the end needs a check. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <lockstep/base.h>

/* Begins as all zero. */
typedef struct ls__text {
    char *data; /* NUL-ended; NULL while empty; freed by ls__free */
    size_t used, room;
    bool failed; /* out of memory: nothing was added since; ls_error_text says so */
} ls__text;

void ls__text_append(ls__text *text, const char *bytes, size_t nbytes);
void ls__text_add(ls__text *text, const char *format, ...) LS_PRINTF(2, 3);
/* The whole text ("" when empty), for ls__free; NULL after a failure. */
char *ls__text_take(ls__text *text);

#endif
