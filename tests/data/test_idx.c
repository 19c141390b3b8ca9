/* IDX files: what is read, what is refused and how, and random crop and mirror. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_internal.h"
#include "helper_data_files.h"

enum { N = 5, H = 4, W = 3 };
static uint8_t images[1 << 16], labels[4096];
static size_t images_size, labels_size;

static int setup(void **state)
{
    (void)state;
    images_size = make_idx(images, 0x08, 3, (const uint32_t[]) { N, H, W });
    labels_size = make_idx(labels, 0x08, 1, (const uint32_t[]) { N });
    write_file("labels", labels, labels_size);
    return 0;
}

static int value_at(int64_t i)
{
    return (int)((i * 7 + 3) & 0x7F);
}

static ls_status open_pair(const char *images_name, const char *labels_name, ls_dataset **out)
{
    return ls_dataset_idx(test_path(images_name), test_path(labels_name), NULL, out);
}

static void check_u8(ls_dataset *d)
{
    assert_int_equal(ls_dataset_length(d), N);
    int n;
    const ls_field *fields = ls_dataset_fields(d, &n);
    assert_int_equal(n, 2);
    assert_string_equal(fields[0].name, "image");
    assert_int_equal(fields[0].type, LS_DTYPE_U8);
    assert_int_equal(fields[0].rank, 3);
    assert_memory_equal(fields[0].shape, ((int64_t[]) { 1, H, W }), 3 * sizeof(int64_t));
    assert_string_equal(fields[1].name, "label");
    assert_int_equal(fields[1].type, LS_DTYPE_I32);
    assert_int_equal(fields[1].rank, 0);
    for (int i = 0; i < N; i++) {
        uint8_t image[H * W];
        int32_t label;
        assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { image, &label }));
        for (int j = 0; j < H * W; j++) assert_int_equal(image[j], value_at(i * H * W + j));
        assert_int_equal(label, value_at(i));
    }
    ls_dataset_destroy(d);
}

static void plain_and_compressed(void **state)
{
    (void)state;
    ls_dataset *d;
    write_file("images", images, images_size);
    assert_ok(open_pair("images", "labels", &d));
    assert_true(d->in_memory);
    check_u8(d);
    write_gzip("packed.gz", images, images_size);
    assert_ok(open_pair("packed.gz", "labels", &d));
    check_u8(d);
    assert_ok(open_pair("packed", "labels", &d)); /* .gz is added when only that is there */
    check_u8(d);
    write_gzip("misnamed", images, images_size);
    assert_ok(open_pair("misnamed", "labels", &d));
    check_u8(d);
    assert_fails(open_pair("nothing", "labels", &d), LS_ERR_DATA,
                 "nothing: cannot be opened: No such");
}

/* More than zlib is given at once. */
static void compressed_and_large(void **state)
{
    (void)state;
    enum { SIDE = 700 };
    static uint8_t plain[16 + SIDE * SIDE], read[SIDE * SIDE];
    size_t n = make_idx(plain, 0x08, 3, (const uint32_t[]) { 1, SIDE, SIDE });
    uint32_t r = 1;
    for (size_t i = 16; i < n; i++) plain[i] = (uint8_t)((r = r * 1664525 + 1013904223) >> 24);
    write_gzip("large.gz", plain, n);
    write_file("one", labels, make_idx(labels, 0x08, 1, (const uint32_t[]) { 1 }));
    ls_dataset *d;
    int32_t label;
    assert_ok(open_pair("large.gz", "one", &d));
    assert_ok(ls_dataset_read(d, 0, NULL, (void *[]) { read, &label }));
    assert_memory_equal(read, plain + 16, sizeof read);
    ls_dataset_destroy(d);
}

/* Two gzip members in a row are one file, as `cat a.gz b.gz` makes them. */
static void compressed_in_two_members(void **state)
{
    (void)state;
    uint8_t joined[4096];
    size_t n = 0;
    for (int half = 0; half < 2; half++) {
        const char *path = half ? write_gzip("half", images + 30, images_size - 30)
                                : write_gzip("half", images, 30);
        FILE *f = fopen(path, "rb");
        n += fread(joined + n, 1, sizeof joined - n, f);
        fclose(f);
    }
    write_file("joined.gz", joined, n);
    ls_dataset *d;
    assert_ok(open_pair("joined.gz", "labels", &d));
    check_u8(d);
}

