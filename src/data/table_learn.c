/* Learns what a table's columns are: numbers if all their values are, else categories. Two passes over
 * the file: counts and means first, then deviations and the different texts of those columns that turned
 * out to need them. Sums are fp64 in the file's order, so that every machine learns the same. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "data/table_internal.h"

enum { HASH_ABOVE_DEFAULT = 1000, HASH_ABOVE_MAX = 1 << 24, CLASSES_MAX = 1 << 16 };

/* What is known of one of the file's columns. */
typedef struct column_facts {
    bool used, forced; /* forced: a category whatever it looks like */
    bool is_number;
    int64_t numbers, infinite, texts, missing;
    int64_t odd_line; /* of the first value that is no finite number, */
    char odd[24];     /* which begins so */
    double sum, mean, squares;
    ls__text_set values;
    bool too_many;
} column_facts;

typedef struct learner {
    ls__table_file file;
    const ls_table_options *options;
    column_facts *facts; /* (file.nnames) */
    int target;
    int64_t hash_above, rows;
} learner;

/* --- options --- */

static ls_status find_column(const learner *l, const char *name, const char *what, int *column)
{
    *column = ls__table_file_find(&l->file, name);
    if (*column >= 0) return LS_OK;
    const char **names = ls__alloc((size_t)l->file.nnames + 1, sizeof *names);
    if (!names) return LS_ERR_MEMORY;
    memcpy(names, l->file.names, (size_t)l->file.nnames * sizeof *names);
    const char *close = ls__suggest(name, names);
    ls__free(names);
    if (close)
        return ls_fail(LS_ERR_CONFIG,
                       "%s: no column is named \"%.60s\", which is given as %s; did you mean "
                       "\"%s\"?",
                       l->file.path, name, what, close);
    char list[256] = "";
    for (int i = 0, used = 0; i < l->file.nnames && used < (int)sizeof list - 64; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%.40s", i ? ", " : "",
                         l->file.names[i]);
    return ls_fail(LS_ERR_CONFIG,
                   "%s: no column is named \"%.60s\", which is given as %s; there are %s%s",
                   l->file.path, name, what, list, strlen(list) >= sizeof list - 64 ? ", ..." : "");
}

/* A list is a CSV record: "id,name". */
static ls_status mark_columns(learner *l, const char *list, const char *what,
                              void (*mark)(column_facts *))
{
    if (!list || !list[0]) return LS_OK;
    ls__csv csv;
    bool more;
    ls__csv_open(list, strlen(list), what, &csv);
    csv.delimiter = ',';
    ls_status status = ls__csv_next(&csv, &more);
    for (int i = 0; status == LS_OK && i < csv.nfields; i++) {
        int column;
        char *name = ls__format("%.*s", (int)csv.fields[i].nbytes, csv.fields[i].text);
        status = name ? find_column(l, name, what, &column) : LS_ERR_MEMORY;
        if (status == LS_OK) mark(&l->facts[column]);
        ls__free(name);
    }
    ls__csv_close(&csv);
    return status;
}

static void mark_dropped(column_facts *facts)
{
    facts->used = false;
}

static void mark_forced(column_facts *facts)
{
    facts->forced = true;
}

static ls_status apply_options(learner *l)
{
    const ls_table_options *o = l->options;
    for (int i = 0; i < l->file.nnames; i++) l->facts[i].used = true;
    l->target = l->file.nnames - 1;
    l->hash_above = o->hash_above ? o->hash_above : HASH_ABOVE_DEFAULT;
    if (l->hash_above < 1 || l->hash_above > HASH_ABOVE_MAX)
        return ls_fail(LS_ERR_ARG, "hash_above is %lld: give 1 to %d", (long long)o->hash_above,
                       HASH_ABOVE_MAX);
    LS_TRY(mark_columns(l, o->drop, "a column to drop", mark_dropped));
    LS_TRY(mark_columns(l, o->categories, "a column of categories", mark_forced));
    if (o->target) LS_TRY(find_column(l, o->target, "the target", &l->target));
    if (!l->facts[l->target].used)
        return ls_fail(LS_ERR_CONFIG, "%s: the column \"%.60s\" is the target and is dropped",
                       l->file.path, l->file.names[l->target]);
    if (o->classify) l->facts[l->target].forced = true;
    return LS_OK;
}

/* --- the first pass --- */

