/* A table in memory: what its text meant under a schema, four bytes a value. The file is read twice, to
 * count the rows and to fill exactly the memory that they need. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "data/table_internal.h"

typedef struct table_dataset {
    int64_t rows;
    int nnumbers, ncategories;
    bool has_target, classes;
    float *numbers;      /* (rows, nnumbers) standardized; NaN = missing */
    int32_t *categories; /* (rows, ncategories) */
    int32_t *targets;    /* (rows) classes, or the bits of floats */
    ls__text_set names;  /* of the classes */
} table_dataset;

typedef struct filler {
    ls__table_file file;
    const ls_table_schema *schema;
    table_dataset *table;
    int *places; /* (ncolumns) of the schema's columns in the file */
    int target;  /* -1 = the file has none */
} filler;

/* --- filling --- */

static ls_status find_columns(filler *f)
{
    const ls_table_schema *s = f->schema;
    f->places = ls__alloc((size_t)s->ncolumns, sizeof *f->places);
    if (!f->places) return LS_ERR_MEMORY;
    for (int i = 0; i < s->ncolumns; i++) {
        f->places[i] = ls__table_file_find(&f->file, s->columns[i].name);
        if (f->places[i] < 0)
            return ls_fail(LS_ERR_DATA, "%s: the column \"%.60s\" is missing", f->file.path,
                           s->columns[i].name);
    }
    f->target = ls__table_file_find(&f->file, s->target.name);
    return LS_OK;
}

static ls_status read_number(const filler *f, const ls__table_column *c, int place, float *out)
{
    const ls__csv_field *field = &f->file.csv.fields[place];
    double value;
    if (ls__table_file_number(&f->file, place, &value) != LS__NUMBER_FINITE)
        return ls__table_fail(&f->file, place, "\"%.*s\" is not a finite number",
                              (int)(field->nbytes < 40 ? field->nbytes : 40), field->text);
    *out = (float)((value - c->mean) / c->deviation);
    if (!isfinite(*out))
        return ls__table_fail(&f->file, place, "%.*s is beyond what its standardized value can be",
                              (int)(field->nbytes < 40 ? field->nbytes : 40), field->text);
    return LS_OK;
}

static int32_t category_of(const ls__table_column *c, const ls__csv_field *field, bool missing)
{
    if (missing) return 0;
    if (c->kind == LS__TABLE_HASHED)
        return 1 + (int32_t)ls__table_hash(field->text, field->nbytes, c->buckets);
    return 1 + (int32_t)ls__text_set_find(&c->values, field->text, field->nbytes);
}

static ls_status read_target(const filler *f, int64_t row)
{
    const ls__table_column *c = &f->schema->target;
    const ls__csv_field *field = &f->file.csv.fields[f->target];
    int32_t *out = &f->table->targets[row];
    if (ls__table_missing(field->text, field->nbytes))
        return ls__table_fail(&f->file, f->target, "the target is missing: leave the row out");
    if (c->kind == LS__TABLE_NUMBER) {
        float value;
        LS_TRY(read_number(f, c, f->target, &value));
        memcpy(out, &value, sizeof value);
        return LS_OK;
    }
    *out = (int32_t)ls__text_set_find(&c->values, field->text, field->nbytes);
    if (*out < 0)
        return ls__table_fail(&f->file, f->target, "\"%.*s\" is none of the %lld classes",
                              (int)(field->nbytes < 40 ? field->nbytes : 40), field->text,
                              (long long)c->values.count);
    return LS_OK;
}

static ls_status read_row(const filler *f, int64_t row)
{
    table_dataset *t = f->table;
    float *numbers = t->numbers + row * t->nnumbers;
    int32_t *categories = t->categories + row * t->ncategories;
    for (int i = 0; i < f->schema->ncolumns; i++) {
        const ls__table_column *c = &f->schema->columns[i];
        const ls__csv_field *field = &f->file.csv.fields[f->places[i]];
        bool missing = ls__table_missing(field->text, field->nbytes);
        if (c->kind != LS__TABLE_NUMBER)
            *categories++ = category_of(c, field, missing);
        else if (missing)
            *numbers++ = NAN;
        else
            LS_TRY(read_number(f, c, f->places[i], numbers++));
    }
    return f->target >= 0 ? read_target(f, row) : LS_OK;
}

