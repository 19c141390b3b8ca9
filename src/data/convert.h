/* Elements as files store them, turned into the types that fields have. */
#ifndef LS_DATA_CONVERT_H
#define LS_DATA_CONVERT_H

#include <lockstep/base.h>

/* count elements from in, which need not be aligned. */
typedef void ls__convert_fn(void *out, const uint8_t *in, int64_t count);

typedef struct ls__stored {
    int size;      /* bytes of a stored element */
    ls_dtype type; /* of the field */
    ls__convert_fn *convert;
} ls__stored;

/* be = big-endian, le = little-endian */
extern const ls__stored ls__stored_u8, ls__stored_i8;
extern const ls__stored ls__stored_i16be, ls__stored_i32be, ls__stored_f32be, ls__stored_f64be;
extern const ls__stored ls__stored_i16le, ls__stored_u16le, ls__stored_i32le, ls__stored_i64le,
    ls__stored_f32le, ls__stored_f64le;
extern const ls__stored ls__stored_token8; /* a byte that becomes i32 */

#endif
