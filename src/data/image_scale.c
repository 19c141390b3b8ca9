/* From any picture to a square of a given size, in integers, so that every machine gets the same
 * pixels. Each output pixel is a weighted sum along rows, then along columns; the weights of one sum
 * to 2^16 exactly. Datasets scale each picture each time it is read, in the loader's threads. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/data_file.h"
#include "data/image_file.h"

/* --- pictures --- */

ls_status ls__picture_create(uint32_t width, uint32_t height, int channels, size_t nbytes,
                             const char *name, ls__picture *out)
{
    /* Both formats need a bit for 64 pixels, deflate a byte for 1032 bytes. */
    enum { PIXELS_PER_BYTE_MAX = 1032 * 8 };
    uint64_t pixels = (uint64_t)width * height;
    if (width == 0 || height == 0)
        return ls_fail(LS_ERR_DATA, "%s: a picture of %u x %u pixels", name, width, height);
    if (pixels > LS__PIXELS_MAX)
        return ls_fail(LS_ERR_DATA,
                       "%s: %u x %u pixels are more than the %d that are read: scale it "
                       "down",
                       name, width, height, LS__PIXELS_MAX);
    if (pixels / PIXELS_PER_BYTE_MAX > nbytes)
        return ls_fail(LS_ERR_DATA, "%s: truncated: %zu bytes cannot hold %u x %u pixels", name,
                       nbytes, width, height);
    if (!out) return LS_OK;
    *out = (ls__picture) { .width = (int)width, .height = (int)height, .channels = channels };
    out->pixels = ls__alloc((size_t)pixels, (size_t)channels);
    return out->pixels ? LS_OK : LS_ERR_MEMORY;
}

void ls__picture_close(ls__picture *picture)
{
    ls__free(picture->pixels);
    *picture = (ls__picture) { 0 };
}

static const char *other_format(const uint8_t *bytes, size_t nbytes)
{
    static const struct {
        const char *magic, *name;
    } all[] = { { "GIF8", "GIF" }, { "BM", "BMP" }, { "II*", "TIFF" }, { "MM", "TIFF" } };
    if (nbytes >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return "WebP";
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        size_t n = strlen(all[i].magic);
        if (nbytes >= n && memcmp(bytes, all[i].magic, n) == 0) return all[i].name;
    }
    return NULL;
}

ls_status ls__picture_decode(const uint8_t *bytes, size_t nbytes, const char *name, int size,
                             ls__picture *out)
{
    *out = (ls__picture) { 0 };
    if (ls__png_is(bytes, nbytes)) return ls__png_decode(bytes, nbytes, name, out);
    if (ls__jpeg_is(bytes, nbytes)) return ls__jpeg_decode(bytes, nbytes, name, size, out);
    const char *other = other_format(bytes, nbytes);
    if (other)
        return ls_fail(LS_ERR_DATA, "%s: it is a %s picture: convert it to PNG or JPEG", name,
                       other);
    return ls_fail(LS_ERR_DATA, "%s: not a PNG or JPEG file%s", name,
                   nbytes == 0 ? " (it is empty)" : ls__data_file_guess(bytes, nbytes));
}

/* --- scaling --- */

/* How `size` pixels come from `side`: pixel i is the sum of weights times the pixels from begins[i]
 * on. */
typedef struct axis {
    int *begins, *counts; /* (size) */
    uint32_t *weights;    /* of all, one after another; each pixel's sum to WHOLE */
} axis;

enum { WHOLE = 1 << 16 };

/* Output pixel i covers [i * side, (i + 1) * side) when the input's have `size` each. */
static int average(int64_t side, int64_t size, int64_t i, int *begin, uint32_t *weights)
{
    int64_t from = i * side, to = from + side;
    int count = 0;
    uint32_t used = 0;
    *begin = (int)(from / size);
    for (int64_t at = *begin; at * size < to; at++) {
        int64_t end = (at + 1) * size < to ? (at + 1) * size : to;
        /* Rounded sums, not rounded terms: so they end at WHOLE. */
        uint32_t sum = (uint32_t)(((end - from) * WHOLE + side / 2) / side);
        weights[count++] = sum - used;
        used = sum;
    }
    return count;
}