static void note_odd(column_facts *facts, const ls__csv *csv, const ls__csv_field *field)
{
    if (facts->odd_line) return;
    facts->odd_line = csv->line;
    size_t n = field->nbytes < sizeof facts->odd ? field->nbytes : sizeof facts->odd - 1;
    memcpy(facts->odd, field->text, n);
}

static ls_status count_value(learner *l, int column)
{
    column_facts *facts = &l->facts[column];
    const ls__csv_field *field = &l->file.csv.fields[column];
    double value = 0;
    if (ls__table_missing(field->text, field->nbytes)) {
        facts->missing++;
        if (column == l->target)
            return ls__table_fail(&l->file, column,
                                  "the target is missing: leave the row out, or name another "
                                  "target");
        return LS_OK;
    }
    ls__number_kind kind = LS__NUMBER_NONE;
    if (!facts->forced) kind = ls__table_file_number(&l->file, column, &value);
    if (kind == LS__NUMBER_FINITE) {
        facts->numbers++;
        facts->sum += value;
        return LS_OK;
    }
    note_odd(facts, &l->file.csv, field);
    if (kind == LS__NUMBER_NONE)
        facts->texts++;
    else
        facts->infinite++;
    return LS_OK;
}

/* Infinite values are an error among numbers; among texts ("1e999" of some identifier) they are
 * texts. */
static ls_status decide_kind(learner *l, int column)
{
    column_facts *facts = &l->facts[column];
    facts->is_number = facts->texts == 0;
    if (facts->is_number && facts->infinite)
        return ls_fail(LS_ERR_DATA, "%s:%lld: column %d (\"%.60s\"): %s is not a finite number",
                       l->file.path, (long long)facts->odd_line, column + 1, l->file.names[column],
                       facts->odd);
    if (facts->numbers) facts->mean = facts->sum / (double)facts->numbers;
    return LS_OK;
}

/* A column that is nearly all numbers is probably meant as one. */
static void warn_of_texts(const learner *l, int column)
{
    const column_facts *facts = &l->facts[column];
    if (facts->numbers == 0 || facts->texts == 0 || facts->texts > facts->numbers / 9) return;
    ls__log(LS__LOG_WARN,
            "%s: column \"%.60s\" is taken as categories, since %lld of its %lld values are no "
            "numbers; the first in line %lld (\"%s\")",
            l->file.path, l->file.names[column], (long long)facts->texts,
            (long long)(facts->numbers + facts->texts), (long long)facts->odd_line, facts->odd);
}

static ls_status first_pass(learner *l)
{
    bool more;
    for (;;) {
        LS_TRY(ls__table_file_next(&l->file, &more));
        if (!more) break;
        l->rows++;
        for (int i = 0; i < l->file.nnames; i++)
            if (l->facts[i].used) LS_TRY(count_value(l, i));
    }
    if (l->rows == 0) return ls_fail(LS_ERR_DATA, "%s: no rows behind the header", l->file.path);
    if (l->file.numbers)
        ls__log(
            LS__LOG_WARN,
            "%s: its first line is taken as the names of the columns, and %d of %d are numbers; "
            "without such a line, add one",
            l->file.path, l->file.numbers, l->file.nnames);
    for (int i = 0; i < l->file.nnames; i++) {
        column_facts *facts = &l->facts[i];
        if (!facts->used) continue;
        LS_TRY(decide_kind(l, i));
        warn_of_texts(l, i);
        if (facts->numbers + facts->texts > 0) continue;
        ls__log(LS__LOG_WARN, "%s: column \"%.60s\" has no values: left out", l->file.path,
                l->file.names[i]);
        facts->used = false;
    }
    return LS_OK;
}

/* --- the second pass --- */

static ls_status learn_value(learner *l, int column)
{
    column_facts *facts = &l->facts[column];
    const ls__csv_field *field = &l->file.csv.fields[column];
    int64_t most = column == l->target ? CLASSES_MAX : l->hash_above;
    if (facts->too_many || ls__table_missing(field->text, field->nbytes)) return LS_OK;
    if (facts->is_number) {
        double value = 0;
        (void)ls__table_file_number(&l->file, column, &value); /* it is one */
        facts->squares += (value - facts->mean) * (value - facts->mean);
        return LS_OK;
    }
    LS_TRY(ls__text_set_add(&facts->values, field->text, field->nbytes));
    if (facts->values.count <= most) return LS_OK;
    ls__text_set_close(&facts->values);
    facts->too_many = true;
    return LS_OK;
}

