/* What a dataset is made of, for the rooms that make and read them. */
#ifndef LS_DATASET_INTERNAL_H
#define LS_DATASET_INTERNAL_H

#include <lockstep/dataset.h>

enum { LS__DATASET_FIELDS_MAX = 32 };

struct ls_dataset {
    ls_dataset_ops ops;
    void *self;
    char *name; /* in errors: "train-images-idx3-ubyte", "the dataset (image, label)" */
    int64_t length;
    ls_field *fields; /* (nfields) copies, names too */
    int nfields;
    bool is_view;   /* reads another dataset, whose errors name it and its sample already */
    bool in_memory; /* a read copies memory and never waits: not worth a thread */
};

/* As ls_dataset_create; name NULL = made of the fields' names. */
ls_status ls__dataset_create(const ls_dataset_ops *ops, void *self, const ls_field *fields,
                             int nfields, const char *name, ls_dataset **out);

int64_t ls__field_count(const ls_field *field); /* elements of one sample */
size_t ls__field_nbytes(const ls_field *field); /* bytes of one sample */

#endif
