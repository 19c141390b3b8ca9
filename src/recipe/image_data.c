/* The images: in MNIST's format, with a test set of their own, or a folder of PNG and JPEG files. */
#include "recipe/image.h"

#include <dirent.h>
#include <stdio.h>
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

/* Sub-folders, each of which is a class. */
static int64_t count_folders(const char *folder)
{
    struct dirent *entry;
    struct stat info;
    char path[LS_PATH_MAX];
    int64_t count = 0;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < LS_PATH_MAX &&
            stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            count++;
    if (dir) closedir(dir);
    return count;
}

static ls_status check_folder(recipe_image *recipe)
{
    int64_t folders = count_folders(recipe->data);
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
