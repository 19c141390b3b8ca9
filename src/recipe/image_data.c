/* The images: in MNIST's format, with a test set of their own, or a folder of PNG and JPEG files. */
#include "recipe/image.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_mnist(const char *folder)
{
    static const char *const names[] = { "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz" };
    char path[LS_PATH_MAX];
    for (int i = 0; i < 2; i++)
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) < LS_PATH_MAX &&
            access(path, F_OK) == 0)
            return true;
    return false;
}

/* --- classes: the sub-folders of a folder, by name --- */

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_folder(const char *parent, const char *name)
{
    char path[LS_PATH_MAX];
    struct stat info;
    return name[0] != '.' && snprintf(path, sizeof path, "%s/%s", parent, name) < LS_PATH_MAX &&
           stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A line for each, freed by free(); *count of them. */
static char *list_classes(const char *folder, int64_t *count)
{
    struct dirent **entries = NULL;
    char *text = NULL;
    size_t nbytes = 0;
    FILE *to = open_memstream(&text, &nbytes);
    int n = scandir(folder, &entries, NULL, by_bytes);
    *count = 0;
    for (int i = 0; i < n; i++) {
        if (to && is_folder(folder, entries[i]->d_name)) {
            fprintf(to, "%s\n", entries[i]->d_name);
            ++*count;
        }
        free(entries[i]);
    }
    free(entries);
    if (to) fclose(to);
    return text;
}

/* A run's list, as it was written; NULL = there is none. */
static char *read_classes(const char *path)
{
    char *text = NULL;
    size_t room = 0;
    FILE *from = fopen(path, "r");
    if (!from) return NULL;
    if (getdelim(&text, &room, '\0', from) < 0) { /* the whole file */
        free(text);
        text = NULL;
    }
    fclose(from);
    return text;
}

static ls_status write_classes(const char *path, const char *text)
{
    char new[LS_PATH_MAX + 8];
    snprintf(new, sizeof new, "%s.new", path);
    FILE *to = fopen(new, "w");
    bool written = to && fputs(text, to) >= 0;
    if (to && fclose(to) != 0) written = false;
    return written && rename(new, path) == 0 ? LS_OK : ls_fail(LS_ERR_IO, "%s: cannot write", path);
}

ls_status recipe_image_classes(const recipe_image *recipe, const char *folder, bool begins)
{
    char path[LS_PATH_MAX];
    int64_t count;
    if (is_mnist(recipe->data)) return LS_OK;
    if (snprintf(path, sizeof path, "%s/classes.txt", folder) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_CONFIG, "%.64s...: too long a path", folder);
    char *now = list_classes(recipe->data, &count), *before = read_classes(path);
    ls_status status = now ? LS_OK : ls_fail(LS_ERR_MEMORY, "out of memory");
    if (status == LS_OK && before && strcmp(now, before) != 0)
        status = ls_fail(LS_ERR_DATA,
                         "%s: its sub-folders are not the classes of the run, which %s lists",
                         recipe->data, path);
    if (status == LS_OK && !before && begins) status = write_classes(path, now);
    free(now);
    free(before);
    return status;
}

/* --- flags --- */

static ls_status check_folder(recipe_image *recipe)
{
    int64_t folders;
    char *classes = list_classes(recipe->data, &folders);
    if (folders == 1)
        (void)ls_fail(LS_ERR_DATA,
                      "%s: one sub-folder (%.*s), and a class each is expected: two at least",
                      recipe->data, (int)strcspn(classes, "\n"), classes);
    free(classes);
    if (folders == 1) return LS_ERR_DATA;
    if (folders < 2)
        return ls_fail(
            LS_ERR_DATA,
            "%s: neither MNIST's files (train-images-idx3-ubyte) nor a sub-folder of PNG "
            "or JPEG files per class are in it",
            recipe->data);
    if (recipe->classes == 0) recipe->classes = folders;
    if (recipe->image_size == 0) recipe->image_size = 64;
    if (recipe->channels == 0) recipe->channels = 3;
    if (recipe->classes < folders)
        return ls_fail(LS_ERR_CONFIG, "--classes %lld: %s has %lld sub-folders",
                       (long long)recipe->classes, recipe->data, (long long)folders);
    if (recipe->image_size < 4 || recipe->image_size > 4096)
        return ls_fail(LS_ERR_CONFIG, "--image-size %lld: 4 to 4096",
                       (long long)recipe->image_size);
    if (recipe->channels != 1 && recipe->channels != 3)
        return ls_fail(LS_ERR_CONFIG, "--channels %lld: 1 (grey) or 3",
                       (long long)recipe->channels);
    return LS_OK;
}

static ls_status check_mnist(recipe_image *recipe)
{
    if (recipe->image_size != 0 || recipe->channels != 0)
        return ls_fail(LS_ERR_CONFIG, "--image-size and --channels are for folders of PNG and JPEG "
                                      "files; MNIST's files say their own");
    if (recipe->classes == 0) recipe->classes = 10;
    return LS_OK;
}

ls_status recipe_image_check(recipe_image *recipe)
{
    const char *m = recipe->model;
    if (!recipe->data)
        return ls_fail(LS_ERR_CONFIG,
                       "--data DIR: where are the images? Debian's package dataset-fashion-mnist "
                       "puts some in /usr/share/datasets/fashion-mnist");
    if (strcmp(m, "mlp") != 0 && strcmp(m, "cnn") != 0 && strcmp(m, "resnet") != 0)
        return ls_fail(LS_ERR_CONFIG, "--model %s: there are mlp, cnn and resnet", m);
    if (recipe->crop < 0 || recipe->crop > 64)
        return ls_fail(LS_ERR_CONFIG, "--crop %lld: 0 to 64 pixels", (long long)recipe->crop);
    if (!(recipe->val_fraction > 0 && recipe->val_fraction < 1))
        return ls_fail(LS_ERR_CONFIG, "--val-fraction %g: between 0 and 1", recipe->val_fraction);
    if (recipe->classes < 0 || recipe->classes == 1)
        return ls_fail(LS_ERR_CONFIG, "--classes %lld: at least 2", (long long)recipe->classes);
    if (access(recipe->data, F_OK) != 0)
        return ls_fail(LS_ERR_DATA, "%s: there is no such folder", recipe->data);
    return is_mnist(recipe->data) ? check_mnist(recipe) : check_folder(recipe);
}

/* --- samples --- */

/* part: "train" or "t10k" (the test set). */
static ls_status open_mnist(const recipe_image *recipe, const char *part, ls_dataset **out)
{
    char images[LS_PATH_MAX], labels[LS_PATH_MAX]; /* or .gz of them, where only that is there */
    int n = snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte", recipe->data, part);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte", recipe->data, part);
    if (n >= LS_PATH_MAX) return ls_fail(LS_ERR_CONFIG, "--data: too long a path");
    ls_image_options options = { .crop_padding = (int)recipe->crop,
                                 .flip_horizontal = recipe->flip };
    return ls_dataset_idx(images, labels, &options, out);
}

