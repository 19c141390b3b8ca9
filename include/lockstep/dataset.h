/* Dataset: samples by index. A sample has named fields of fixed type and shape. Images are (C,H,W).
 *
 * Who makes a dataset destroys it, after every run, model and split that uses it. Failures to open a
 * data file are LS_ERR_DATA and name the path; nothing here is collective. */
#ifndef LOCKSTEP_DATASET_H
#define LOCKSTEP_DATASET_H

#include <lockstep/base.h>
#include <lockstep/tokenizer.h>

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

/* A dataset of one's own. length is asked once. read is called by several threads at once and fills
 * one buffer per field, each aligned to its element; a failure should end with ls_fail, whose text
 * gets the dataset and the index in front. rng is a function of (seed, epoch, index) when training
 * and NULL in evaluation, so that augmentation depends on neither rank nor thread. */
typedef struct ls_dataset_ops {
    int64_t (*length)(void *self);
    ls_status (*read)(void *self, int64_t index, ls_rng *rng, void *const *out);
    void (*destroy)(void *self); /* optional: with the dataset */
} ls_dataset_ops;

/* ops, fields and their names are copied; self is passed on. A sample's field has at most
 * LS_MAX_RANK - 1 dimensions. On failure *out is NULL and self is still the caller's. */
LS_NODISCARD ls_status ls_dataset_create(const ls_dataset_ops *ops, void *self,
                                         const ls_field *fields, int nfields, ls_dataset **out);
void ls_dataset_destroy(ls_dataset *dataset);

int64_t ls_dataset_length(const ls_dataset *dataset);
const ls_field *ls_dataset_fields(const ls_dataset *dataset, int *nfields);
/* Reads one sample; thread safe. The error names the dataset and the index. */
LS_NODISCARD ls_status ls_dataset_read(const ls_dataset *dataset, int64_t index, ls_rng *rng,
                                       void *const *out);

/* What the labels mean, where the data say so (folders of images, tables): how many classes there
 * are, 0 if nobody knows, and their names; NULL for a number that is no class. A view's are its
 * whole's. */
int64_t ls_dataset_classes(const ls_dataset *dataset);
const char *ls_dataset_class(const ls_dataset *dataset, int64_t i);

/* Cuts whole into two by a seeded shuffle: part holds round(fraction * length) samples, rest the
 * others, in shuffled order. A fraction that leaves one of them empty is an error unless it is 0 or
 * 1. Both borrow whole; a split of a split is fine. */
LS_NODISCARD ls_status ls_dataset_split(ls_dataset *whole, double fraction, uint64_t seed,
                                        ls_dataset **rest, ls_dataset **part);

typedef struct ls_image_options {
    int crop_padding; /* training only: pad by so many pixels on each side with zeros, then crop at
                         random; 0 = off */
    bool flip_horizontal; /* training only: mirror every second sample at random */
} ls_image_options;

/* IDX files, as MNIST comes: fields "image" (1,H,W), or (C,H,W) when the file has four dimensions,
 * and "label" () i32. Pixels are u8 as a rule; stored i8, i16, i32 become i32, f32 and f64 become
 * f32. Plain files are mapped and shared by the ranks of a machine; gzip is recognized by content,
 * path.gz is opened when only that exists, and each rank unpacks it into memory of its own.
 * options may be NULL. */
LS_NODISCARD ls_status ls_dataset_idx(const char *images, const char *labels,
                                      const ls_image_options *options, ls_dataset **out);

/* NumPy .npy files with the same first dimension, mapped: fields "x" and "y". u1 and b1 are u8; i1,
 * i2, u2, i4 become i32; i8 stays i64; f4 and f8 become f32. Other types, Fortran order, objects and
 * big-endian files are refused with the line of Python that converts them. y may be NULL. */
LS_NODISCARD ls_status ls_dataset_npy(const char *x, const char *y, ls_dataset **out);

/* Windows of tokens, for language models: sample i holds tokens [i context, (i + 1) context) as
 * "tokens" (context) i32 and the ones that follow each of them as "targets" (context) i32. pattern:
 * a file, or a glob pattern, whose files are one after another in the order of their names; no
 * window spans two. llm.c's shards (their header tells) and nanoGPT's (u16 without a header); mapped,
 * never read as a whole. */
