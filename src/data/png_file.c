/* PNG through libpng. Its errors are long jumps: everything that must be freed then lives in one
 * struct outside the function that they leave. */
#include <png.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/image_file.h"

typedef struct png_file {
    const uint8_t *bytes;
    size_t nbytes, used;
    const char *name;
    png_structp png;
    png_infop info;
    png_bytep *rows; /* (height) */
    ls__picture *out;
    bool truncated;
    char error[128];
} png_file;

bool ls__png_is(const uint8_t *bytes, size_t nbytes)
{
    return nbytes >= 8 && png_sig_cmp(bytes, 0, 8) == 0;
}

static void on_error(png_structp png, png_const_charp text)
{
    png_file *f = png_get_error_ptr(png);
    snprintf(f->error, sizeof f->error, "%s", text);
    png_longjmp(png, 1);
}

/* A checksum that is wrong in a part which nobody needs. */
static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static void on_read(png_structp png, png_bytep data, size_t nbytes)
{
    png_file *f = png_get_io_ptr(png);
    if (nbytes > f->nbytes - f->used) {
        f->truncated = true;
        png_error(png, "the file ends within it");
    }
    memcpy(data, f->bytes + f->used, nbytes);
    f->used += nbytes;
}

/* Asks libpng for 8 bits, grey or RGB. */
static void ask_for_plain_pixels(png_file *f)
{
    int depth = png_get_bit_depth(f->png, f->info), color = png_get_color_type(f->png, f->info);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(f->png);
    if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(f->png);
    if (depth == 16) png_set_scale_16(f->png);
    png_set_strip_alpha(f->png);
    png_set_interlace_handling(f->png);
    png_read_update_info(f->png, f->info);
}

static ls_status read_pixels(png_file *f)
{
    png_read_info(f->png, f->info);
    ask_for_plain_pixels(f);
    uint32_t width = png_get_image_width(f->png, f->info);
    uint32_t height = png_get_image_height(f->png, f->info);
    int channels = png_get_channels(f->png, f->info);
    LS_ASSERT((channels == 1 || channels == 3) && png_get_bit_depth(f->png, f->info) == 8);
    LS_TRY(ls__picture_create(width, height, channels, f->nbytes, f->name, f->out));
    f->rows = ls__alloc(height, sizeof *f->rows);
    if (!f->rows) return LS_ERR_MEMORY;
    for (uint32_t y = 0; y < height; y++)
        f->rows[y] = f->out->pixels + (size_t)y * width * (size_t)channels;
    png_read_image(f->png, f->rows);
    png_read_end(f->png, NULL);
    return LS_OK;
}

static ls_status decode(png_file *f)
{
    if (setjmp(png_jmpbuf(f->png)))
        return ls_fail(LS_ERR_DATA, "%s: %s PNG file: %s", f->name,
                       f->truncated ? "a truncated" : "a damaged", f->error);
    png_set_read_fn(f->png, f, on_read);
    png_set_user_limits(f->png, LS__PIXELS_MAX, LS__PIXELS_MAX);
    png_set_chunk_malloc_max(f->png, 1 << 24); /* of a comment or colour profile */
    png_set_keep_unknown_chunks(f->png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    return read_pixels(f);
}

ls_status ls__png_decode(const uint8_t *bytes, size_t nbytes, const char *name, ls__picture *out)
{
    png_file f = { .bytes = bytes, .nbytes = nbytes, .name = name, .out = out };
    *out = (ls__picture) { 0 };
    f.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &f, on_error, on_warning);
    f.info = f.png ? png_create_info_struct(f.png) : NULL;
    ls_status status = f.info ? decode(&f) : ls_fail(LS_ERR_MEMORY, "%s: out of memory", name);
    png_destroy_read_struct(&f.png, &f.info, NULL);
    ls__free(f.rows);
    if (status != LS_OK) ls__picture_close(out);
    return status;
}
