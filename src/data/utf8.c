/* Decoding UTF-8. Texts of hundreds of megabytes go through here once: ASCII, which most of them
 * are, is passed eight bytes at a time. */
#include "data/utf8.h"

#include <string.h>

int ls__utf8_decode(const uint8_t *text, size_t nbytes, uint32_t *code)
{
    uint8_t first = text[0];
    if (first < 0x80) {
        *code = first;
        return 1;
    }
    int length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (length == 0 || (size_t)length > nbytes) return 0;
    uint32_t value = first & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (text[i] & 0x3F);
    }
    bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
    if (overlong || (value >= 0xD800 && value < 0xE000) || value >= LS__CODE_POINTS) return 0;
    *code = value;
    return length;
}

int ls__utf8_encode(uint32_t code, uint8_t out[LS__UTF8_MAX])
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6) out[i] = (uint8_t)(0x80 | (code & 0x3F));
    out[0] = (uint8_t)(0xF00 >> length | code);
    return length;
}

size_t ls__utf8_valid(const uint8_t *text, size_t nbytes)
{
    const uint64_t high = 0x8080808080808080u;
    size_t i = 0;
    while (i < nbytes) {
        uint64_t eight;
        uint32_t code;
        while (nbytes - i >= sizeof eight) {
            memcpy(&eight, text + i, sizeof eight);
            if (eight & high) break;
            i += sizeof eight;
        }
        if (i == nbytes) break;
        int length = ls__utf8_decode(text + i, nbytes - i, &code);
        if (length == 0) break;
        i += (size_t)length;
    }
    return i;
}

const char *ls__utf8_guess(const uint8_t *text, size_t nbytes)
{
    bool utf16 =
        nbytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0);
    return utf16 ? "UTF-16" : "ISO-8859-1";
}

ls_status ls__utf8_fail(const uint8_t *text, size_t nbytes, size_t position, size_t offset)
{
    return ls_fail(LS_ERR_DATA,
                   "the text is not UTF-8 at byte %zu (0x%02X): convert it (iconv -f %s -t UTF-8), "
                   "or take bytes as tokens",
                   offset + position, text[position],
                   offset == 0 ? ls__utf8_guess(text, nbytes) : "ISO-8859-1");
}
