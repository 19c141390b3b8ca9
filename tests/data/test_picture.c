/* Pictures: every kind of PNG and JPEG as Pillow decodes it, scaling as numpy averages, damage. */
#include <math.h>

#include "testing.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/image_file.h"

static char *golden(const char *name, size_t *nbytes)
{
    char path[LS_PATH_MAX], *bytes;
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/picture_golden/%s", source ? source : "../../..",
             name);
    assert_ok(ls__file_read(path, 1 << 20, &bytes, nbytes));
    return bytes;
}

static void open_golden(const char *name, int size, ls__picture *out)
{
    size_t nbytes;
    char *bytes = golden(name, &nbytes);
    assert_ok(ls__picture_decode((uint8_t *)bytes, nbytes, name, size, out));
    ls__free(bytes);
}

/* Pillow's decoder of JPEG may round otherwise. */
static void check_decoded(const char *name, int channels, int tolerance)
{
    ls__picture p;
    char other[64];
    size_t nbytes;
    open_golden(name, 0, &p);
    snprintf(other, sizeof other, "%s.rgb", name);
    *strchr(other, '.') = '_';
    uint8_t *wanted = (uint8_t *)golden(other, &nbytes);
    uint16_t shape[2];
    memcpy(shape, wanted, sizeof shape);
    assert_int_equal(p.width, shape[0]);
    assert_int_equal(p.height, shape[1]);
    assert_int_equal(p.channels, channels);
    assert_int_equal(nbytes, 4 + 3 * p.width * p.height);
    for (int i = 0; i < 3 * p.width * p.height; i++) {
        int got = p.pixels[channels == 1 ? i / 3 : i], want = wanted[4 + i];
        if (abs(got - want) > tolerance) fail_msg("%s: value %d is %d, not %d", name, i, got, want);
    }
    ls__free(wanted);
    ls__picture_close(&p);
}

static void as_pillow_decodes(void **state)
{
    (void)state;
    check_decoded("rgb.png", 3, 0);
    check_decoded("grey.png", 1, 0);
    check_decoded("rgba.png", 3, 0);
    check_decoded("grey_alpha.png", 1, 0);
    check_decoded("palette.png", 3, 0);
    check_decoded("bits1.png", 1, 0);
    check_decoded("grey16.png", 1, 0);
    check_decoded("interlaced.png", 3, 0);
    check_decoded("rgb.jpg", 3, 2);
    check_decoded("progressive.jpg", 3, 2);
    check_decoded("grey.jpg", 1, 2);
    check_decoded("cmyk.jpg", 3, 2);
}

static void as_numpy_averages(void **state)
{
    (void)state;
    const int sizes[] = { 1, 2, 5, 7, 13, 14 };
    ls__picture p;
    size_t nbytes, used = 0;
    float *wanted = (float *)(void *)golden("scaled.f32", &nbytes);
    open_golden("rgb.png", 0, &p);
    for (int s = 0; s < 6; s++) {
        uint8_t out[3 * 14 * 14], grey[14 * 14];
        int n = sizes[s] * sizes[s];
        assert_ok(ls__picture_scale(&p, 3, sizes[s], out));
        assert_ok(ls__picture_scale(&p, 1, sizes[s], grey));
        for (int i = 0; i < 3 * n; i++)
            if (fabsf((float)out[i] - wanted[used + (size_t)i]) > 0.51f)
                fail_msg("size %d, value %d: %d, not %g", sizes[s], i, out[i],
                         (double)wanted[used + (size_t)i]);
        for (int i = 0; i < n; i++) {
            double luma = 0.299 * out[i] + 0.587 * out[n + i] + 0.114 * out[2 * n + i];
            assert_true(fabs(luma - grey[i]) <= 0.51);
        }
        used += 3 * (size_t)n;
    }
    assert_int_equal(used * sizeof(float), nbytes);
    ls__picture_close(&p);
    ls__free(wanted);
}

static void growing_interpolates(void **state)
{
    (void)state;
    uint8_t pixels[] = { 0, 100, 200, 40 }, out[3 * 64];
    ls__picture p = { 2, 2, 1, pixels };
    assert_ok(ls__picture_scale(&p, 3, 4, out)); /* centres at -0.25, 0.25, 0.75, 1.25 */
    const uint8_t wanted[16] = {
        0, 25, 75, 100, 50, 59, 76, 85, 150, 126, 79, 55, 200, 160, 80, 40
    };
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 16; i++)
            assert_in_range(out[c * 16 + i], wanted[i] - !!wanted[i], wanted[i] + 1);
    ls__picture single = { 1, 5, 1, (uint8_t[]) { 1, 2, 77, 4, 5 } };
    assert_ok(ls__picture_scale(&single, 1, 8, out));
    for (int i = 0; i < 64; i++) assert_int_equal(out[i], 77);
}

