/* Stored elements and what they become: small integers are widened to i32, doubles become floats,
 * everything else keeps its bits. Reads go through memcpy, since files align nothing, and compilers
 * make single loads of it. */
#include "data/convert.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read on little-endian CPUs");

#define SAME8(x)  (x)
#define SAME16(x) (x)
#define SAME64(x) (x)
#define SWAP16(x) __builtin_bswap16(x)
#define SWAP32(x) __builtin_bswap32(x)
#define SWAP64(x) __builtin_bswap64(x)

/* Loads `bits` bits, puts them in order, reads them as `stored` and keeps them as `kept`. */
#define LS__STORED(name, bits, order, stored, kept, dtype)                                         \
    static void convert_##name(void *out, const uint8_t *in, int64_t count)                        \
    {                                                                                              \
        kept *to = out;                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                      \
            uint##bits##_t raw;                                                                    \
            memcpy(&raw, in + i * (int64_t)sizeof raw, sizeof raw);                                \
            raw = order(raw);                                                                      \
            stored value;                                                                          \
            memcpy(&value, &raw, sizeof value);                                                    \
            to[i] = (kept)value;                                                                   \
        }                                                                                          \
    }                                                                                              \
    const ls__stored ls__stored_##name = { bits / 8, dtype, convert_##name }

#define LS__COPIED(name, bits, dtype)                                                              \
    static void convert_##name(void *out, const uint8_t *in, int64_t count)                        \
    {                                                                                              \
        memcpy(out, in, (size_t)count *(bits / 8));                                                \
    }                                                                                              \
    const ls__stored ls__stored_##name = { bits / 8, dtype, convert_##name }

LS__COPIED(u8, 8, LS_DTYPE_U8);
LS__COPIED(i32le, 32, LS_DTYPE_I32);
LS__COPIED(i64le, 64, LS_DTYPE_I64);
LS__COPIED(f32le, 32, LS_DTYPE_F32);
LS__STORED(i8, 8, , int8_t, int32_t, LS_DTYPE_I32);
LS__STORED(i16be, 16, SWAP16, int16_t, int32_t, LS_DTYPE_I32);
LS__STORED(i32be, 32, SWAP32, int32_t, int32_t, LS_DTYPE_I32);
LS__STORED(f32be, 32, SWAP32, float, float, LS_DTYPE_F32);
LS__STORED(f64be, 64, SWAP64, double, float, LS_DTYPE_F32);
LS__STORED(i16le, 16, SAME16, int16_t, int32_t, LS_DTYPE_I32);
LS__STORED(u16le, 16, SAME16, uint16_t, int32_t, LS_DTYPE_I32);
LS__STORED(f64le, 64, SAME64, double, float, LS_DTYPE_F32);
LS__STORED(token8, 8, SAME8, uint8_t, int32_t, LS_DTYPE_I32);
