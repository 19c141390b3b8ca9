/* One or two .npy files as a dataset. They stay mapped: memory is shared by all ranks, and opening
 * takes no longer for a large file. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/data_file.h"
#include "data/dataset_internal.h"
#include "data/npy.h"

typedef struct npy_column {
    ls__data_file file;
    ls__npy array;
    int64_t count; /* elements of a sample */
} npy_column;

typedef struct npy_dataset {
    npy_column columns[2]; /* x, y */
    int ncolumns;
} npy_dataset;

static ls_status open_column(const char *path, const char *name, npy_column *column,
                             ls_field *field)
{
    LS_TRY(ls__data_file_open(path, &column->file));
    LS_TRY(ls__npy_parse(column->file.bytes, column->file.nbytes, path, &column->array));
    const ls__npy *array = &column->array;
    *field = (ls_field) { .name = name, .type = array->stored->type, .rank = array->rank - 1 };
    memcpy(field->shape, array->shape + 1, (size_t)field->rank * sizeof *field->shape);
    column->count = ls__field_count(field);
    return LS_OK;
}

static int64_t npy_length(void *self)
{
    return ((const npy_dataset *)self)->columns[0].array.shape[0];
}

static ls_status npy_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)rng;
    const npy_dataset *d = self;
    for (int i = 0; i < d->ncolumns; i++) {
        const npy_column *column = &d->columns[i];
        const ls__stored *stored = column->array.stored;
        stored->convert(out[i], column->array.values + index * column->count * stored->size,
                        column->count);
    }
    return LS_OK;
}

static void npy_destroy(void *self)
{
    npy_dataset *d = self;
    ls__data_file_close(&d->columns[0].file);
    ls__data_file_close(&d->columns[1].file);
    ls__free(d);
}

static const ls_dataset_ops npy_ops = {
    .length = npy_length,
    .read = npy_read,
    .destroy = npy_destroy,
};

static ls_status check_lengths(const npy_dataset *d, const char *x, const char *y)
{
    int64_t nx = d->columns[0].array.shape[0], ny = d->columns[1].array.shape[0];
    if (nx != ny)
        return ls_fail(LS_ERR_DATA, "%s holds %lld samples, but %s %lld", x, (long long)nx, y,
                       (long long)ny);
    return LS_OK;
}

ls_status ls_dataset_npy(const char *x, const char *y, ls_dataset **out)
{
    *out = NULL;
    if (!x) return ls_fail(LS_ERR_ARG, "a .npy dataset needs the path of x");
    npy_dataset *d = ls__alloc(1, sizeof *d);
    if (!d) return LS_ERR_MEMORY;
    d->ncolumns = y ? 2 : 1;
    ls_field fields[2];
    ls_status status;
    LS_TRY_GOTO(open_column(x, "x", &d->columns[0], &fields[0]), status, failed);
    if (y) {
        LS_TRY_GOTO(open_column(y, "y", &d->columns[1], &fields[1]), status, failed);
        LS_TRY_GOTO(check_lengths(d, x, y), status, failed);
    }
    LS_TRY_GOTO(ls__dataset_create(&npy_ops, d, fields, d->ncolumns, x, out), status, failed);
    (*out)->in_memory = d->columns[0].file.in_memory;
    return LS_OK;
failed:
    npy_destroy(d);
    return status;
}