/* The two neighbours of the output pixel's centre. */
static int interpolate(int64_t side, int64_t size, int64_t i, int *begin, uint32_t *weights)
{
    int64_t centre = ((2 * i + 1) * side * WHOLE) / (2 * size) - WHOLE / 2;
    if (centre < 0) centre = 0;
    *begin = (int)(centre / WHOLE);
    weights[1] = (uint32_t)(centre % WHOLE);
    weights[0] = WHOLE - weights[1];
    return *begin + 1 < side ? 2 : (weights[0] = WHOLE, 1);
}

static ls_status make_axis(int side, int size, axis *a)
{
    a->begins = ls__alloc((size_t)size, sizeof *a->begins);
    a->counts = ls__alloc((size_t)size, sizeof *a->counts);
    a->weights = ls__alloc((size_t)side + 2 * (size_t)size, sizeof *a->weights);
    if (!a->begins || !a->counts || !a->weights) return LS_ERR_MEMORY;
    uint32_t *weights = a->weights;
    for (int i = 0; i < size; i++) {
        a->counts[i] = side >= size ? average(side, size, i, &a->begins[i], weights)
                                    : interpolate(side, size, i, &a->begins[i], weights);
        weights += a->counts[i];
    }
    return LS_OK;
}

static void free_axis(axis *a)
{
    ls__free(a->begins);
    ls__free(a->counts);
    ls__free(a->weights);
}

/* One row of `channels` interleaved to size pixels of 8.8 bits. */
static void scale_row(const axis *a, int size, int channels, const uint8_t *row, uint16_t *out)
{
    const uint32_t *weights = a->weights;
    for (int i = 0; i < size; weights += a->counts[i], i++) {
        const uint8_t *from = row + a->begins[i] * channels;
        for (int c = 0; c < channels; c++) {
            uint32_t sum = 128;
            for (int k = 0; k < a->counts[i]; k++) sum += weights[k] * from[k * channels + c];
            *out++ = (uint16_t)(sum >> 8);
        }
    }
}

/* lines: (side, size * channels) of 8.8 bits; one output row to 8. */
static void scale_column(int count, const uint32_t *weights, const uint16_t *lines, int width,
                         uint8_t *out)
{
    for (int x = 0; x < width; x++) {
        uint32_t sum = 1u << 23;
        for (int k = 0; k < count; k++) sum += weights[k] * lines[(size_t)k * (size_t)width + x];
        out[x] = (uint8_t)(sum >> 24);
    }
}

/* Interleaved pixels to planes, grey to colour or back (ITU-R BT.601's luma). */
static void to_planes(const uint8_t *row, int has, int channels, int size, uint8_t *out)
{
    size_t plane = (size_t)size * (size_t)size;
    for (int x = 0; x < size; x++) {
        const uint8_t *p = row + x * has;
        if (channels == 1 && has == 3)
            out[x] = (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000) >> 16);
        else
            for (int c = 0; c < channels; c++) out[(size_t)c * plane + x] = p[has == 1 ? 0 : c];
    }
}

static void scale(const ls__picture *p, const axis *a, int side, int channels, int size,
                  uint16_t *lines, uint8_t *row, uint8_t *out)
{
    int left = (p->width - side) / 2, top = (p->height - side) / 2, width = size * p->channels;
    for (int y = 0; y < side; y++) {
        size_t begin = ((size_t)(top + y) * (size_t)p->width + left) * (size_t)p->channels;
        scale_row(a, size, p->channels, p->pixels + begin, lines + (size_t)y * (size_t)width);
    }
    const uint32_t *weights = a->weights;
    for (int y = 0; y < size; weights += a->counts[y], y++) {
        scale_column(a->counts[y], weights, lines + (size_t)a->begins[y] * (size_t)width, width,
                     row);
        to_planes(row, p->channels, channels, size, out + (size_t)y * (size_t)size);
    }
}

ls_status ls__picture_scale(const ls__picture *picture, int channels, int size, uint8_t *out)
{
    int side = picture->width < picture->height ? picture->width : picture->height;
    size_t width = (size_t)size * (size_t)picture->channels;
    axis a = { 0 };
    uint16_t *lines = ls__alloc((size_t)side, width * sizeof *lines);
    uint8_t *row = ls__alloc(width, 1);
    ls_status status = lines && row ? make_axis(side, size, &a) : LS_ERR_MEMORY;
    if (status == LS_OK) scale(picture, &a, side, channels, size, lines, row, out);
    free_axis(&a);
    ls__free(row);
    ls__free(lines);
    return status;
}