static void every_element_type(void **state)
{
    (void)state;
    const struct {
        uint8_t type;
        ls_dtype field;
    } all[] = { { 0x08, LS_DTYPE_U8 },  { 0x09, LS_DTYPE_I32 }, { 0x0B, LS_DTYPE_I32 },
                { 0x0C, LS_DTYPE_I32 }, { 0x0D, LS_DTYPE_F32 }, { 0x0E, LS_DTYPE_F32 } };
    for (int t = 0; t < 6; t++) {
        size_t n = make_idx(images, all[t].type, 4, (const uint32_t[]) { N, 2, H, W });
        write_file("typed", images, n);
        if (all[t].type != 0x0D && all[t].type != 0x0E)
            n = make_idx(labels, all[t].type, 1, (const uint32_t[]) { N });
        write_file("typed-labels", labels, n);
        ls_dataset *d;
        assert_ok(open_pair("typed", all[t].field == LS_DTYPE_F32 ? "labels" : "typed-labels", &d));
        const ls_field *field = ls_dataset_fields(d, NULL);
        assert_int_equal(field->type, all[t].field);
        assert_memory_equal(field->shape, ((int64_t[]) { 2, H, W }), 3 * sizeof(int64_t));
        union {
            uint8_t u8[2 * H * W];
            int32_t i32[2 * H * W];
            float f32[2 * H * W];
        } x;
        int32_t label;
        assert_ok(ls_dataset_read(d, 3, NULL, (void *[]) { &x, &label }));
        assert_int_equal(label, value_at(3));
        for (int j = 0; j < 2 * H * W; j++) {
            double v = field->type == LS_DTYPE_U8    ? x.u8[j]
                       : field->type == LS_DTYPE_I32 ? x.i32[j]
                                                     : (double)x.f32[j];
            assert_true(v == value_at(3 * 2 * H * W + j));
        }
        ls_dataset_destroy(d);
    }
}

static void negative_numbers_keep_their_sign(void **state)
{
    (void)state;
    const uint8_t bytes[] = { 0, 0, 0x0B, 1, 0, 0, 0, 2, 0xFF, 0xFE, 0x80, 0x00 };
    const uint8_t pixels[] = { 0, 0, 0x09, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0xFF, 0x80 };
    write_file("negative-labels", bytes, sizeof bytes);
    write_file("negative", pixels, sizeof pixels);
    ls_dataset *d;
    int32_t pixel, label;
    assert_ok(open_pair("negative", "negative-labels", &d));
    assert_ok(ls_dataset_read(d, 0, NULL, (void *[]) { &pixel, &label }));
    assert_int_equal(label, -2);
    assert_int_equal(pixel, -1);
    assert_ok(ls_dataset_read(d, 1, NULL, (void *[]) { &pixel, &label }));
    assert_int_equal(label, -32768);
    assert_int_equal(pixel, -128);
    ls_dataset_destroy(d);
}

static void refused(const char *what, const void *bytes, size_t nbytes, const char *says)
{
    ls_dataset *d;
    write_file(what, bytes, nbytes);
    assert_fails(open_pair(what, "labels", &d), LS_ERR_DATA, says);
    assert_null(d);
    if (!strstr(ls_error_text(), what)) fail_msg("\"%s\" does not name the file", ls_error_text());
}

