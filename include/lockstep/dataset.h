/* Dataset: samples by index. A sample has named fields of fixed type and shape. Images are (C,H,W).
 */
#ifndef LOCKSTEP_DATASET_H
#define LOCKSTEP_DATASET_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_dataset ls_dataset;

typedef struct ls_field {
    const char *name;
    ls_dtype type;
    int rank; /* of one sample; 0 = a scalar */
    int64_t shape[LS_MAX_RANK];
} ls_field;

/* A dataset of one's own. read is called by several threads at once and fills one buffer per field;
 * rng is a function of (seed, epoch, index) when training and NULL in evaluation, so that
 * augmentation depends on neither rank nor thread. */
typedef struct ls_dataset_ops {
    int64_t (*length)(void *self);
    ls_status (*read)(void *self, int64_t index, ls_rng *rng, void *const *out);
    void (*destroy)(void *self); /* optional */
} ls_dataset_ops;

LS_NODISCARD ls_status ls_dataset_create(const ls_dataset_ops *ops, void *self,
                                         const ls_field *fields, int nfields, ls_dataset **out);
void ls_dataset_destroy(ls_dataset *dataset);

int64_t ls_dataset_length(const ls_dataset *dataset);
const ls_field *ls_dataset_fields(const ls_dataset *dataset, int *nfields);
/* Reads one sample; thread safe. The error names the dataset and the index. */
LS_NODISCARD ls_status ls_dataset_read(const ls_dataset *dataset, int64_t index, ls_rng *rng,
                                       void *const *out);

/* Cuts whole into two by a seeded shuffle: part holds round(fraction * length) samples, rest the
 * others. Both borrow whole. */
LS_NODISCARD ls_status ls_dataset_split(ls_dataset *whole, double fraction, uint64_t seed,
                                        ls_dataset **rest, ls_dataset **part);

typedef struct ls_image_options {
    int crop_padding; /* training only: pad by so many pixels on each side with zeros, then crop at
                         random; 0 = off */
    bool flip_horizontal; /* training only: mirror every second sample at random */
} ls_image_options;

/* IDX files (.gz too), as MNIST comes: fields "image" (1,H,W) u8 (or as the file says) and "label"
 * () i32. */
LS_NODISCARD ls_status ls_dataset_idx(const char *images, const char *labels,
                                      const ls_image_options *options, ls_dataset **out);

/* NumPy .npy files with the same first dimension: fields "x" and "y", of the files' types (f8 is
 * read as f32, i8 stays i64). y may be NULL. */
LS_NODISCARD ls_status ls_dataset_npy(const char *x, const char *y, ls_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
