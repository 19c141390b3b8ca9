/* Mutated PNG and JPEG files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_picture.c"

#include "base/file.h"
#include "base/memory.h"

int main(void)
{
    static const char *const names[] = { "rgb.png",   "palette.png",    "interlaced.png",
                                         "bits1.png", "rgb.jpg",        "grey.jpg",
                                         "cmyk.jpg",  "progressive.jpg" };
    const char *source = getenv("LS_SOURCE_DIR");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[LS_PATH_MAX], *bytes;
        size_t nbytes;
        snprintf(path, sizeof path, "%s/tests/data/picture_golden/%s", source ? source : ".",
                 names[i]);
        if (ls__file_read(path, 1 << 20, &bytes, &nbytes) != LS_OK) return 1;
        fuzz_seed(bytes, nbytes, 1500);
        ls__free(bytes);
    }
    return 0;
}