static void garbled_files_are_refused(void **state)
{
    (void)state;
    uint8_t bad[256];
    const char *text = "version https://git-lfs.github.com/spec/v1\noid sha256:00";
    refused("lfs", text, strlen(text), "git lfs pull");
    refused("page", "<!DOCTYPE html><html>", 21, "HTML page");
    refused("archive", "PK\003\004aaaaaaa", 11, "zip archive");
    refused("empty", "", 0, "the file is empty");
    refused("short", images, 3, "not an IDX file");
    refused("header", images, 9, "truncated: 9 bytes; the header alone has 16");
    refused("cut", images, images_size - 1, "truncated: 75 bytes, but its header promises 76");
    memcpy(bad, images, images_size);
    bad[images_size] = 0;
    refused("long", bad, images_size + 1, "too long: 77 bytes, but its header promises 76");
    bad[2] = 0x0A;
    refused("type", bad, images_size, "0x0a is not an element type");
    bad[2] = 0x08;
    bad[3] = 9;
    refused("rank", bad, images_size, "9 dimensions; 1 to 4 are read");
    bad[3] = 0;
    refused("scalar", bad, images_size, "0 dimensions");
    bad[3] = 3;
    memset(bad + 4, 0, 4);
    refused("none", bad, images_size, "dimension 0 is 0");
    memset(bad + 4, 0xFF, 12);
    refused("huge", bad, images_size, "beyond any file");
    ls_dataset *d;
    mkdir(test_path("folder"), 0700);
    assert_fails(open_pair("folder", "labels", &d), LS_ERR_DATA, "is a folder");
    rmdir(test_path("folder"));
}

static void garbled_compressed_files_are_refused(void **state)
{
    (void)state;
    enum { SIDE = 100 };
    static uint8_t plain[16 + SIDE * SIDE + 8], packed[16384];
    size_t n = make_idx(plain, 0x08, 3, (const uint32_t[]) { 1, SIDE, SIDE });
    for (size_t i = 16; i < n; i++) plain[i] = (uint8_t)(i * i >> 3); /* packs badly */
    FILE *f = fopen(write_gzip("whole.gz", plain, n), "rb");
    size_t m = fread(packed, 1, sizeof packed, f);
    fclose(f);
    const size_t cuts[] = { 2, 9, 15, 60, m / 2, m - 9, m - 8, m - 1 };
    for (int i = 0; i < 8; i++)
        refused("cut.gz", packed, cuts[i], "truncated: the compressed data");
    packed[10] = 7; /* a block type that does not exist */
    refused("corrupt.gz", packed, m, "compressed data is corrupt near byte");
    f = fopen(write_gzip("whole.gz", plain, n), "rb");
    m = fread(packed, 1, sizeof packed, f);
    fclose(f);
    packed[m - 6] ^= 1; /* in the checksum */
    refused("checksum.gz", packed, m, "incorrect data check");
    packed[m - 6] ^= 1;
    memset(packed + m, 'x', 5);
    refused("tail.gz", packed, m + 5, "corrupt near byte");
    ls_dataset *d;
    write_gzip("less.gz", plain, n - 1);
    assert_fails(open_pair("less.gz", "labels", &d), LS_ERR_DATA,
                 "truncated: it unpacks to 10015 bytes, but its header promises 10016");
    write_gzip("more.gz", plain, n + 1);
    assert_fails(open_pair("more.gz", "labels", &d), LS_ERR_DATA,
                 "too long: it unpacks to more than 10016 bytes");
    memset(plain + 4, 0x7F, 12);
    write_gzip("bomb.gz", plain, n);
    assert_fails(open_pair("bomb.gz", "labels", &d), LS_ERR_DATA, "beyond any file");
    memset(plain + 4, 0, 12);
    plain[7] = plain[10] = plain[14] = 0xFF;
    write_gzip("small-bomb.gz", plain, n);
    assert_fails(open_pair("small-bomb.gz", "labels", &d), LS_ERR_DATA, "cannot hold");
    write_gzip("text.gz", "hello", 5);
    assert_fails(open_pair("text.gz", "labels", &d), LS_ERR_DATA, "not an IDX file");
    write_gzip("nothing.gz", "", 0);
    assert_fails(open_pair("nothing.gz", "labels", &d), LS_ERR_DATA, "not an IDX file");
}

