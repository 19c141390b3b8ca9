/* Folders of pictures: classes and order, samples, augmentation, threads, what is refused. */
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_internal.h"
#include "data/image_folder.h"
#include "data/loader.h"
#include "helper_data_files.h"

enum { SIZE = 6 };

/* A folder of the test's own, under the one that goes at its end. */
static const char *make_folder(const char *name)
{
    const char *path = test_path(name);
    assert_ok(ls__folder_make(&ls__fs_posix, path));
    return path;
}

static void copy_picture(const char *golden, const char *as)
{
    char path[LS_PATH_MAX], *bytes;
    size_t nbytes;
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/picture_golden/%s", source ? source : "../../..",
             golden);
    assert_ok(ls__file_read(path, 1 << 20, &bytes, &nbytes));
    FILE *f = fopen(test_path(as), "wb");
    assert_true(f && fwrite(bytes, 1, nbytes, f) == nbytes && fclose(f) == 0);
    ls__free(bytes);
}

static void put(const char *as, const char *text)
{
    FILE *f = fopen(test_path(as), "wb");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void make_pets(void)
{
    make_folder("pets");
    make_folder("pets/dog");
    make_folder("pets/Cat");
    make_folder("pets/cat/deep");
    copy_picture("rgb.png", "pets/dog/b.png");
    copy_picture("rgb.jpg", "pets/dog/a.JPG");
    copy_picture("grey.png", "pets/Cat/x.jpeg"); /* the content counts */
    copy_picture("cmyk.jpg", "pets/cat/deep/z.jpg");
    copy_picture("bits1.png", "pets/cat/a.png");
    put("pets/cat/notes.txt", "not a picture");
    put("pets/cat/.hidden.png", "not a picture");
    put("pets/readme.md", "beside the classes");
}

static void remove_folder(const char *name)
{
    assert_ok(ls__folder_remove(&ls__fs_posix, test_path(name)));
}

static ls_dataset *open_pets(int channels, const ls_image_options *options)
{
    ls_dataset *d;
    ls__log_set_level(LS__LOG_ERROR);
    assert_ok(ls_dataset_images_with(test_path("pets"), channels, SIZE, options, &d));
    ls__log_set_level(LS__LOG_INFO);
    return d;
}

static void classes_and_samples(void **state)
{
    (void)state;
    make_pets();
    for (int channels = 1; channels <= 3; channels += 2) {
        ls_dataset *d = open_pets(channels, NULL), *rest, *part;
        const ls_field *f = ls_dataset_fields(d, NULL);
        assert_string_equal(f[0].name, "image");
        assert_int_equal(f[0].type, LS_DTYPE_U8);
        assert_int_equal(f[0].shape[0], channels);
        assert_int_equal(f[0].shape[1], SIZE);
        assert_int_equal(f[0].shape[2], SIZE);
        assert_string_equal(f[1].name, "label");
        assert_int_equal(ls_dataset_classes(d), 3);
        assert_string_equal(ls_dataset_class(d, 0), "Cat");
        assert_string_equal(ls_dataset_class(d, 1), "cat");
        assert_string_equal(ls_dataset_class(d, 2), "dog");
        assert_null(ls_dataset_class(d, 3));
        assert_null(ls_dataset_class(d, -1));
        assert_int_equal(ls_dataset_length(d), 5);
        assert_false(d->in_memory);
        const int32_t labels[] = { 0, 1, 1, 2, 2 };
        uint8_t image[3 * SIZE * SIZE], other[3 * SIZE * SIZE];
        int32_t label;
        for (int i = 0; i < 5; i++) {
            assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { image, &label }));
            assert_int_equal(label, labels[i]);
            assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { other, &label }));
            assert_memory_equal(image, other, (size_t)channels * SIZE * SIZE);
        }
        assert_ok(ls_dataset_split(d, 0, 1, &rest, &part)); /* views know the classes too */
        assert_int_equal(ls_dataset_classes(rest), 3);
        assert_string_equal(ls_dataset_class(part, 2), "dog");
        ls_dataset_destroy(rest);
        ls_dataset_destroy(part);
        ls_dataset_destroy(d);
    }
    remove_folder("pets");
}

static void in_the_order_of_names(void **state)
{
    (void)state;
    ls__image_folder f;
    make_folder("many");
    make_folder("many/a");
    for (int i = 0; i < 60; i++) { /* no disk lists so many in order by chance */
        char name[64];
        snprintf(name, sizeof name, "many/a/%d.png", i * 7919 % 1000);
        put(name, "");
    }
    assert_ok(ls__image_folder_open(test_path("many"), &f));
    assert_int_equal(f.count, 60);
    for (int i = 1; i < 60; i++)
        assert_true(strcmp(f.paths + f.entries[i - 1].path, f.paths + f.entries[i].path) < 0);
    ls__image_folder_close(&f);
    remove_folder("many");
}

