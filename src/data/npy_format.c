/* The .npy header is a Python dictionary in text. Instead of a Python parser: a cursor that takes
 * exactly the three keys NumPy writes, in any order, each once, and nothing else. Opened once per
 * run. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "data/data_file.h"
#include "data/npy.h"

enum { DESCR_MAX = 32, KEY_MAX = 16, DIMENSIONS_MAX = 32 };

typedef struct cursor {
    const char *at, *end;
    const char *name;
} cursor;

typedef struct header {
    char descr[DESCR_MAX];
    bool fortran;
    int rank;
    int64_t shape[DIMENSIONS_MAX];
} header;

static ls_status garbled(const cursor *c, const char *wanted)
{
    int n = c->end - c->at < 20 ? (int)(c->end - c->at) : 20;
    char found[21];
    for (int i = 0; i < n; i++) found[i] = c->at[i] >= ' ' && c->at[i] <= '~' ? c->at[i] : '?';
    found[n] = '\0';
    return ls_fail(LS_ERR_DATA, "%s: the .npy header is garbled: %s expected where it says \"%s\"",
                   c->name, wanted, found);
}

static void skip_spaces(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

static bool take(cursor *c, const char *word)
{
    skip_spaces(c);
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
    c->at += n;
    return true;
}

/* 'text' or "text", without escapes. */
static ls_status take_string(cursor *c, char *out, size_t size, const char *wanted)
{
    skip_spaces(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return garbled(c, wanted);
    const char *begin = c->at + 1;
    const char *close = memchr(begin, *c->at, (size_t)(c->end - begin));
    if (!close || (size_t)(close - begin) >= size || memchr(begin, '\\', (size_t)(close - begin)))
        return garbled(c, wanted);
    memcpy(out, begin, (size_t)(close - begin));
    out[close - begin] = '\0';
    c->at = close + 1;
    return LS_OK;
}

static ls_status take_number(cursor *c, int64_t *out)
{
    skip_spaces(c);
    const char *begin = c->at;
    *out = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *c->at - '0', out))
            return ls_fail(LS_ERR_DATA, "%s: a size in the .npy header is beyond any file",
                           c->name);
    if (c->at == begin) return garbled(c, "a size");
    if (c->at < c->end && *c->at == 'L') c->at++; /* Python 2 wrote 3L */
    return LS_OK;
}

/* (), (3,) or (3, 4); a comma may stand at the end. */
static ls_status take_shape(cursor *c, header *h)
{
    if (!take(c, "(")) return garbled(c, "a tuple of sizes");
    bool comma = true;
    h->rank = 0;
    while (!take(c, ")")) {
        if (!comma) return garbled(c, "a comma or )");
        if (h->rank == DIMENSIONS_MAX)
            return ls_fail(LS_ERR_DATA, "%s: the .npy header lists more than %d sizes", c->name,
                           DIMENSIONS_MAX);
        LS_TRY(take_number(c, &h->shape[h->rank++]));
        comma = take(c, ",");
    }
    if (h->rank == 1 && !comma) return garbled(c, "a tuple (a single size has a comma behind it)");
    return LS_OK;
}

static ls_status take_value(cursor *c, const char *key, header *h, unsigned *seen)
{
    unsigned bit;
    if (strcmp(key, "descr") == 0) {
        bit = 1;
        skip_spaces(c);
        if (c->at < c->end && *c->at == '[')
            return ls_fail(LS_ERR_DATA,
                           "%s: holds records; save one array per field: a = numpy.load(\"%s\"); "
                           "numpy.save(NAME, a[FIELD])",
                           c->name, c->name);
        LS_TRY(take_string(c, h->descr, sizeof h->descr, "an element type"));
    } else if (strcmp(key, "fortran_order") == 0) {
        bit = 2;
        h->fortran = take(c, "True");
        if (!h->fortran && !take(c, "False")) return garbled(c, "True or False");
    } else if (strcmp(key, "shape") == 0) {
        bit = 4;
        LS_TRY(take_shape(c, h));
    } else {
        return ls_fail(LS_ERR_DATA, "%s: the .npy header has the unknown key '%s'", c->name, key);
    }
    if (*seen & bit)
        return ls_fail(LS_ERR_DATA, "%s: the .npy header has the key '%s' twice", c->name, key);
    *seen |= bit;
    return LS_OK;
}

static ls_status parse_literal(cursor *c, header *h)
{
    unsigned seen = 0;
    bool comma = true;
    if (!take(c, "{")) return garbled(c, "{");
    while (!take(c, "}")) {
        char key[KEY_MAX];
        if (!comma) return garbled(c, "a comma or }");
        LS_TRY(take_string(c, key, sizeof key, "a key"));
        if (!take(c, ":")) return garbled(c, ":");
        LS_TRY(take_value(c, key, h, &seen));
        comma = take(c, ",");
    }
    skip_spaces(c);
    if (c->at != c->end) return garbled(c, "the header's end");
    if (seen != 7)
        return ls_fail(LS_ERR_DATA, "%s: the .npy header lacks '%s'", c->name,
                       !(seen & 1)   ? "descr"
                       : !(seen & 2) ? "fortran_order"
                                     : "shape");
    return LS_OK;
}

