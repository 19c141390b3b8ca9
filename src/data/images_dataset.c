/* A folder of pictures as a dataset. A picture is read, decoded and scaled each time its sample is:
 * decoded they would fill any memory, and the loader's threads do it ahead of time. */
#include <limits.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/augment.h"
#include "data/dataset_internal.h"
#include "data/image_file.h"
#include "data/image_folder.h"

enum { SIZE_MAX_PIXELS = 4096 };
static const size_t FILE_BYTES_MAX = (size_t)256 << 20;

typedef struct images_dataset {
    ls__image_folder folder;
    ls_image_options options;
    int channels, size;
} images_dataset;

static int64_t images_length(void *self)
{
    return ((const images_dataset *)self)->folder.count;
}

static const char *images_class(const void *self, int64_t i)
{
    return ((const images_dataset *)self)->folder.classes[i];
}

/* The file's picture into out, (channels, size, size). */
static ls_status read_picture(const images_dataset *d, const char *path, uint8_t *out)
{
    char *bytes;
    size_t nbytes;
    ls__picture picture;
    ls_status status = ls__file_read(path, FILE_BYTES_MAX, &bytes, &nbytes);
    if (status == LS_ERR_IO) return ls_fail(LS_ERR_DATA, "%s", ls_error_text());
    LS_TRY(status);
    status = ls__picture_decode((const uint8_t *)bytes, nbytes, path, d->size, &picture);
    ls__free(bytes);
    LS_TRY(status);
    status = ls__picture_scale(&picture, d->channels, d->size, out);
    ls__picture_close(&picture);
    return status;
}

static ls_status images_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    const images_dataset *d = self;
    const ls__image_entry *entry = &d->folder.entries[index];
    char path[LS_PATH_MAX];
    memcpy(out[1], &entry->label, sizeof entry->label);
    LS_TRY(ls__path_join(path, d->folder.folder, d->folder.paths + entry->path));
    bool augmented = rng && (d->options.crop_padding > 0 || d->options.flip_horizontal);
    if (!augmented) return read_picture(d, path, out[0]);
    const int64_t shape[3] = { d->channels, d->size, d->size };
    uint8_t *pixels = ls__alloc((size_t)d->channels, (size_t)d->size * (size_t)d->size);
    if (!pixels) return LS_ERR_MEMORY;
    ls_status status = read_picture(d, path, pixels);
    if (status == LS_OK) ls__augment(&d->options, rng, &ls__stored_u8, shape, pixels, out[0]);
    ls__free(pixels);
    return status;
}

static void images_destroy(void *self)
{
    images_dataset *d = self;
    ls__image_folder_close(&d->folder);
    ls__free(d);
}

static const ls_dataset_ops images_ops = {
    .length = images_length,
    .read = images_read,
    .destroy = images_destroy,
};

static ls_status check(const char *folder, int channels, int size, const ls_image_options *options)
{
    if (!folder) return ls_fail(LS_ERR_ARG, "a dataset of images needs a folder");
    if (channels != 1 && channels != 3)
        return ls_fail(LS_ERR_ARG, "%d channels: give 1 (grey) or 3 (colour)", channels);
    if (size < 1 || size > SIZE_MAX_PIXELS)
        return ls_fail(LS_ERR_ARG, "images of %d pixels: give 1 to %d", size, SIZE_MAX_PIXELS);
    if (options && (options->crop_padding < 0 || options->crop_padding > INT_MAX / 4))
        return ls_fail(LS_ERR_ARG, "crop_padding is %d: give 0 or more", options->crop_padding);
    return LS_OK;
}

ls_status ls_dataset_images_with(const char *folder, int channels, int size,
                                 const ls_image_options *options, ls_dataset **out)
{
    *out = NULL;
    LS_TRY(check(folder, channels, size, options));
    images_dataset *d = ls__alloc(1, sizeof *d);
    if (!d) return LS_ERR_MEMORY;
    d->channels = channels;
    d->size = size;
    if (options) d->options = *options;
    const ls_field fields[] = { { "image", LS_DTYPE_U8, 3, { channels, size, size } },
                                { "label", LS_DTYPE_I32, 0, { 0 } } };
    ls_status status;
    LS_TRY_GOTO(ls__image_folder_open(folder, &d->folder), status, failed);
    LS_TRY_GOTO(ls__dataset_create(&images_ops, d, fields, 2, folder, out), status, failed);
    (*out)->nclasses = d->folder.nclasses;
    (*out)->class_name = images_class;
    return LS_OK;
failed:
    images_destroy(d);
    return status;
}

ls_status ls_dataset_images(const char *folder, int channels, int size, ls_dataset **out)
{
    return ls_dataset_images_with(folder, channels, size, NULL, out);
}
