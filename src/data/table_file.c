/* A CSV file with a header as rows of as many fields. It is mapped and read front to back, several
 * times; pages that are behind are handed back, so that a large table takes no memory as text. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/table_internal.h"
#include "data/utf8.h"

enum { PIECE = 1 << 24 };

/* Everything below may rely on text without NULs in valid UTF-8, and the last line's end. */
static ls_status fail_utf8(const char *path, const ls__data_file *file, size_t position)
{
    long long line = 1;
    for (size_t i = 0; i < position; i++) line += file->bytes[i] == '\n';
    return ls_fail(LS_ERR_DATA,
                   "%s:%lld: not UTF-8 (the byte 0x%02X): convert the file (iconv -f %s -t UTF-8)",
                   path, line, file->bytes[position], ls__utf8_guess(file->bytes, file->nbytes));
}

static ls_status check_text(const char *path, const ls__data_file *file)
{
    const char *text = (const char *)file->bytes;
    const char *guess = ls__data_file_guess(file->bytes, file->nbytes);
    if (guess[0])
        return ls_fail(LS_ERR_DATA, "%s: not a CSV file%s%s", path, guess,
                       strstr(guess, "zip") ? "; a spreadsheet is exported as CSV first" : "");
    bool lf = false;
    for (size_t begin = 0; begin < file->nbytes;) {
        size_t end = file->nbytes - begin < PIECE ? file->nbytes : begin + PIECE;
        size_t valid = ls__utf8_valid(file->bytes + begin, end - begin);
        bool last = end == file->nbytes;
        if (valid < end - begin && (last || end - begin - valid >= LS__UTF8_MAX))
            return fail_utf8(path, file, begin + valid);
        const char *nul = memchr(text + begin, '\0', valid);
        if (nul)
            return ls_fail(LS_ERR_DATA, "%s: a zero byte at %td: not a text", path, nul - text);
        lf = lf || memchr(text + begin, '\n', valid);
        ls__data_file_drop(file, begin, begin + valid);
        begin += valid;
    }
    if (!lf && memchr(text, '\r', file->nbytes))
        return ls_fail(LS_ERR_DATA, "%s: its lines end with CR alone: convert it (mac2unix)", path);
    return LS_OK;
}

/* Every name stands once. */
static ls_status add_name(ls__table_file *f, int column, const char *name, size_t nbytes)
{
    LS_TRY(ls__text_set_add(&f->header, name, nbytes));
    if (f->header.count > column) return LS_OK;
    return ls_fail(LS_ERR_DATA, "%s: two columns are named \"%.*s\"", f->path,
                   (int)(nbytes < 60 ? nbytes : 60), name);
}

static ls_status read_header(ls__table_file *f)
{
    bool more;
    int numbers = 0;
    LS_TRY(ls__csv_next(&f->csv, &more));
    if (!more) return ls_fail(LS_ERR_DATA, "%s: it holds nothing but blank lines", f->path);
    for (int i = 0; i < f->csv.nfields; i++) {
        const ls__csv_field *field = &f->csv.fields[i];
        char other[32];
        double value;
        int n = snprintf(other, sizeof other, "column %d", i + 1);
        LS_TRY(field->nbytes ? add_name(f, i, field->text, field->nbytes)
                             : add_name(f, i, other, (size_t)n));
        numbers += ls__table_number(field->text, field->nbytes, '.', &value) != LS__NUMBER_NONE;
    }
    f->names = f->header.texts;
    f->nnames = f->csv.nfields;
    f->body = f->csv.at;
    f->body_line = f->csv.next_line;
    f->numbers = numbers;
    if (numbers < f->nnames) return LS_OK;
    return ls_fail(LS_ERR_DATA,
                   "%s: its first line is numbers; it must be a header that names the columns",
                   f->path);
}

static ls_status open_file(const char *path, ls__table_file *f)
{
    LS_TRY(ls__data_file_open(path, &f->file));
    LS_TRY(check_text(path, &f->file));
    ls__csv_open((const char *)f->file.bytes, f->file.nbytes, path, &f->csv);
    return read_header(f);
}

ls_status ls__table_file_open(const char *path, ls__table_file *out)
{
    *out = (ls__table_file) { .path = path };
    ls_status status = open_file(path, out);
    if (status != LS_OK) ls__table_file_close(out);
    return status;
}

void ls__table_file_close(ls__table_file *f)
{
    ls__text_set_close(&f->header);
    ls__csv_close(&f->csv);
    ls__data_file_close(&f->file);
    *f = (ls__table_file) { 0 };
}

void ls__table_file_rewind(ls__table_file *f)
{
    f->csv.at = f->body;
    f->csv.next_line = f->body_line;
    f->dropped = 0;
}

ls_status ls__table_file_next(ls__table_file *f, bool *more)
{
    LS_TRY(ls__csv_next(&f->csv, more));
    if (*more && f->csv.nfields != f->nnames)
        return ls_fail(LS_ERR_DATA, "%s:%lld: %d fields, but the header names %d columns", f->path,
                       (long long)f->csv.line, f->csv.nfields, f->nnames);
    size_t at = (size_t)((const uint8_t *)f->csv.at - f->file.bytes);
    if (at - f->dropped >= PIECE || !*more) {
        ls__data_file_drop(&f->file, f->dropped, at);
        f->dropped = at;
    }
    return LS_OK;
}

int ls__table_file_find(const ls__table_file *f, const char *name)
{
    return (int)ls__text_set_find(&f->header, name, strlen(name));
}

ls_status ls__table_fail(const ls__table_file *f, int column, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ls_fail(LS_ERR_DATA, "%s:%lld: column %d (\"%.60s\"): %s", f->path,
                   (long long)f->csv.line, column + 1, f->names[column], text);
}

ls__number_kind ls__table_file_number(const ls__table_file *f, int column, double *value)
{
    const ls__csv_field *field = &f->csv.fields[column];
    char point = f->csv.delimiter == ';' ? ',' : '.';
    return ls__table_number(field->text, field->nbytes, point, value);
}
