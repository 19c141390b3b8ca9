/* The schema: what it answers, and its file. The file is JSON in which a person can read what the model
 * was given. */
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/table_internal.h"

#define SCHEMA "lockstep.table/1"

static const size_t FILE_BYTES_MAX = (size_t)256 << 20;
enum { BUCKETS_MAX = 1 << 24 };

int64_t ls__table_hash(const char *text, size_t nbytes, int64_t buckets)
{
    return (int64_t)(XXH3_64bits(text, nbytes) % (uint64_t)buckets);
}

ls_status ls__table_schema_finish(ls_table_schema *schema)
{
    schema->sizes = ls__alloc((size_t)schema->ncolumns, sizeof *schema->sizes);
    if (!schema->sizes) return LS_ERR_MEMORY;
    for (int i = 0; i < schema->ncolumns; i++) {
        const ls__table_column *c = &schema->columns[i];
        if (c->kind == LS__TABLE_NUMBER)
            schema->nnumbers++;
        else
            schema->sizes[schema->ncategories++] =
                1 + (c->kind == LS__TABLE_HASHED ? c->buckets : c->values.count);
    }
    return LS_OK;
}

void ls__table_column_close(ls__table_column *column)
{
    ls__free(column->name);
    ls__text_set_close(&column->values);
    *column = (ls__table_column) { 0 };
}

void ls_table_schema_destroy(ls_table_schema *schema)
{
    if (!schema) return;
    for (int i = 0; i < schema->ncolumns; i++) ls__table_column_close(&schema->columns[i]);
    ls__table_column_close(&schema->target);
    ls__free(schema->columns);
    ls__free(schema->sizes);
    ls__free(schema);
}

int ls_table_numbers(const ls_table_schema *schema)
{
    return schema->nnumbers;
}

int ls_table_categories(const ls_table_schema *schema, const int64_t **sizes)
{
    if (sizes) *sizes = schema->sizes;
    return schema->ncategories;
}

const char *ls_table_target(const ls_table_schema *schema)
{
    return schema->target.name;
}

int64_t ls_table_classes(const ls_table_schema *schema)
{
    return schema->target.kind == LS__TABLE_CATEGORY ? schema->target.values.count : 0;
}

const char *ls_table_class(const ls_table_schema *schema, int64_t i)
{
    return i >= 0 && i < ls_table_classes(schema) ? schema->target.values.texts[i] : NULL;
}

void ls_table_target_scale(const ls_table_schema *schema, double *mean, double *deviation)
{
    bool number = schema->target.kind == LS__TABLE_NUMBER;
    *mean = number ? schema->target.mean : 0;
    *deviation = number ? schema->target.deviation : 1;
}

/* --- writing --- */

static json_t *column_json(const ls__table_column *c)
{
    if (c->kind == LS__TABLE_NUMBER)
        return json_pack("{s:s, s:s, s:f, s:f}", "name", c->name, "kind", "number", "mean", c->mean,
                         "deviation", c->deviation);
    if (c->kind == LS__TABLE_HASHED)
        return json_pack("{s:s, s:s, s:I}", "name", c->name, "kind", "hashed", "buckets",
                         (json_int_t)c->buckets);
    json_t *values = json_array();
    for (int64_t i = 0; i < c->values.count; i++)
        if (json_array_append_new(values, json_string(c->values.texts[i])) != 0) {
            json_decref(values);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:o}", "name", c->name, "kind", "category", "values", values);
}

json_t *ls__table_schema_json(const ls_table_schema *schema)
{
    json_t *document = json_pack("{s:s}", "schema", SCHEMA), *columns = json_array();
    bool good = json_object_set_new(document, "columns", columns) == 0;
    for (int i = 0; good && i < schema->ncolumns; i++)
        good = json_array_append_new(columns, column_json(&schema->columns[i])) == 0;
    good = good && json_object_set_new(document, "target", column_json(&schema->target)) == 0;
    if (good) return document;
    json_decref(document);
    return NULL;
}

ls_status ls_table_schema_save(const ls_table_schema *schema, const char *path)
{
    json_t *document = ls__table_schema_json(schema);
    if (!document) return ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    ls_status status = ls__json_write(&ls__fs_posix, path, document);
    json_decref(document);
    return status;
}

/* --- reading --- */

