/* The IDX format: header, types, and .gz files of it. Strict, because a file that is half right
 * (cut off, another dataset's labels) trains and gives wrong numbers. Opened once per run. */
#include <string.h>
#include <zlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/idx.h"

enum { HEADER_MAX = 4 + 4 * LS__IDX_RANK_MAX };

static const ls__stored *stored_of(uint8_t type)
{
    switch (type) {
    case 0x08:
        return &ls__stored_u8;
    case 0x09:
        return &ls__stored_i8;
    case 0x0B:
        return &ls__stored_i16be;
    case 0x0C:
        return &ls__stored_i32be;
    case 0x0D:
        return &ls__stored_f32be;
    case 0x0E:
        return &ls__stored_f64be;
    default:
        return NULL;
    }
}

static int64_t size_at(const uint8_t *p)
{
    return (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

/* The header in the first of `nbytes` bytes, and the size that the whole file must have. */
static ls_status parse_header(const uint8_t *bytes, size_t nbytes, const char *name, ls__idx *out,
                              size_t *expected)
{
    if (nbytes < 4 || bytes[0] != 0 || bytes[1] != 0)
        return ls_fail(LS_ERR_DATA, "%s: not an IDX file%s", name,
                       ls__data_file_guess(bytes, nbytes));
    out->stored = stored_of(bytes[2]);
    if (!out->stored)
        return ls_fail(LS_ERR_DATA, "%s: 0x%02x is not an element type of IDX", name, bytes[2]);
    out->rank = bytes[3];
    if (out->rank < 1 || out->rank > LS__IDX_RANK_MAX)
        return ls_fail(LS_ERR_DATA, "%s: the header says %d dimensions; 1 to %d are read", name,
                       out->rank, LS__IDX_RANK_MAX);
    size_t header = 4 + 4 * (size_t)out->rank;
    if (nbytes < header)
        return ls_fail(LS_ERR_DATA, "%s: truncated: %zu bytes; the header alone has %zu", name,
                       nbytes, header);
    *expected = (size_t)out->stored->size;
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = size_at(bytes + 4 + 4 * i);
        if (out->shape[i] == 0)
            return ls_fail(LS_ERR_DATA, "%s: dimension %d is 0: the file holds nothing", name, i);
        if (__builtin_mul_overflow(*expected, (size_t)out->shape[i], expected) ||
            *expected > (size_t)PTRDIFF_MAX - HEADER_MAX)
            return ls_fail(LS_ERR_DATA, "%s: the sizes in the header are beyond any file", name);
    }
    *expected += header;
    out->values = bytes + header;
    return LS_OK;
}

ls_status ls__idx_parse(const uint8_t *bytes, size_t nbytes, const char *name, ls__idx *out)
{
    size_t expected;
    LS_TRY(parse_header(bytes, nbytes, name, out, &expected));
    if (nbytes != expected)
        return ls_fail(LS_ERR_DATA, "%s: %s: %zu bytes, but its header promises %zu", name,
                       nbytes < expected ? "truncated" : "too long", nbytes, expected);
    return LS_OK;
}

bool ls__gzip_is(const uint8_t *bytes, size_t nbytes)
{
    return nbytes >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

typedef struct unpacking {
    z_stream stream;
    const char *name;
    const uint8_t *packed;
    size_t nbytes, taken; /* of packed; taken: handed to zlib */
} unpacking;

/* Inflates until out is full or the data ends; a file may be several gzip members in a row. *made <
 * size means the end. */
static ls_status inflate_into(unpacking *u, uint8_t *out, size_t size, size_t *made)
{
    enum { PIECE_IN = 1 << 17, PIECE_OUT = 1 << 30 }; /* zlib counts in 32 bits */
    *made = 0;
    while (*made < size) {
        if (u->stream.avail_in == 0) {
            size_t piece = u->nbytes - u->taken < PIECE_IN ? u->nbytes - u->taken : PIECE_IN;
            u->stream.next_in = (Bytef *)u->packed + u->taken;
            u->stream.avail_in = (uInt)piece;
            u->taken += piece;
        }
        size_t room = size - *made < PIECE_OUT ? size - *made : PIECE_OUT;
        u->stream.next_out = out + *made;
        u->stream.avail_out = (uInt)room;
        int code = inflate(&u->stream, Z_NO_FLUSH);
        size_t got = room - u->stream.avail_out;
        *made += got;
        bool all_taken = u->stream.avail_in == 0 && u->taken == u->nbytes;
        if (code == Z_STREAM_END) {
            if (all_taken) return LS_OK;
            code = inflateReset(&u->stream);
        } else if ((code == Z_OK || code == Z_BUF_ERROR) && all_taken && u->stream.avail_out > 0) {
            return ls_fail(LS_ERR_DATA,
                           "%s: truncated: the compressed data breaks off after %zu bytes", u->name,
                           u->nbytes);
        }
        if (code == Z_MEM_ERROR) return ls_fail(LS_ERR_MEMORY, "%s: out of memory", u->name);
        if (code != Z_OK && code != Z_BUF_ERROR)
            return ls_fail(LS_ERR_DATA, "%s: the compressed data is corrupt near byte %zu: %s",
                           u->name, u->taken - u->stream.avail_in,
                           u->stream.msg ? u->stream.msg : "no reason given");
    }
    return LS_OK;
}

/* Header, then memory for exactly what it promises, then the rest and proof that nothing follows. */
static ls_status unpack(unpacking *u, ls__data_file *out)
{
    uint8_t header[HEADER_MAX], beyond;
    size_t made, more, expected;
    ls__idx idx;
    LS_TRY(inflate_into(u, header, sizeof header, &made));
    LS_TRY(parse_header(header, made, u->name, &idx, &expected));
    if (expected / 1032 > u->nbytes) /* deflate packs at most 1032 bytes into one */
        return ls_fail(
            LS_ERR_DATA,
            "%s: truncated: %zu compressed bytes cannot hold the %zu its header promises", u->name,
            u->nbytes, expected);
    uint8_t *bytes = ls__map(expected > made ? expected : made);
    if (!bytes) return LS_ERR_MEMORY;
    *out = (ls__data_file) { .bytes = bytes, .nbytes = expected > made ? expected : made };
    out->in_memory = true;
    memcpy(bytes, header, made);
    if (made < expected) {
        LS_TRY(inflate_into(u, bytes + made, expected - made, &more));
        made += more;
    }
    more = made > expected;
    if (made == expected) LS_TRY(inflate_into(u, &beyond, 1, &more));
    if (made < expected || more)
        return ls_fail(LS_ERR_DATA,
                       "%s: %s: it unpacks to %s%zu bytes, but its header promises %zu", u->name,
                       more ? "too long" : "truncated", more ? "more than " : "",
                       more ? expected : made, expected);
    return LS_OK;
}

ls_status ls__idx_unpack(const uint8_t *packed, size_t nbytes, const char *name, ls__data_file *out)
{
    *out = (ls__data_file) { 0 };
    unpacking u = { .name = name, .packed = packed, .nbytes = nbytes };
    enum { GZIP_WINDOW = 15 + 16 };
    if (inflateInit2(&u.stream, GZIP_WINDOW) != Z_OK)
        return ls_fail(LS_ERR_MEMORY, "%s: out of memory", name);
    ls_status status = unpack(&u, out);
    inflateEnd(&u.stream);
    if (status != LS_OK) ls__data_file_close(out);
    return status;
}