static ls_status count_rows(filler *f)
{
    bool more;
    for (;; f->table->rows++) {
        LS_TRY(ls__table_file_next(&f->file, &more));
        if (!more) break;
    }
    if (f->table->rows == 0)
        return ls_fail(LS_ERR_DATA, "%s: no rows behind the header", f->file.path);
    ls__table_file_rewind(&f->file);
    return LS_OK;
}

static ls_status make_arrays(filler *f)
{
    table_dataset *t = f->table;
    t->nnumbers = f->schema->nnumbers;
    t->ncategories = f->schema->ncategories;
    t->has_target = f->target >= 0;
    t->classes = f->schema->target.kind == LS__TABLE_CATEGORY;
    t->numbers = ls__alloc((size_t)t->rows, (size_t)t->nnumbers * sizeof *t->numbers);
    t->categories = ls__alloc((size_t)t->rows, (size_t)t->ncategories * sizeof *t->categories);
    t->targets = ls__alloc(t->has_target ? (size_t)t->rows : 0, sizeof *t->targets);
    if (!t->numbers || !t->categories || !t->targets) return LS_ERR_MEMORY;
    for (int64_t i = 0; t->classes && i < f->schema->target.values.count; i++) {
        const char *name = f->schema->target.values.texts[i];
        LS_TRY(ls__text_set_add(&t->names, name, strlen(name)));
    }
    return LS_OK;
}

static ls_status fill(filler *f)
{
    LS_TRY(find_columns(f));
    LS_TRY(count_rows(f));
    LS_TRY(make_arrays(f));
    bool more;
    for (int64_t row = 0;; row++) {
        LS_TRY(ls__table_file_next(&f->file, &more));
        if (!more) return LS_OK;
        LS_TRY(read_row(f, row));
    }
}

/* --- the dataset --- */

static int64_t table_length(void *self)
{
    return ((const table_dataset *)self)->rows;
}

static ls_status table_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)rng;
    const table_dataset *t = self;
    if (t->nnumbers) {
        const float *from = t->numbers + index * t->nnumbers;
        float *to = *out++, *flags = to + t->nnumbers;
        for (int i = 0; i < t->nnumbers; i++) {
            bool missing = isnan(from[i]);
            to[i] = missing ? 0 : from[i];
            flags[i] = missing;
        }
    }
    if (t->ncategories)
        memcpy(*out++, t->categories + index * t->ncategories,
               (size_t)t->ncategories * sizeof *t->categories);
    if (t->has_target) memcpy(*out, &t->targets[index], sizeof *t->targets);
    return LS_OK;
}

static const char *table_class(const void *self, int64_t i)
{
    return ((const table_dataset *)self)->names.texts[i];
}

static void table_destroy(void *self)
{
    table_dataset *t = self;
    ls__free(t->numbers);
    ls__free(t->categories);
    ls__free(t->targets);
    ls__text_set_close(&t->names);
    ls__free(t);
}

static const ls_dataset_ops table_ops = {
    .length = table_length,
    .read = table_read,
    .destroy = table_destroy,
};

static ls_status make_dataset(table_dataset *t, const char *path, ls_dataset **out)
{
    ls_field fields[3];
    int n = 0;
    if (t->nnumbers)
        fields[n++] = (ls_field) { "numbers", LS_DTYPE_F32, 1, { 2 * (int64_t)t->nnumbers } };
    if (t->ncategories)
        fields[n++] = (ls_field) { "categories", LS_DTYPE_I32, 1, { t->ncategories } };
    if (t->has_target)
        fields[n++] = (ls_field) { "target", t->classes ? LS_DTYPE_I32 : LS_DTYPE_F32, 0, { 0 } };
    LS_TRY(ls__dataset_create(&table_ops, t, fields, n, path, out));
    (*out)->in_memory = true;
    (*out)->nclasses = t->names.count;
    (*out)->class_name = table_class;
    return LS_OK;
}

ls_status ls_dataset_table(const char *path, const ls_table_schema *schema, ls_dataset **out)
{
    *out = NULL;
    if (!path || !schema) return ls_fail(LS_ERR_ARG, "a table needs a path and a schema");
    filler f = { .schema = schema };
    LS_TRY(ls__table_file_open(path, &f.file));
    ls_status status = LS_ERR_MEMORY;
    f.table = ls__alloc(1, sizeof *f.table);
    if (f.table) status = fill(&f);
    if (status == LS_OK) status = make_dataset(f.table, path, out);
    if (status != LS_OK && f.table) table_destroy(f.table);
    ls__free(f.places);
    ls__table_file_close(&f.file);
    return status;
}
