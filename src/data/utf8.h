/* UTF-8 (RFC 3629): strict, so that every text has one reading. */
#ifndef LS_DATA_UTF8_H
#define LS_DATA_UTF8_H

#include <lockstep/base.h>

enum { LS__CODE_POINTS = 0x110000, LS__UTF8_MAX = 4 /* bytes of a character */ };

/* The character at text, of which nbytes > 0 are left: its bytes, or 0 if there is none (cut off,
 * overlong, a surrogate, beyond U+10FFFF). */
int ls__utf8_decode(const uint8_t *text, size_t nbytes, uint32_t *code);
int ls__utf8_encode(uint32_t code, uint8_t out[LS__UTF8_MAX]);
/* How many of the first bytes are whole characters; all of them in a valid text. */
size_t ls__utf8_valid(const uint8_t *text, size_t nbytes);
/* Fails with the position, `offset` bytes added to it, and what to do; as a last resort bytes are
 * tokens. */
ls_status ls__utf8_fail(const uint8_t *text, size_t nbytes, size_t position, size_t offset);
/* iconv's name of what a text that is not UTF-8 probably is. */
const char *ls__utf8_guess(const uint8_t *text, size_t nbytes);

#endif