static ls_status second_pass(learner *l)
{
    bool more;
    ls__table_file_rewind(&l->file);
    for (;;) {
        LS_TRY(ls__table_file_next(&l->file, &more));
        if (!more) return LS_OK;
        for (int i = 0; i < l->file.nnames; i++)
            if (l->facts[i].used) LS_TRY(learn_value(l, i));
    }
}

/* --- the result --- */

/* Moves what was learnt of one column. */
static ls_status make_column(learner *l, int column, ls__table_column *out)
{
    column_facts *facts = &l->facts[column];
    *out = (ls__table_column) { .name = ls__strdup(l->file.names[column]), .deviation = 1 };
    if (!out->name) return LS_ERR_MEMORY;
    if (facts->is_number) {
        double deviation = sqrt(facts->squares / (double)facts->numbers);
        out->mean = facts->mean;
        if (deviation > 0) out->deviation = deviation;
        if (!isfinite(out->mean) || !isfinite(out->deviation))
            return ls_fail(LS_ERR_DATA, "%s: column \"%.60s\": its values are too large to add up",
                           l->file.path, out->name);
        return LS_OK;
    }
    out->kind = facts->too_many ? LS__TABLE_HASHED : LS__TABLE_CATEGORY;
    out->buckets = facts->too_many ? l->hash_above : 0;
    out->values = facts->values;
    facts->values = (ls__text_set) { 0 };
    bool numbers = true;
    for (int64_t i = 0; i < out->values.count; i++) {
        double value;
        const char *text = out->values.texts[i];
        numbers = numbers && ls__table_number(text, strlen(text), '.', &value) == LS__NUMBER_FINITE;
    }
    ls__text_set_sort(&out->values, numbers);
    return LS_OK;
}

static ls_status make_target(learner *l, ls__table_column *out)
{
    const column_facts *facts = &l->facts[l->target];
    if (facts->too_many)
        return ls_fail(LS_ERR_DATA,
                       "%s: the target \"%.60s\" has more than %d different texts: no classes; the "
                       "first that is no number stands in line %lld (\"%s\")",
                       l->file.path, l->file.names[l->target], CLASSES_MAX,
                       (long long)facts->odd_line, facts->odd);
    LS_TRY(make_column(l, l->target, out));
    if (out->kind == LS__TABLE_CATEGORY && out->values.count < 2)
        return ls_fail(LS_ERR_DATA, "%s: the target \"%.60s\" has one class only (\"%.40s\")",
                       l->file.path, out->name, out->values.texts[0]);
    return LS_OK;
}

static ls_status make_schema(learner *l, ls_table_schema *schema)
{
    schema->columns = ls__alloc((size_t)l->file.nnames, sizeof *schema->columns);
    if (!schema->columns) return LS_ERR_MEMORY;
    for (int i = 0; i < l->file.nnames; i++) {
        if (!l->facts[i].used || i == l->target) continue;
        schema->ncolumns++;
        LS_TRY(make_column(l, i, &schema->columns[schema->ncolumns - 1]));
    }
    LS_TRY(make_target(l, &schema->target));
    if (schema->ncolumns == 0)
        return ls_fail(LS_ERR_DATA, "%s: no columns besides the target \"%.60s\"", l->file.path,
                       schema->target.name);
    return ls__table_schema_finish(schema);
}

static ls_status learn(learner *l, ls_table_schema **out)
{
    LS_TRY(apply_options(l));
    LS_TRY(first_pass(l));
    LS_TRY(second_pass(l));
    ls_table_schema *schema = ls__alloc(1, sizeof *schema);
    if (!schema) return LS_ERR_MEMORY;
    ls_status status = make_schema(l, schema);
    if (status == LS_OK)
        *out = schema;
    else
        ls_table_schema_destroy(schema);
    return status;
}

ls_status ls_table_schema_learn(const char *path, const ls_table_options *options,
                                ls_table_schema **out)
{
    static const ls_table_options defaults;
    *out = NULL;
    if (!path) return ls_fail(LS_ERR_ARG, "a table needs a path");
    learner l = { .options = options ? options : &defaults };
    LS_TRY(ls__table_file_open(path, &l.file));
    int nnames = l.file.nnames;
    l.facts = ls__alloc((size_t)nnames, sizeof *l.facts);
    ls_status status = l.facts ? learn(&l, out) : LS_ERR_MEMORY;
    for (int i = 0; l.facts && i < nnames; i++) ls__text_set_close(&l.facts[i].values);
    ls__free(l.facts);
    ls__table_file_close(&l.file);
    return status;
}
