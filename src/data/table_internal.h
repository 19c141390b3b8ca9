/* Tables inside: the file as it is read record by record, and what was learnt of its columns. */
#ifndef LS_TABLE_INTERNAL_H
#define LS_TABLE_INTERNAL_H

#include <lockstep/dataset.h>

#include "base/json.h"
#include "data/csv.h"
#include "data/data_file.h"
#include "data/table_value.h"
#include "data/text_set.h"

/* --- the file --- */

typedef struct ls__table_file {
    const char *path; /* borrowed */
    ls__data_file file;
    ls__csv csv;
    ls__text_set header; /* the names, each at the number of its column */
    char **names;        /* (nnames) the header's */
    int nnames;
    int numbers; /* names that are numbers */
    const char *body; /* behind the header */
    int64_t body_line;
    size_t dropped; /* bytes whose pages were handed back */
} ls__table_file;

/* Maps the file and reads its header. */
ls_status ls__table_file_open(const char *path, ls__table_file *out);
void ls__table_file_close(ls__table_file *file);
/* To the first row. */
void ls__table_file_rewind(ls__table_file *file);
/* The next row, in file->csv; it has as many fields as the header. */
ls_status ls__table_file_next(ls__table_file *file, bool *more);
/* The column of this name; -1 if there is none. */
int ls__table_file_find(const ls__table_file *file, const char *name);
/* Fails with LS_ERR_DATA and "data.csv:7: column 3 ("age"): ...". */
ls_status ls__table_fail(const ls__table_file *file, int column, const char *format, ...)
    LS_PRINTF(3, 4);
/* What the field in a column says as a number. */
ls__number_kind ls__table_file_number(const ls__table_file *file, int column, double *value);

/* --- the schema --- */

typedef enum ls__table_kind {
    LS__TABLE_NUMBER,   /* (x - mean) / deviation */
    LS__TABLE_CATEGORY, /* 1 + index in values, 0 = missing or unknown; of a target: the index */
    LS__TABLE_HASHED,   /* 1 + hash modulo buckets, 0 = missing */
} ls__table_kind;

typedef struct ls__table_column {
    char *name;
    ls__table_kind kind;
    double mean, deviation;
    ls__text_set values;
    int64_t buckets;
} ls__table_column;

struct ls_table_schema {
    ls__table_column *columns; /* (ncolumns) all but the target, in the file's order */
    int ncolumns;
    ls__table_column target;
    int nnumbers, ncategories;
    int64_t *sizes; /* (ncategories) */
};

/* Counts columns by kind, when all are there. */
ls_status ls__table_schema_finish(ls_table_schema *schema);
void ls__table_column_close(ls__table_column *column);
int64_t ls__table_hash(const char *text, size_t nbytes, int64_t buckets);
json_t *ls__table_schema_json(const ls_table_schema *schema); /* NULL = no memory */
/* Errors begin with path. */
ls_status ls__table_schema_parse(const json_t *document, const char *path, ls_table_schema **out);

#endif
