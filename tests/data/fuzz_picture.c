/* Any bytes as a picture: an error, or pixels that can be scaled. A PNG's checksums are made right
 * first, else hardly an input would get beyond them. */
#include "fuzzing.h"

#include <stdlib.h>

#include "data/image_file.h"

static uint32_t crc_of(const uint8_t *bytes, size_t nbytes)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < nbytes; i++) {
        crc ^= bytes[i];
        for (int b = 0; b < 8; b++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* Chunks after the 8 bytes of signature: length, type, content, checksum. */
static void mend_checksums(uint8_t *png, size_t nbytes)
{
    for (size_t at = 8; nbytes - at >= 12;) {
        size_t length = (size_t)png[at] << 24 | (size_t)png[at + 1] << 16 |
                        (size_t)png[at + 2] << 8 | png[at + 3];
        if (length > nbytes - at - 12) return;
        uint32_t crc = crc_of(png + at + 4, length + 4);
        for (int i = 0; i < 4; i++)
            png[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += length + 12;
    }
}

static void decode(const uint8_t *data, size_t nbytes)
{
    enum { SIZE = 7, LARGE = 1 << 20 };
    ls__picture p;
    uint8_t out[3 * SIZE * SIZE];
    uint64_t sum = 0;
    if (ls__picture_decode(data, nbytes, "fuzz", (int)(nbytes % 3), &p) != LS_OK) return;
    size_t n = (size_t)p.width * (size_t)p.height * (size_t)p.channels;
    for (size_t i = 0; i < n; i++) sum += p.pixels[i];
    if (n < LARGE && ls__picture_scale(&p, 1 + 2 * (int)(sum % 2), SIZE, out) != LS_OK) abort();
    ls__picture_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    decode(data, nbytes);
    if (!ls__png_is(data, nbytes)) return 0;
    uint8_t *mended = malloc(nbytes);
    if (!mended) abort();
    memcpy(mended, data, nbytes);
    mend_checksums(mended, nbytes);
    decode(mended, nbytes);
    free(mended);
    return 0;
}
