/* A folder of images, one sub-folder per class. */
#ifndef IMAGES_H
#define IMAGES_H

#include <glob.h>

#include <lockstep/lockstep.h>

enum { SIDE = 32 };

struct files {
    int64_t n;
    char **paths;    /* (n) */
    int32_t *labels; /* (n) */
    int64_t classes; /* sub-folders, numbered in alphabetic order */
    glob_t found;
};

/* Reads a binary PPM (P6) of SIDE x SIDE pixels into rgb (3,SIDE,SIDE). */
ls_status decode_image(const char *path, uint8_t *rgb);
ls_status scan_folder(const char *folder, struct files *out);
void free_files(struct files *files);
/* Draws 60 images of each of five shapes into a new folder; does nothing when it is there. */
ls_status draw_images(const char *folder);

#endif
