/* Datasets: a vtable behind checks. What is fixed (length, fields) is asked for once and checked
 * there, so that a read costs one indirect call more than the owner's own. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/dataset_internal.h"

enum { NAME_MAX_BYTES = 256 };
static const int64_t SAMPLE_BYTES_MAX = (int64_t)1 << 40;

int64_t ls__field_count(const ls_field *field)
{
    int64_t count = 1;
    for (int i = 0; i < field->rank; i++) count *= field->shape[i];
    return count;
}

size_t ls__field_nbytes(const ls_field *field)
{
    return (size_t)ls__field_count(field) * ls_dtype_size(field->type);
}

static ls_status check_field(const ls_field *fields, int i)
{
    const ls_field *field = &fields[i];
    if (!field->name || !field->name[0])
        return ls_fail(LS_ERR_ARG, "field %d of the dataset has no name", i);
    for (int j = 0; j < i; j++)
        if (strcmp(fields[j].name, field->name) == 0)
            return ls_fail(LS_ERR_ARG, "two fields of the dataset are named \"%s\"", field->name);
    if ((int)field->type < LS_DTYPE_F32 || field->type > LS_DTYPE_U64)
        return ls_fail(LS_ERR_ARG, "field \"%s\": %d is not an element type", field->name,
                       (int)field->type);
    if (field->rank < 0 || field->rank >= LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "field \"%s\": a sample has %d dimensions; at most %d",
                       field->name, field->rank, LS_MAX_RANK - 1);
    int64_t nbytes = (int64_t)ls_dtype_size(field->type);
    for (int d = 0; d < field->rank; d++) {
        if (field->shape[d] < 1)
            return ls_fail(LS_ERR_SHAPE, "field \"%s\": dimension %d is %lld; at least 1",
                           field->name, d, (long long)field->shape[d]);
        if (__builtin_mul_overflow(nbytes, field->shape[d], &nbytes) || nbytes > SAMPLE_BYTES_MAX)
            return ls_fail(LS_ERR_SHAPE, "field \"%s\": one sample has more than 2^40 bytes",
                           field->name);
    }
    return LS_OK;
}

static ls_status check(const ls_dataset_ops *ops, const ls_field *fields, int nfields)
{
    if (!ops || !ops->length || !ops->read)
        return ls_fail(LS_ERR_ARG, "a dataset needs the functions length and read");
    if (!fields || nfields < 1 || nfields > LS__DATASET_FIELDS_MAX)
        return ls_fail(LS_ERR_ARG, "a dataset has 1 to %d fields, not %d", LS__DATASET_FIELDS_MAX,
                       nfields);
    for (int i = 0; i < nfields; i++) LS_TRY(check_field(fields, i));
    return LS_OK;
}

static ls_status copy_fields(ls_dataset *d, const ls_field *fields, int nfields)
{
    d->fields = ls__alloc((size_t)nfields, sizeof *fields);
    if (!d->fields) return LS_ERR_MEMORY;
    for (int i = 0; i < nfields; i++) {
        d->fields[i] = fields[i];
        d->fields[i].name = ls__strdup(fields[i].name);
        if (!d->fields[i].name) return LS_ERR_MEMORY;
        d->nfields = i + 1;
    }
    return LS_OK;
}

/* "the dataset (image, label)" */
static char *name_of_fields(const ls_field *fields, int nfields)
{
    char names[NAME_MAX_BYTES] = "";
    size_t used = 0;
    for (int i = 0; i < nfields && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 fields[i].name);
    return ls__format("the dataset (%s)", names);
}

static void free_shell(ls_dataset *d)
{
    for (int i = 0; i < d->nfields; i++) ls__free((void *)d->fields[i].name);
    ls__free(d->fields);
    ls__free(d->name);
    ls__free(d);
}

/* Takes over name. */
static ls_status create(const ls_dataset_ops *ops, void *self, int64_t length,
                        const ls_field *fields, int nfields, char *name, ls_dataset **out)
{
    ls_status status = LS_ERR_MEMORY;
    ls_dataset *d = name ? ls__alloc(1, sizeof *d) : NULL;
    if (!d) {
        ls__free(name);
        return status;
    }
    *d = (ls_dataset) { .ops = *ops, .self = self, .name = name, .length = length };
    status = copy_fields(d, fields, nfields);
    if (status == LS_OK)
        *out = d;
    else
        free_shell(d);
    return status;
}

ls_status ls__dataset_create(const ls_dataset_ops *ops, void *self, const ls_field *fields,
                             int nfields, const char *name, ls_dataset **out)
{
    *out = NULL;
    LS_TRY(check(ops, fields, nfields));
    int64_t length = ops->length(self);
    if (length < 0) return ls_fail(LS_ERR_ARG, "the dataset's length is %lld", (long long)length);
    return create(ops, self, length, fields, nfields,
                  name ? ls__strdup(name) : name_of_fields(fields, nfields), out);
}

ls_status ls_dataset_create(const ls_dataset_ops *ops, void *self, const ls_field *fields,
                            int nfields, ls_dataset **out)
{
    return ls__dataset_create(ops, self, fields, nfields, NULL, out);
}

ls_status ls__dataset_view(const ls_dataset *whole, ls__dataset_map_fn *map, void *self,
                           int64_t length, ls_dataset **out)
{
    static const ls_dataset_ops ops = { .destroy = ls__free };
    *out = NULL;
    LS_TRY(create(&ops, self, length, whole->fields, whole->nfields, ls__strdup(whole->name), out));
    (*out)->whole = whole;
    (*out)->map = map;
    (*out)->in_memory = whole->in_memory;
    return LS_OK;
}

const ls_dataset *ls__dataset_resolve(const ls_dataset *dataset, int64_t *index)
{
    for (; dataset->whole; dataset = dataset->whole) *index = dataset->map(dataset->self, *index);
    return dataset;
}

void ls_dataset_destroy(ls_dataset *dataset)
{
    if (!dataset) return;
    if (dataset->ops.destroy) dataset->ops.destroy(dataset->self);
    free_shell(dataset);
}

int64_t ls_dataset_length(const ls_dataset *dataset)
{
    return dataset->length;
}

const ls_field *ls_dataset_fields(const ls_dataset *dataset, int *nfields)
{
    if (nfields) *nfields = dataset->nfields;
    return dataset->fields;
}

static const ls_dataset *root_of(const ls_dataset *dataset)
{
    while (dataset->whole) dataset = dataset->whole;
    return dataset;
}

int64_t ls_dataset_classes(const ls_dataset *dataset)
{
    return root_of(dataset)->nclasses;
}

const char *ls_dataset_class(const ls_dataset *dataset, int64_t i)
{
    const ls_dataset *d = root_of(dataset);
    return i >= 0 && i < d->nclasses ? d->class_name(d->self, i) : NULL;
}

ls_status ls_dataset_read(const ls_dataset *dataset, int64_t index, ls_rng *rng, void *const *out)
{
    if (index < 0 || index >= dataset->length)
        return ls_fail(LS_ERR_ARG, "%s: sample %lld is not in [0, %lld)", dataset->name,
                       (long long)index, (long long)dataset->length);
    const ls_dataset *d = ls__dataset_resolve(dataset, &index);
    ls_status status = d->ops.read(d->self, index, rng, out);
    if (status == LS_OK) return LS_OK;
    return ls_fail(status, "sample %lld of %s: %s", (long long)index, d->name, ls_error_text());
}
