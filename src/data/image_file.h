/* Pictures: PNG and JPEG files into pixels, and pixels into the square that a model takes. */
#ifndef LS_DATA_IMAGE_FILE_H
#define LS_DATA_IMAGE_FILE_H

#include <lockstep/base.h>

enum { LS__PIXELS_MAX = 1 << 27 }; /* of a picture; a larger one is refused */

typedef struct ls__picture {
    int width, height, channels; /* channels 1 (grey) or 3 */
    uint8_t *pixels;             /* (height, width, channels), freed by ls__free */
} ls__picture;

/* By content, whatever the name says. Grey stays grey, everything else becomes RGB: palettes are
 * looked up, 16 bits scaled to 8, alpha is ignored, CMYK converted. A JPEG may be reduced while it
 * is decoded, as long as its shorter side keeps twice `size` pixels; 0 = never. Errors begin with
 * name. */
ls_status ls__picture_decode(const uint8_t *bytes, size_t nbytes, const char *name, int size,
                             ls__picture *out);
void ls__picture_close(ls__picture *picture);

bool ls__png_is(const uint8_t *bytes, size_t nbytes);
bool ls__jpeg_is(const uint8_t *bytes, size_t nbytes);
ls_status ls__png_decode(const uint8_t *bytes, size_t nbytes, const char *name, ls__picture *out);
ls_status ls__jpeg_decode(const uint8_t *bytes, size_t nbytes, const char *name, int size,
                          ls__picture *out);
/* Checks the size that a header promises, and gets memory for it; nbytes: of the file. */
ls_status ls__picture_create(uint32_t width, uint32_t height, int channels, size_t nbytes,
                             const char *name, ls__picture *out);

/* The middle square of the picture, scaled to (channels, size, size): areas are averaged where it
 * shrinks, neighbours interpolated where it grows. */
ls_status ls__picture_scale(const ls__picture *picture, int channels, int size, uint8_t *out);

#endif
