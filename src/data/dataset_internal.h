/* What a dataset is made of, for the rooms that make and read them. */
#ifndef LS_DATASET_INTERNAL_H
#define LS_DATASET_INTERNAL_H

#include <lockstep/dataset.h>

enum { LS__DATASET_FIELDS_MAX = 32 };

/* Where a view's sample lies in the dataset that it is a view of. */
typedef int64_t ls__dataset_map_fn(const void *self, int64_t index);

struct ls_dataset {
    ls_dataset_ops ops;
    void *self;
    char *name; /* in errors: "train-images-idx3-ubyte", "the dataset (image, label)" */
    int64_t length;
    ls_field *fields; /* (nfields) copies, names too */
    int nfields;
    const ls_dataset *whole; /* of a view, which only maps indices; else NULL */
    ls__dataset_map_fn *map;
    /* Optional, for samples that lie in memory: begins to fetch one that is read soon. */
    void (*prefetch)(const void *self, int64_t index);
    bool in_memory;   /* a read copies memory and never waits: not worth a thread */
    int64_t nclasses; /* of its labels; 0 = not known */
    const char *(*class_name)(const void *self, int64_t i); /* where nclasses > 0 */
};

/* As ls_dataset_create; name is for errors, NULL = made of the fields' names. */
ls_status ls__dataset_create(const ls_dataset_ops *ops, void *self, const ls_field *fields,
                             int nfields, const char *name, ls_dataset **out);
/* length samples of whole, where map says; borrows whole. self is freed by ls__free with the
 * view. */
ls_status ls__dataset_view(const ls_dataset *whole, ls__dataset_map_fn *map, void *self,
                           int64_t length, ls_dataset **out);
/* The dataset that is no view and the index there. */
const ls_dataset *ls__dataset_resolve(const ls_dataset *dataset, int64_t *index);

int64_t ls__field_count(const ls_field *field); /* elements of one sample */
size_t ls__field_nbytes(const ls_field *field); /* bytes of one sample */

#endif