static void pairs_that_do_not_belong_together(void **state)
{
    (void)state;
    ls_dataset *d;
    images_size = make_idx(images, 0x08, 3, (const uint32_t[]) { N, H, W });
    write_file("images", images, images_size);
    assert_fails(open_pair("labels", "images", &d), LS_ERR_DATA, "are these the labels?");
    assert_fails(open_pair("images", "images", &d), LS_ERR_DATA, "are these the images?");
    write_file("six", labels, make_idx(labels, 0x08, 1, (const uint32_t[]) { N + 1 }));
    assert_fails(open_pair("images", "six", &d), LS_ERR_DATA, "holds 5 images, but ");
    assert_non_null(strstr(ls_error_text(), "/six 6 labels"));
    write_file("floats", labels, make_idx(labels, 0x0D, 1, (const uint32_t[]) { N }));
    assert_fails(open_pair("images", "floats", &d), LS_ERR_DATA, "floats");
    assert_fails(ls_dataset_idx(NULL, "x", NULL, &d), LS_ERR_ARG, "paths");
    assert_fails(ls_dataset_idx(test_path("images"), test_path("labels"),
                                &(ls_image_options) { .crop_padding = -1 }, &d),
                 LS_ERR_ARG, "crop_padding is -1");
}

/* --- crop and mirror --- */

/* The padded, cropped, mirrored image made the slow way. */
static void expected_image(int64_t index, int padding, bool flips, ls_rng *rng, uint8_t *out)
{
    int64_t down = 0, right = 0;
    bool flip = false;
    if (padding) {
        down = ls_rng_below(rng, 2 * padding + 1) - padding;
        right = ls_rng_below(rng, 2 * padding + 1) - padding;
    }
    if (flips) flip = ls_rng_u32(rng) & 1;
    for (int64_t y = 0; y < H; y++) {
        for (int64_t x = 0; x < W; x++) {
            int64_t sy = y + down, sx = (flip ? W - 1 - x : x) + right;
            bool inside = sy >= 0 && sy < H && sx >= 0 && sx < W;
            out[y * W + x] = inside ? (uint8_t)value_at(index * H * W + sy * W + sx) : 0;
        }
    }
}

static void crop_and_mirror(void **state)
{
    (void)state;
    const ls_image_options all[] = { { 0, true }, { 1, false }, { 2, true }, { 9, true } };
    for (int o = 0; o < 4; o++) {
        ls_dataset *d;
        assert_ok(ls_dataset_idx(test_path("images"), test_path("labels"), &all[o], &d));
        uint8_t image[H * W], expected[H * W], plain[H * W];
        int32_t label;
        int changed = 0;
        for (uint64_t epoch = 0; epoch < 200; epoch++) {
            int64_t index = (int64_t)(epoch % N);
            ls_rng rng, again;
            ls__rng_init(&rng, 3, "augment", epoch, (uint64_t)index);
            again = rng;
            expected_image(index, all[o].crop_padding, all[o].flip_horizontal, &again, expected);
            assert_ok(ls_dataset_read(d, index, &rng, (void *[]) { image, &label }));
            assert_memory_equal(image, expected, sizeof image);
            assert_ok(ls_dataset_read(d, index, NULL, (void *[]) { plain, &label }));
            for (int j = 0; j < H * W; j++) assert_int_equal(plain[j], value_at(index * H * W + j));
            changed += memcmp(plain, image, sizeof plain) != 0;
        }
        assert_true(changed > 50);
        ls_dataset_destroy(d);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_gzip("packed.gz", images, images_size);
    for (long n = 1;; n++) {
        ls_dataset *d;
        ls__alloc_fail_at(n);
        ls_status status = open_pair("packed.gz", "labels", &d);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            assert_true(n > 4);
            ls_dataset_destroy(d);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_compressed),
        cmocka_unit_test(compressed_and_large),
        cmocka_unit_test(compressed_in_two_members),
        cmocka_unit_test(garbled_files_are_refused),
        cmocka_unit_test(garbled_compressed_files_are_refused),
        cmocka_unit_test(every_element_type),
        cmocka_unit_test(negative_numbers_keep_their_sign),
        cmocka_unit_test(pairs_that_do_not_belong_together),
        cmocka_unit_test(crop_and_mirror),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
