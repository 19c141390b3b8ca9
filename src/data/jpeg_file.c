/* JPEG through libjpeg (turbo). What it only warns of, a file that breaks off or bits that are no
 * code, is an error here: it would train on grey halves. Its errors are long jumps, as libpng's. */
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/image_file.h"

enum { SCANS_MAX = 200 }; /* of a progressive file: each costs a pass over all of it */

typedef struct jpeg_file {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    const uint8_t *bytes;
    size_t nbytes;
    const char *name;
    int size;
    ls__picture *out;
    uint8_t *line; /* of CMYK */
    bool truncated;
    char error[JMSG_LENGTH_MAX];
} jpeg_file;

bool ls__jpeg_is(const uint8_t *bytes, size_t nbytes)
{
    return nbytes >= 3 && memcmp(bytes, "\xFF\xD8\xFF", 3) == 0;
}

static void on_error(j_common_ptr jpeg)
{
    jpeg_file *f = jpeg->client_data;
    jpeg->err->format_message(jpeg, f->error);
    longjmp(f->leave, 1);
}

/* level -1 is a warning of damage. */
static void on_message(j_common_ptr jpeg, int level)
{
    jpeg_file *f = jpeg->client_data;
    int code = jpeg->err->msg_code;
    if (level >= 0) return;
    f->truncated = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER;
    if (f->truncated || code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC) on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    jpeg_file *f = jpeg->client_data;
    if (f->jpeg.input_scan_number <= SCANS_MAX) return;
    snprintf(f->error, sizeof f->error, "more than %d scans", SCANS_MAX);
    longjmp(f->leave, 1);
}

/* Adobe's programs store CMYK inverted, and say that they wrote the file. */
static void cmyk_to_rgb(const uint8_t *from, int width, bool inverted, uint8_t *to)
{
    uint8_t flip = inverted ? 0 : 255;
    for (int x = 0; x < width; x++, from += 4, to += 3)
        for (int c = 0; c < 3; c++)
            to[c] = (uint8_t)(((from[c] ^ flip) * (from[3] ^ flip) + 127) / 255);
}

static void choose_output(jpeg_file *f)
{
    struct jpeg_decompress_struct *j = &f->jpeg;
    int side = (int)(j->image_width < j->image_height ? j->image_width : j->image_height);
    j->scale_num = 1;
    j->scale_denom = 1;
    while (f->size > 0 && j->scale_denom < 8 && side / ((int)j->scale_denom * 2) >= 2 * f->size)
        j->scale_denom *= 2;
    if (j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK)
        j->out_color_space = JCS_CMYK;
    else
        j->out_color_space = j->jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
}

static ls_status read_pixels(jpeg_file *f)
{
    struct jpeg_decompress_struct *j = &f->jpeg;
    jpeg_read_header(j, TRUE);
    choose_output(f);
    jpeg_calc_output_dimensions(j);
    int channels = j->out_color_space == JCS_GRAYSCALE ? 1 : 3;
    LS_TRY(ls__picture_create(j->image_width, j->image_height, channels, f->nbytes, f->name, NULL));
    LS_TRY(ls__picture_create(j->output_width, j->output_height, channels, f->nbytes, f->name,
                              f->out));
    bool cmyk = j->out_color_space == JCS_CMYK;
    f->line = cmyk ? ls__alloc(j->output_width, 4) : NULL;
    if (cmyk && !f->line) return LS_ERR_MEMORY;
    jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height) {
        uint8_t *row =
            f->out->pixels + (size_t)j->output_scanline * j->output_width * (size_t)channels;
        JSAMPROW line = cmyk ? f->line : row;
        jpeg_read_scanlines(j, &line, 1);
        if (cmyk) cmyk_to_rgb(line, (int)j->output_width, j->saw_Adobe_marker, row);
    }
    jpeg_finish_decompress(j);
    return LS_OK;
}

static ls_status decode(jpeg_file *f)
{
    if (setjmp(f->leave))
        return ls_fail(LS_ERR_DATA, "%s: %s JPEG file: %s", f->name,
                       f->truncated ? "a truncated" : "a damaged", f->error);
    jpeg_create_decompress(&f->jpeg);
    f->jpeg.progress = &f->progress;
    jpeg_mem_src(&f->jpeg, f->bytes, (unsigned long)f->nbytes);
    return read_pixels(f);
}

ls_status ls__jpeg_decode(const uint8_t *bytes, size_t nbytes, const char *name, int size,
                          ls__picture *out)
{
    *out = (ls__picture) { 0 };
    jpeg_file *f = ls__alloc(1, sizeof *f);
    if (!f) return LS_ERR_MEMORY;
    f->bytes = bytes;
    f->nbytes = nbytes;
    f->name = name;
    f->size = size;
    f->out = out;
    f->jpeg.err = jpeg_std_error(&f->errors);
    f->jpeg.client_data = f;
    f->errors.error_exit = on_error;
    f->errors.emit_message = on_message;
    f->progress.progress_monitor = on_progress;
    ls_status status = decode(f);
    jpeg_destroy_decompress(&f->jpeg);
    ls__free(f->line);
    ls__free(f);
    if (status != LS_OK) ls__picture_close(out);
    return status;
}