LS_NODISCARD ls_status ls_dataset_tokens(const char *pattern, int64_t context, ls_dataset **out);
typedef struct ls_token_options {
    int64_t vocabulary; /* of the model: a token at or above is an error that names the file and the
                           token's position, at once where it is among a file's first, else of the
                           read; 0 = not checked */
} ls_token_options;
LS_NODISCARD ls_status ls_dataset_tokens_with(const char *pattern, int64_t context,
                                              const ls_token_options *options, ls_dataset **out);
/* As tokens, from a text file. Where a byte is a token (bytes; characters of a text in ASCII) the
 * file stays mapped and takes no memory; else it is encoded now, into memory of each process, one or
 * two bytes a token where they suffice. Not every text is one of the tokenizer's: see
 * ls_tokenizer_encode. */
LS_NODISCARD ls_status ls_dataset_text(const char *path, int64_t context,
                                       const ls_tokenizer *tokenizer, ls_dataset **out);
typedef struct ls_text_options {
    bool special; /* see ls_tokenizer_encode_special */
} ls_text_options;
LS_NODISCARD ls_status ls_dataset_text_with(const char *path, int64_t context,
                                            const ls_tokenizer *tokenizer,
                                            const ls_text_options *options, ls_dataset **out);

/* A folder of PNG and JPEG files, a sub-folder per class in the order of their names: fields "image"
 * (channels,size,size) u8 and "label" () i32. Scaled so that the shorter side fits (areas averaged),
 * then cut to the middle; channels 1 (grey) or 3. Alpha and a camera's note which side is up are not
 * looked at. Files are read when their sample is; other files, by their names, are left out with a
 * warning. */
LS_NODISCARD ls_status ls_dataset_images(const char *folder, int channels, int size,
                                         ls_dataset **out);
LS_NODISCARD ls_status ls_dataset_images_with(const char *folder, int channels, int size,
                                              const ls_image_options *options, ls_dataset **out);

/* What a table's columns mean: learnt from a CSV file, saved with a run, applied to other files. A
 * column whose values are all numbers is one of numbers (in files with semicolons a comma is a decimal
 * point too), any other one of categories. No value: "", NA, N/A, NaN, null, ?. */
typedef struct ls_table_schema ls_table_schema;
typedef struct ls_table_options {
    const char *target;     /* the column to predict; NULL = the last */
    const char *drop;       /* columns to leave out, "id,name"; NULL = none */
    const char *categories; /* columns of categories although they look like numbers; NULL = none */
    int64_t hash_above;     /* a column with more different texts is hashed into so many buckets;
                               0 = 1000 */
    bool classify;          /* the target is a class although it looks like a number */
} ls_table_options;
/* Errors name file, line and column; a name in the options that is no column is LS_ERR_CONFIG. */
LS_NODISCARD ls_status ls_table_schema_learn(const char *path, const ls_table_options *options,
                                             ls_table_schema **out);
LS_NODISCARD ls_status ls_table_schema_load(const char *path, ls_table_schema **out);
/* JSON, written beside and renamed. */
LS_NODISCARD ls_status ls_table_schema_save(const ls_table_schema *schema, const char *path);
void ls_table_schema_destroy(ls_table_schema *schema);
/* Columns of numbers, each with a flag for missing values. */
int ls_table_numbers(const ls_table_schema *schema);
/* Columns of categories, and how many values each has. sizes may be NULL. */
int ls_table_categories(const ls_table_schema *schema, const int64_t **sizes);
const char *ls_table_target(const ls_table_schema *schema); /* the column's name */
int64_t ls_table_classes(const ls_table_schema *schema);    /* of the target; 0 = a number */
/* "setosa"; NULL for a number that is no class. */
const char *ls_table_class(const ls_table_schema *schema, int64_t i);
/* A target in its own unit = scaled * deviation + mean. */
void ls_table_target_scale(const ls_table_schema *schema, double *mean, double *deviation);
/* RFC 4180 with a header line, fields between commas, semicolons or tabs: fields "numbers" (2 n) f32,
 * standardized, 0 where missing, then the flags; "categories" (m) i32, 0 = missing or never seen;
 * "target" () i32 of a class, f32 standardized of a number. Fields without columns are left out, and
 * "target" where the file has no such column. Columns are found by name; others are not looked at.
 * Held in memory, four bytes a value. */
LS_NODISCARD ls_status ls_dataset_table(const char *path, const ls_table_schema *schema,
                                        ls_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
