/* CSV records (RFC 4180): fields between delimiters, quoted where they hold one, a quote or a line
 * break; LF or CRLF. */
#ifndef LS_DATA_CSV_H
#define LS_DATA_CSV_H

#include <lockstep/base.h>

enum { LS__CSV_FIELDS_MAX = 1 << 16 };

typedef struct ls__csv_field {
    const char *text; /* not NUL-ended; valid until the next record is read */
    size_t nbytes;
    bool quoted;
    size_t begin; /* of its unescaped text in ls__csv.text, where text is not the file's */
} ls__csv_field;

typedef struct ls__csv {
    const char *name; /* of the file, for errors */
    const char *at, *end;
    char delimiter;
    int64_t next_line; /* where the next record begins; from 1 */

    /* The record read last. Spaces around what is not quoted are left out. */
    int64_t line;
    ls__csv_field *fields; /* (nfields) */
    int nfields, room;

    char *text; /* of fields with escaped quotes */
    size_t used, text_room;
} ls__csv;

/* Borrows bytes and name. Skips a byte order mark; the delimiter is the one of , ; and tab that
 * stands most often in the first record. */
void ls__csv_open(const char *bytes, size_t nbytes, const char *name, ls__csv *out);
/* The next record that is not a blank line; *more = false at the end. Errors are LS_ERR_DATA with
 * name and line, "data.csv:7: ...". */
ls_status ls__csv_next(ls__csv *csv, bool *more);
void ls__csv_close(ls__csv *csv);

#endif