static ls_status find_stored(const char *name, const char *descr, const ls__stored **out)
{
    static const struct {
        const char *descr;
        const ls__stored *stored;
    } known[] = {
        { "|b1", &ls__stored_u8 },    { "|u1", &ls__stored_u8 },    { "<u1", &ls__stored_u8 },
        { "|i1", &ls__stored_i8 },    { "<i1", &ls__stored_i8 },    { "<i2", &ls__stored_i16le },
        { "<u2", &ls__stored_u16le }, { "<i4", &ls__stored_i32le }, { "<i8", &ls__stored_i64le },
        { "<f4", &ls__stored_f32le }, { "<f8", &ls__stored_f64le },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].descr, descr) == 0) {
            *out = known[i].stored;
            return LS_OK;
        }
    }
    if (strchr(descr, 'O'))
        return ls_fail(LS_ERR_DATA,
                       "%s: holds Python objects, which only Python can read; save numbers: "
                       "numpy.save(\"%s\", numpy.load(\"%s\", allow_pickle=True).astype(\"f4\"))",
                       name, name, name);
    return ls_fail(LS_ERR_DATA,
                   "%s: elements of type \"%s\"%s are not read; convert them: numpy.save(\"%s\", "
                   "numpy.load(\"%s\").astype(\"<f4\"))",
                   name, descr, descr[0] == '>' ? " (big-endian)" : "", name, name);
}

/* Where the literal lies: behind magic, version and its own length. */
static ls_status find_literal(const uint8_t *bytes, size_t nbytes, const char *name, cursor *c)
{
    if (nbytes < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return ls_fail(LS_ERR_DATA, "%s: not a .npy file%s", name,
                       nbytes >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0
                           ? " (it ends within its first 10 bytes)"
                           : ls__data_file_guess(bytes, nbytes));
    int major = bytes[6];
    if (major < 1 || major > 3 || bytes[7] != 0)
        return ls_fail(LS_ERR_DATA, "%s: version %d.%d of the .npy format is not known", name,
                       major, bytes[7]);
    size_t begin = major == 1 ? 10 : 12;
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (major > 1 && nbytes >= begin) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (nbytes < begin || length > nbytes - begin)
        return ls_fail(LS_ERR_DATA, "%s: truncated: %zu bytes, but its header alone has %zu", name,
                       nbytes, begin + length);
    *c = (cursor) { .at = (const char *)bytes + begin,
                    .end = (const char *)bytes + begin + length,
                    .name = name };
    return LS_OK;
}

static ls_status check_size(const header *h, size_t nbytes, size_t begin, const char *name,
                            const ls__npy *out)
{
    size_t expected = (size_t)out->stored->size;
    for (int i = 0; i < h->rank; i++) {
        if (h->shape[i] == 0)
            return ls_fail(LS_ERR_DATA, "%s: dimension %d is 0: the array is empty", name, i);
        if (__builtin_mul_overflow(expected, (size_t)h->shape[i], &expected) ||
            expected > (size_t)PTRDIFF_MAX - begin)
            return ls_fail(LS_ERR_DATA, "%s: the sizes in the header are beyond any file", name);
    }
    expected += begin;
    if (nbytes != expected)
        return ls_fail(LS_ERR_DATA, "%s: %s: %zu bytes, but its header promises %zu", name,
                       nbytes < expected ? "truncated" : "too long", nbytes, expected);
    return LS_OK;
}

ls_status ls__npy_parse(const uint8_t *bytes, size_t nbytes, const char *name, ls__npy *out)
{
    cursor c = { .name = name };
    header h = { .rank = 0 };
    LS_TRY(find_literal(bytes, nbytes, name, &c));
    const char *end = c.end;
    LS_TRY(parse_literal(&c, &h));
    LS_TRY(find_stored(name, h.descr, &out->stored));
    if (h.rank < 1 || h.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_DATA,
                       "%s: %d dimensions; 1 to %d are read, the first of which counts samples",
                       name, h.rank, LS_MAX_RANK);
    if (h.fortran && h.rank > 1)
        return ls_fail(LS_ERR_DATA,
                       "%s: in Fortran order, where a sample's elements lie apart; convert it: "
                       "numpy.save(\"%s\", numpy.ascontiguousarray(numpy.load(\"%s\")))",
                       name, name, name);
    size_t begin = (size_t)((const uint8_t *)end - bytes);
    LS_TRY(check_size(&h, nbytes, begin, name, out));
    out->rank = h.rank;
    memcpy(out->shape, h.shape, (size_t)h.rank * sizeof *h.shape);
    out->values = bytes + begin;
    return LS_OK;
}
