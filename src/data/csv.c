/* The CSV reader. Fields are pointers into the mapped file; only one with a doubled quote is copied.
 * A table is read three times front to back, so that it never has to be held as text. */
#include "data/csv.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

/* Counts delimiters outside of quotes in the first record. */
static char find_delimiter(const char *at, const char *end)
{
    static const char candidates[] = { ',', ';', '\t' };
    int64_t counts[3] = { 0 };
    bool quoted = false;
    for (; at < end && (quoted || *at != '\n'); at++) {
        if (*at == '"') quoted = !quoted;
        for (int i = 0; i < 3; i++) counts[i] += !quoted && *at == candidates[i];
    }
    int best = 0;
    for (int i = 1; i < 3; i++)
        if (counts[i] > counts[best]) best = i;
    return candidates[best];
}

void ls__csv_open(const char *bytes, size_t nbytes, const char *name, ls__csv *out)
{
    size_t mark = nbytes >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    *out = (ls__csv) { .name = name, .at = bytes + mark, .end = bytes + nbytes, .next_line = 1 };
    out->delimiter = find_delimiter(out->at, out->end);
}

void ls__csv_close(ls__csv *csv)
{
    ls__free(csv->fields);
    ls__free(csv->text);
    *csv = (ls__csv) { 0 };
}

/* --- fields --- */

static ls_status add_field(ls__csv *csv, ls__csv_field field)
{
    if (csv->nfields == LS__CSV_FIELDS_MAX)
        return ls_fail(LS_ERR_DATA, "%s:%lld: more than %d columns", csv->name,
                       (long long)csv->line, LS__CSV_FIELDS_MAX);
    if (csv->nfields == csv->room) {
        int room = csv->room ? 2 * csv->room : 32;
        ls__csv_field *grown = ls__realloc(csv->fields, (size_t)room, sizeof *grown);
        if (!grown) return LS_ERR_MEMORY;
        csv->fields = grown;
        csv->room = room;
    }
    csv->fields[csv->nfields++] = field;
    return LS_OK;
}

static bool ends_field(const ls__csv *csv, const char *at)
{
    return at == csv->end || *at == csv->delimiter || *at == '\n' ||
           (*at == '\r' && (at + 1 == csv->end || at[1] == '\n'));
}

static ls_status read_plain(ls__csv *csv)
{
    const char *begin = csv->at;
    while (!ends_field(csv, csv->at)) csv->at++;
    const char *end = csv->at;
    while (begin < end && (*begin == ' ' || *begin == '\t')) begin++;
    while (begin < end && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return add_field(csv, (ls__csv_field) { .text = begin, .nbytes = (size_t)(end - begin) });
}

/* The copy of [begin, end) with every doubled quote single. */
static ls_status add_unescaped(ls__csv *csv, const char *begin, const char *end)
{
    size_t nbytes = (size_t)(end - begin);
    if (nbytes > csv->text_room - csv->used) {
        size_t room = 2 * csv->text_room + nbytes;
        char *grown = ls__realloc(csv->text, room, 1);
        if (!grown) return LS_ERR_MEMORY;
        csv->text = grown;
        csv->text_room = room;
    }
    ls__csv_field field = { .quoted = true, .begin = csv->used };
    for (const char *p = begin; p < end; p++) {
        csv->text[csv->used++] = *p;
        if (*p == '"') p++;
    }
    field.nbytes = csv->used - field.begin;
    return add_field(csv, field);
}

/* At the opening quote, possibly behind spaces. */
static ls_status read_quoted(ls__csv *csv)
{
    const char *begin = ++csv->at;
    int64_t line = csv->next_line;
    bool doubled = false;
    for (;; csv->at++) {
        const char *quote = memchr(csv->at, '"', (size_t)(csv->end - csv->at));
        for (const char *p = csv->at; p < (quote ? quote : csv->end); p++)
            csv->next_line += *p == '\n';
        if (!quote)
            return ls_fail(LS_ERR_DATA, "%s:%lld: a quote that opens here is never closed",
                           csv->name, (long long)line);
        csv->at = quote + 1;
        if (csv->at == csv->end || *csv->at != '"') break;
        doubled = true;
    }
    const char *end = csv->at - 1;
    while (csv->at < csv->end && *csv->at == ' ') csv->at++;
    if (!ends_field(csv, csv->at))
        return ls_fail(LS_ERR_DATA,
                       "%s:%lld: column %d: text behind a closing quote; a quote within quotes is "
                       "written twice",
                       csv->name, (long long)csv->next_line, csv->nfields + 1);
    if (doubled) return add_unescaped(csv, begin, end);
    return add_field(
        csv, (ls__csv_field) { .text = begin, .nbytes = (size_t)(end - begin), .quoted = true });
}

/* --- records --- */

static void skip_line_end(ls__csv *csv)
{
    if (csv->at < csv->end && *csv->at == '\r') csv->at++;
    if (csv->at < csv->end && *csv->at == '\n') csv->at++;
    csv->next_line++;
}

static ls_status read_record(ls__csv *csv)
{
    csv->line = csv->next_line;
    csv->nfields = 0;
    csv->used = 0;
    for (;;) {
        const char *p = csv->at;
        while (p < csv->end && *p == ' ') p++;
        if (p < csv->end && *p == '"') {
            csv->at = p;
            LS_TRY(read_quoted(csv));
        } else {
            LS_TRY(read_plain(csv));
        }
        if (csv->at == csv->end || *csv->at != csv->delimiter) break;
        csv->at++;
    }
    skip_line_end(csv);
    for (int i = 0; i < csv->nfields; i++)
        if (!csv->fields[i].text) csv->fields[i].text = csv->text + csv->fields[i].begin;
    return LS_OK;
}

ls_status ls__csv_next(ls__csv *csv, bool *more)
{
    do {
        *more = csv->at < csv->end;
        if (!*more) return LS_OK;
        LS_TRY(read_record(csv));
    } while (csv->nfields == 1 && csv->fields[0].nbytes == 0 && !csv->fields[0].quoted);
    return LS_OK;
}
