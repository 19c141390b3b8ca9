/* The images themselves: shapes of random place, size and colour on a noisy ground. */
#include "images.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { EACH = 60 };
static const char *const shapes[] = { "circle", "cross", "ring", "square", "triangle" };

/* Whether the point (x, y), in units of the shape's radius, lies in the shape. */
static bool inside(int shape, float x, float y)
{
    float r = hypotf(x, y);
    switch (shape) {
    case 0:
        return r < 1;
    case 1:
        return (fabsf(x) < 0.35F || fabsf(y) < 0.35F) && fabsf(x) < 1 && fabsf(y) < 1;
    case 2:
        return r < 1 && r > 0.6F;
    case 3:
        return fabsf(x) < 0.85F && fabsf(y) < 0.85F;
    default:
        return y < 0.8F && fabsf(x) < (y + 1) * 0.6F;
    }
}

static void draw(int shape, ls_rng *rng, uint8_t *rgb) /* (H,W,3) */
{
    float radius = 6 + 7 * (float)ls_rng_uniform(rng);
    float cx = radius + (SIDE - 2 * radius) * (float)ls_rng_uniform(rng);
    float cy = radius + (SIDE - 2 * radius) * (float)ls_rng_uniform(rng);
    float ground = 40 + 60 * (float)ls_rng_uniform(rng), colour[3];
    for (int c = 0; c < 3; c++) colour[c] = 130 + 110 * (float)ls_rng_uniform(rng);
    for (int i = 0; i < SIDE * SIDE; i++) {
        float x = ((float)(i % SIDE) - cx) / radius, y = ((float)(i / SIDE) - cy) / radius;
        bool in = inside(shape, x, y);
        for (int c = 0; c < 3; c++) {
            float value = (in ? colour[c] : ground) + 12 * (float)ls_rng_normal(rng);
            rgb[i * 3 + c] = (uint8_t)fminf(fmaxf(value, 0), 255);
        }
    }
}

static bool write_ppm(const char *path, const uint8_t *rgb)
{
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool good = fprintf(f, "P6\n%d %d\n255\n", SIDE, SIDE) > 0;
    good = fwrite(rgb, 3, SIDE * SIDE, f) == SIDE * SIDE && good;
    return fclose(f) == 0 && good;
}

ls_status draw_images(const char *folder)
{
    ls_rng rng = { .key = { 5 }, .used = 4 };
    char path[300];
    uint8_t rgb[SIDE * SIDE * 3];
    if (mkdir(folder, 0777) != 0)
        return errno == EEXIST ? LS_OK : ls_fail(LS_ERR_IO, "%s: cannot be made", folder);
    for (int shape = 0; shape < 5; shape++) {
        snprintf(path, sizeof path, "%s/%s", folder, shapes[shape]);
        bool good = mkdir(path, 0777) == 0;
        for (int i = 0; i < EACH && good; i++) {
            draw(shape, &rng, rgb);
            snprintf(path, sizeof path, "%s/%s/%02d.ppm", folder, shapes[shape], i);
            good = write_ppm(path, rgb);
        }
        if (!good) return ls_fail(LS_ERR_IO, "%s: cannot be written", path);
    }
    return LS_OK;
}