/* Found here, not by a graph that fails at the test behind hours of training. */
static ls_status check_same_size(const ls_dataset *train, const ls_dataset *test)
{
    int n;
    const int64_t *a = ls_dataset_fields(train, &n)->shape, *b = ls_dataset_fields(test, &n)->shape;
    if (a[0] == b[0] && a[1] == b[1] && a[2] == b[2]) return LS_OK;
    return ls_fail(LS_ERR_DATA, "the training images are %lldx%lld, the test images %lldx%lld",
                   (long long)a[1], (long long)a[2], (long long)b[1], (long long)b[2]);
}

ls_status recipe_image_open(const recipe_image *recipe, recipe_image_data *out)
{
    ls_status status;
    if (is_mnist(recipe->data)) {
        status = open_mnist(recipe, "train", &out->all);
        if (status == LS_OK) status = open_mnist(recipe, "t10k", &out->test);
        if (status == LS_OK) status = check_same_size(out->all, out->test);
    } else {
        ls_image_options options = { .crop_padding = (int)recipe->crop,
                                     .flip_horizontal = recipe->flip };
        status = ls_dataset_images_with(recipe->data, (int)recipe->channels,
                                        (int)recipe->image_size, &options, &out->all);
    }
    if (status != LS_OK) return status;
    return ls_dataset_split(out->all, recipe->val_fraction, 0, &out->train, &out->val);
}

void recipe_image_close(recipe_image_data *data)
{
    ls_dataset_destroy(data->train);
    ls_dataset_destroy(data->val);
    ls_dataset_destroy(data->test);
    ls_dataset_destroy(data->all);
}