static void augmentation_is_the_sample_s(void **state)
{
    (void)state;
    make_pets();
    const ls_image_options options = { .flip_horizontal = true };
    ls_dataset *d = open_pets(3, &options);
    uint8_t plain[3 * SIZE * SIZE], image[3 * SIZE * SIZE];
    int32_t label;
    int flipped = 0;
    assert_ok(ls_dataset_read(d, 3, NULL, (void *[]) { plain, &label }));
    for (uint64_t epoch = 0; epoch < 32; epoch++) {
        ls_rng rng;
        ls__rng_init(&rng, 7, "augment", epoch, 3);
        assert_ok(ls_dataset_read(d, 3, &rng, (void *[]) { image, &label }));
        if (memcmp(image, plain, sizeof image) == 0) continue;
        flipped++;
        for (int i = 0; i < 3 * SIZE * SIZE; i++)
            assert_int_equal(image[i], plain[i / SIZE * SIZE + SIZE - 1 - i % SIZE]);
    }
    assert_in_range(flipped, 6, 26);
    ls_dataset_destroy(d);
    remove_folder("pets");
}

static bool one_batch_of_40(void *user, int64_t k, int64_t *begin, int64_t *count)
{
    (void)user;
    *begin = 40 * k;
    *count = 40;
    return k < 4;
}

static void several_threads_read(void **state)
{
    (void)state;
    make_pets();
    ls_dataset *d = open_pets(3, &(ls_image_options) { .crop_padding = 2 });
    static uint8_t first[4][40 * 3 * SIZE * SIZE];
    for (int threads = 1; threads <= 3; threads += 2) {
        ls__loader_options options = { .dataset = d,
                                       .seed = 3,
                                       .training = true,
                                       .threads = threads,
                                       .max_count = 40,
                                       .plan = one_batch_of_40 };
        ls__loader *loader;
        assert_ok(ls__loader_create(&options, &loader));
        for (int k = 0; k < 4; k++) {
            ls__loader_batch batch;
            bool more;
            assert_ok(ls__loader_next(loader, &batch, &more));
            assert_true(more);
            if (threads == 1) memcpy(first[k], batch.fields[0], sizeof first[k]);
            assert_memory_equal(batch.fields[0], first[k], sizeof first[k]);
        }
        ls__loader_destroy(loader);
    }
    ls_dataset_destroy(d);
    remove_folder("pets");
}

static void what_is_refused(void **state)
{
    (void)state;
    ls_dataset *d;
    const char *folder = make_folder("empty");
    assert_fails(ls_dataset_images(folder, 3, SIZE, &d), LS_ERR_DATA,
                 "no sub-folders: the pictures of each class lie in");
    put("empty/a.png", "");
    assert_fails(ls_dataset_images(folder, 3, SIZE, &d), LS_ERR_DATA, "no sub-folders");
    make_folder("empty/train");
    make_folder("empty/val");
    assert_fails(ls_dataset_images(test_path("empty"), 3, SIZE, &d), LS_ERR_DATA,
                 "are parts of a data set, not classes");
    make_folder("empty/cat");
    ls__log_set_level(LS__LOG_ERROR);
    assert_fails(ls_dataset_images(test_path("empty"), 3, SIZE, &d), LS_ERR_DATA,
                 "no .png, .jpg or .jpeg file in its sub-folders");
    ls__log_set_level(LS__LOG_INFO);
    assert_null(d);
    remove_folder("empty");
    assert_fails(ls_dataset_images("/nowhere", 3, SIZE, &d), LS_ERR_DATA, "/nowhere: the folder");
    assert_fails(ls_dataset_images(NULL, 3, SIZE, &d), LS_ERR_ARG, "needs a folder");
    assert_fails(ls_dataset_images("x", 2, SIZE, &d), LS_ERR_ARG, "2 channels");
    assert_fails(ls_dataset_images("x", 3, 0, &d), LS_ERR_ARG, "images of 0 pixels");
    assert_fails(ls_dataset_images_with("x", 3, 8, &(ls_image_options) { .crop_padding = -1 }, &d),
                 LS_ERR_ARG, "crop_padding is -1");
}

static void a_damaged_picture_is_named(void **state)
{
    (void)state;
    make_pets();
    put("pets/dog/b.png", "\x89PNG\r\n\x1a\n");
    ls_dataset *d = open_pets(3, NULL);
    uint8_t image[3 * SIZE * SIZE];
    int32_t label;
    assert_fails(ls_dataset_read(d, 4, NULL, (void *[]) { image, &label }), LS_ERR_DATA,
                 "/pets/dog/b.png: a truncated PNG file");
    assert_non_null(strstr(ls_error_text(), "sample 4 of "));
    unlink(test_path("pets/dog/b.png"));
    assert_fails(ls_dataset_read(d, 4, NULL, (void *[]) { image, &label }), LS_ERR_DATA,
                 "/pets/dog/b.png: cannot open");
    ls_dataset_destroy(d);
    remove_folder("pets");
}

static void failed_allocations(void **state)
{
    (void)state;
    make_pets();
    ls__log_set_level(LS__LOG_ERROR);
    for (long n = 1;; n++) {
        ls_dataset *d;
        uint8_t image[3 * SIZE * SIZE];
        int32_t label;
        ls__alloc_fail_at(n);
        ls_status status = ls_dataset_images(test_path("pets"), 3, SIZE, &d);
        if (status == LS_OK) {
            status = ls_dataset_read(d, 0, NULL, (void *[]) { image, &label });
            ls_dataset_destroy(d);
        }
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            assert_true(n > 15);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
    }
    ls__log_set_level(LS__LOG_INFO);
    remove_folder("pets");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_order_of_names),
        cmocka_unit_test(classes_and_samples),
        cmocka_unit_test(augmentation_is_the_sample_s),
        cmocka_unit_test(several_threads_read),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_damaged_picture_is_named),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
