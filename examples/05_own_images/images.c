/* Finding and decoding images: this is where your own format goes (libpng, stb_image, ...). */
#include "images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ls_status decode_image(const char *path, uint8_t *rgb)
{
    uint8_t pixels[SIDE * SIDE][3];
    int width, height, levels;
    FILE *f = fopen(path, "rb");
    if (!f) return ls_fail(LS_ERR_DATA, "cannot open %s", path);
    bool good = fscanf(f, "P6 %d %d %d", &width, &height, &levels) == 3 && width == SIDE &&
                height == SIDE && levels == 255 && fgetc(f) == '\n' &&
                fread(pixels, sizeof pixels, 1, f) == 1;
    fclose(f);
    if (!good) return ls_fail(LS_ERR_DATA, "%s is not a PPM of %d x %d pixels", path, SIDE, SIDE);
    for (int i = 0; i < SIDE * SIDE; i++) /* (H,W,C) to (C,H,W) */
        for (int c = 0; c < 3; c++) rgb[c * SIDE * SIDE + i] = pixels[i][c];
    return LS_OK;
}

ls_status scan_folder(const char *folder, struct files *out)
{
    char pattern[LS_PATH_MAX];
    *out = (struct files) { 0 };
    snprintf(pattern, sizeof pattern, "%s/*/*", folder);
    if (glob(pattern, 0, NULL, &out->found) != 0) /* sorted: the same order on every rank */
        return ls_fail(LS_ERR_DATA, "%s: no images in sub-folders", folder);
    out->n = (int64_t)out->found.gl_pathc;
    out->paths = out->found.gl_pathv;
    out->labels = malloc((size_t)out->n * sizeof *out->labels);
    if (!out->labels) return ls_fail(LS_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < out->n; i++) {
        size_t folder_length = (size_t)(strrchr(out->paths[i], '/') - out->paths[i]) + 1;
        bool same = i > 0 && strncmp(out->paths[i], out->paths[i - 1], folder_length) == 0;
        if (!same) out->classes++;
        out->labels[i] = (int32_t)(out->classes - 1);
    }
    return LS_OK;
}

void free_files(struct files *files)
{
    globfree(&files->found);
    free(files->labels);
}