static ls_status parse_values(const json_t *values, const char *path, ls__table_column *out)
{
    size_t i;
    const json_t *value;
    json_array_foreach(values, i, value)
    {
        const char *text = json_string_value(value);
        if (!text || ls__table_missing(text, strlen(text)) ||
            ls__text_set_find(&out->values, text, strlen(text)) >= 0)
            return ls_fail(LS_ERR_DATA, "%s: value %zu of column \"%.60s\" is no text of its own",
                           path, i, out->name);
        LS_TRY(ls__text_set_add(&out->values, text, strlen(text)));
    }
    if (out->values.count == 0)
        return ls_fail(LS_ERR_DATA, "%s: column \"%.60s\" has no values", path, out->name);
    return LS_OK;
}

static ls_status parse_column(const json_t *column, const char *path, ls__table_column *out)
{
    const char *name = json_string_value(json_object_get(column, "name"));
    const char *kind = json_string_value(json_object_get(column, "kind"));
    if (!name || !name[0] || !kind)
        return ls_fail(LS_ERR_DATA, "%s: a column lacks \"name\" or \"kind\"", path);
    *out = (ls__table_column) { .name = ls__strdup(name), .deviation = 1 };
    if (!out->name) return LS_ERR_MEMORY;
    if (strcmp(kind, "number") == 0) {
        out->mean = json_number_value(json_object_get(column, "mean"));
        out->deviation = json_number_value(json_object_get(column, "deviation"));
        if (out->deviation > 0 && isfinite(out->deviation) && isfinite(out->mean)) return LS_OK;
        return ls_fail(LS_ERR_DATA, "%s: column \"%.60s\": its mean or deviation is wrong", path,
                       name);
    }
    if (strcmp(kind, "hashed") == 0) {
        out->kind = LS__TABLE_HASHED;
        out->buckets = json_integer_value(json_object_get(column, "buckets"));
        if (out->buckets >= 1 && out->buckets <= BUCKETS_MAX) return LS_OK;
        return ls_fail(LS_ERR_DATA, "%s: column \"%.60s\": its buckets are wrong", path, name);
    }
    out->kind = LS__TABLE_CATEGORY;
    if (strcmp(kind, "category") == 0)
        return parse_values(json_object_get(column, "values"), path, out);
    return ls_fail(LS_ERR_DATA, "%s: column \"%.60s\": \"%.40s\" is no kind", path, name, kind);
}

/* The columns, then the target; no name twice. */
static ls_status parse_columns(const json_t *document, const char *path, ls__text_set *names,
                               ls_table_schema *s)
{
    const json_t *columns = json_object_get(document, "columns");
    size_t count = json_array_size(columns);
    if (count < 1 || count > LS__CSV_FIELDS_MAX)
        return ls_fail(LS_ERR_DATA, "%s: %zu columns; 1 to %d are read", path, count,
                       LS__CSV_FIELDS_MAX);
    s->columns = ls__alloc(count, sizeof *s->columns);
    if (!s->columns) return LS_ERR_MEMORY;
    for (size_t i = 0; i <= count; i++) {
        ls__table_column *c = i < count ? &s->columns[i] : &s->target;
        if (i < count) s->ncolumns++;
        LS_TRY(parse_column(
            i < count ? json_array_get(columns, i) : json_object_get(document, "target"), path, c));
        LS_TRY(ls__text_set_add(names, c->name, strlen(c->name)));
        if (names->count == (int64_t)i)
            return ls_fail(LS_ERR_DATA, "%s: column \"%.60s\" stands twice", path, c->name);
    }
    if (s->target.kind == LS__TABLE_HASHED)
        return ls_fail(LS_ERR_DATA, "%s: the target \"%.60s\" is hashed", path, s->target.name);
    return LS_OK;
}

static ls_status parse(const json_t *document, const char *path, ls_table_schema *s)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    if (!schema || strcmp(schema, SCHEMA) != 0)
        return ls_fail(LS_ERR_DATA, "%s: not a table's schema: its \"schema\" is not " SCHEMA,
                       path);
    ls__text_set names = { 0 };
    ls_status status = parse_columns(document, path, &names, s);
    ls__text_set_close(&names);
    return status == LS_OK ? ls__table_schema_finish(s) : status;
}

ls_status ls__table_schema_parse(const json_t *document, const char *path, ls_table_schema **out)
{
    *out = NULL;
    ls_table_schema *schema = ls__alloc(1, sizeof *schema);
    if (!schema) return LS_ERR_MEMORY;
    ls_status status = parse(document, path, schema);
    if (status == LS_OK)
        *out = schema;
    else
        ls_table_schema_destroy(schema);
    return status;
}

ls_status ls_table_schema_load(const char *path, ls_table_schema **out)
{
    *out = NULL;
    json_t *document;
    LS_TRY(ls__json_read(path, FILE_BYTES_MAX, &document));
    ls_status status = ls__table_schema_parse(document, path, out);
    json_decref(document);
    return status;
}