/* A photo is reduced while it is decoded, and looks the same. */
static void a_large_jpeg(void **state)
{
    (void)state;
    enum { SIZE = 20 };
    ls__picture p, whole;
    uint8_t a[3 * SIZE * SIZE], b[3 * SIZE * SIZE];
    open_golden("large.jpg", 0, &whole);
    assert_int_equal(whole.width, 301);
    assert_int_equal(whole.height, 203);
    open_golden("large.jpg", SIZE, &p);
    assert_int_equal(p.height, 51);
    assert_ok(ls__picture_scale(&whole, 3, SIZE, a));
    assert_ok(ls__picture_scale(&p, 3, SIZE, b));
    for (int i = 0; i < 3 * SIZE * SIZE; i++)
        if (abs(a[i] - b[i]) > 4) fail_msg("value %d: %d whole, %d reduced", i, a[i], b[i]);
    ls__picture_close(&p);
    ls__picture_close(&whole);
}

static void decode_fails(const void *bytes, size_t nbytes, const char *says)
{
    ls__picture p;
    assert_fails(ls__picture_decode(bytes, nbytes, "x.png", 0, &p), LS_ERR_DATA, says);
    assert_non_null(strstr(ls_error_text(), "x.png"));
    assert_null(p.pixels);
}

static void damage(void **state)
{
    (void)state;
    const char *const names[] = { "rgb.png", "interlaced.png", "rgb.jpg", "progressive.jpg" };
    for (int i = 0; i < 4; i++) {
        size_t nbytes;
        char *bytes = golden(names[i], &nbytes);
        const char *says = i < 2 ? "a truncated PNG file" : "a truncated JPEG file";
        decode_fails(bytes, nbytes * 3 / 4, says);
        decode_fails(bytes, nbytes - 20, says);
        ls__free(bytes);
    }
    size_t nbytes;
    char *bytes = golden("rgb.png", &nbytes);
    bytes[60] ^= 1;
    decode_fails(bytes, nbytes, "a damaged PNG file");
    ls__free(bytes);
    decode_fails("", 0, "not a PNG or JPEG file (it is empty)");
    decode_fails("<html>", 6, "HTML page");
    decode_fails("GIF89a....", 10, "it is a GIF picture: convert it");
    decode_fails("RIFF....WEBPVP8 ", 16, "it is a WebP picture");
    decode_fails("hello", 5, "not a PNG or JPEG file");
}

/* A header that promises more than its file can hold, or than anybody wants. */
static void huge_pictures(void **state)
{
    (void)state;
    static const uint8_t head[] = "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
    const struct {
        uint8_t sizes[8], crc[4];
        const char *says;
    } all[] = {
        { { 0, 1, 0, 0, 0, 1, 0, 0 }, { 0 }, "more than the 134217728 that are read" },
        { { 0, 0, 0x20, 0, 0, 0, 0x20, 0 }, { 0 }, "truncated: " },
    };
    for (int i = 0; i < 2; i++) {
        uint8_t bytes[200] = { 0 };
        memcpy(bytes, head, 16);
        memcpy(bytes + 16, all[i].sizes, 8);
        memcpy(bytes + 24, "\x08\x02\0\0\0", 5);
        uint32_t crc = 0xFFFFFFFFu; /* of type and content */
        for (int k = 12; k < 29; k++) {
            crc ^= bytes[k];
            for (int b = 0; b < 8; b++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
        for (int k = 0; k < 4; k++) bytes[29 + k] = (uint8_t)(~crc >> (24 - 8 * k));
        memcpy(bytes + 33, "\0\0\0\x10IDAT", 8);
        decode_fails(bytes, sizeof bytes, all[i].says);
    }
}

static void failed_allocations(void **state)
{
    (void)state;
    const char *const names[] = { "rgb.png", "cmyk.jpg" };
    for (int i = 0; i < 2; i++) {
        size_t nbytes;
        uint8_t out[3 * 25];
        char *bytes = golden(names[i], &nbytes);
        for (long n = 1;; n++) {
            ls__picture p;
            ls__alloc_fail_at(n);
            ls_status status = ls__picture_decode((uint8_t *)bytes, nbytes, "x", 0, &p);
            if (status == LS_OK) {
                status = ls__picture_scale(&p, 3, 5, out);
                ls__picture_close(&p);
            }
            ls__alloc_fail_at(0);
            if (status == LS_OK) {
                assert_true(n > 5);
                break;
            }
            assert_int_equal(status, LS_ERR_MEMORY);
        }
        ls__free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pillow_decodes),
        cmocka_unit_test(as_numpy_averages),
        cmocka_unit_test(growing_interpolates),
        cmocka_unit_test(a_large_jpeg),
        cmocka_unit_test(damage),
        cmocka_unit_test(huge_pictures),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
