/* A pair of IDX files as a dataset of images and labels. Plain files stay mapped and shared by all
 * ranks; compressed ones are unpacked once per process, since random access needs them whole. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/augment.h"
#include "data/dataset_internal.h"
#include "data/idx.h"

typedef struct idx_dataset {
    ls__data_file files[2]; /* images, labels */
    ls__idx images, labels;
    int64_t shape[3]; /* (C,H,W) */
    int64_t image_nbytes;
    ls_image_options options;
} idx_dataset;

/* Opens path, or path.gz if only that exists; unpacks when the content is compressed, whatever the
 * name says. */
static ls_status open_idx(const char *path, ls__data_file *file, ls__idx *out)
{
    char packed_path[LS_PATH_MAX + 4];
    if (access(path, F_OK) != 0 && errno == ENOENT && strlen(path) < LS_PATH_MAX) {
        strcat(strcpy(packed_path, path), ".gz");
        if (access(packed_path, F_OK) == 0) path = packed_path;
    }
    LS_TRY(ls__data_file_open(path, file));
    if (ls__gzip_is(file->bytes, file->nbytes)) {
        ls__data_file packed = *file;
        ls_status status = ls__idx_unpack(packed.bytes, packed.nbytes, path, file);
        ls__data_file_close(&packed);
        LS_TRY(status);
    }
    return ls__idx_parse(file->bytes, file->nbytes, path, out);
}

static ls_status check(idx_dataset *d, const char *images, const char *labels)
{
    int rank = d->images.rank;
    if (rank != 3 && rank != 4)
        return ls_fail(LS_ERR_DATA, "%s: %d dimensions; images have 3, (N,H,W), or 4, (N,C,H,W)%s",
                       images, rank, rank == 1 ? ": are these the labels?" : "");
    if (d->labels.rank != 1)
        return ls_fail(LS_ERR_DATA, "%s: %d dimensions; labels have 1, (N)%s", labels,
                       d->labels.rank, d->labels.rank >= 3 ? ": are these the images?" : "");
    if (d->labels.stored->type == LS_DTYPE_F32)
        return ls_fail(LS_ERR_DATA, "%s: labels are integers, but the file holds floats", labels);
    if (d->images.shape[0] != d->labels.shape[0])
        return ls_fail(LS_ERR_DATA, "%s holds %lld images, but %s %lld labels", images,
                       (long long)d->images.shape[0], labels, (long long)d->labels.shape[0]);
    for (int i = 0; i < 3; i++) d->shape[i] = rank == 4 ? d->images.shape[1 + i] : 1;
    if (rank == 3) memcpy(d->shape + 1, d->images.shape + 1, 2 * sizeof *d->shape);
    d->image_nbytes = d->shape[0] * d->shape[1] * d->shape[2] * d->images.stored->size;
    return LS_OK;
}

static int64_t idx_length(void *self)
{
    return ((const idx_dataset *)self)->images.shape[0];
}

static ls_status idx_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    const idx_dataset *d = self;
    const uint8_t *image = d->images.values + index * d->image_nbytes;
    int32_t label;
    ls__augment(&d->options, rng, d->images.stored, d->shape, image, out[0]);
    const uint8_t *stored = d->labels.values + index * d->labels.stored->size;
    if (d->labels.stored->type == LS_DTYPE_U8)
        label = *stored;
    else
        d->labels.stored->convert(&label, stored, 1);
    memcpy(out[1], &label, sizeof label);
    return LS_OK;
}

static void idx_prefetch(const void *self, int64_t index)
{
    enum { LINE = 64, LINES_MAX = 64 };
    const idx_dataset *d = self;
    const uint8_t *image = d->images.values + index * d->image_nbytes;
    for (int64_t i = 0; i < d->image_nbytes && i < LINE * LINES_MAX; i += LINE)
        __builtin_prefetch(image + i);
}

static void idx_destroy(void *self)
{
    idx_dataset *d = self;
    ls__data_file_close(&d->files[0]);
    ls__data_file_close(&d->files[1]);
    ls__free(d);
}

static const ls_dataset_ops idx_ops = {
    .length = idx_length,
    .read = idx_read,
    .destroy = idx_destroy,
};

ls_status ls_dataset_idx(const char *images, const char *labels, const ls_image_options *options,
                         ls_dataset **out)
{
    *out = NULL;
    if (!images || !labels)
        return ls_fail(LS_ERR_ARG, "an IDX dataset needs the paths of images and labels");
    if (options && (options->crop_padding < 0 || options->crop_padding > INT_MAX / 4))
        return ls_fail(LS_ERR_ARG, "crop_padding is %d: give 0 or more", options->crop_padding);
    idx_dataset *d = ls__alloc(1, sizeof *d);
    if (!d) return LS_ERR_MEMORY;
    if (options) d->options = *options;
    ls_status status;
    LS_TRY_GOTO(open_idx(images, &d->files[0], &d->images), status, failed);
    LS_TRY_GOTO(open_idx(labels, &d->files[1], &d->labels), status, failed);
    LS_TRY_GOTO(check(d, images, labels), status, failed);
    const ls_field fields[] = {
        { "image", d->images.stored->type, 3, { d->shape[0], d->shape[1], d->shape[2] } },
        { "label", LS_DTYPE_I32, 0, { 0 } },
    };
    LS_TRY_GOTO(ls__dataset_create(&idx_ops, d, fields, 2, images, out), status, failed);
    (*out)->prefetch = idx_prefetch;
    (*out)->in_memory = d->files[0].in_memory;
    return LS_OK;
failed:
    idx_destroy(d);
    return status;
}
