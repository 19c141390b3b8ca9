/* Crop and mirror are drawn from the sample's own stream, always in the same order: vertical,
 * horizontal, mirror. The padded image is never made: rows are converted straight to where the crop
 * puts them. */
#include "data/augment.h"

#include <string.h>

static void mirror(uint8_t *row, int64_t width, size_t size)
{
    uint8_t t[8];
    for (uint8_t *a = row, *b = row + (size_t)(width - 1) * size; a < b; a += size, b -= size) {
        memcpy(t, a, size);
        memcpy(a, b, size);
        memcpy(b, t, size);
    }
}

void ls__augment(const ls_image_options *options, ls_rng *rng, const ls__stored *stored,
                 const int64_t shape[3], const uint8_t *in, void *out)
{
    int64_t height = shape[1], width = shape[2], down = 0, right = 0;
    size_t size = ls_dtype_size(stored->type);
    bool flip = false;
    if (rng && options->crop_padding > 0) {
        down = ls_rng_below(rng, 2 * (int64_t)options->crop_padding + 1) - options->crop_padding;
        right = ls_rng_below(rng, 2 * (int64_t)options->crop_padding + 1) - options->crop_padding;
    }
    if (rng && options->flip_horizontal) flip = ls_rng_u32(rng) & 1;
    if (!down && !right && !flip) {
        stored->convert(out, in, shape[0] * height * width);
        return;
    }
    int64_t from = right > 0 ? right : 0, to = right > 0 ? width : width + right; /* in source */
    for (int64_t row = 0; row < shape[0] * height; row++) {
        uint8_t *line = (uint8_t *)out + (size_t)(row * width) * size;
        int64_t y = row % height + down;
        memset(line, 0, (size_t)width * size);
        if (y < 0 || y >= height || from >= to) continue;
        stored->convert(line + (size_t)(from - right) * size,
                        in + ((row + down) * width + from) * stored->size, to - from);
        if (flip) mirror(line, width, size);
    }
}
