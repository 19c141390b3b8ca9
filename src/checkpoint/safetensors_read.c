/* Reads the header of a safetensors file (https://github.com/huggingface/safetensors). Files come
 * from anywhere, so nothing in one is believed before it is checked, and the work is bounded before
 * the JSON parser sees a byte: a header of hostile JSON must not cost more memory than an honest
 * one. Workload: our own checkpoints of a few thousand tensors, weights of other programs, failed
 * downloads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

enum {
    HEADER_MAX = 100000000, /* the format's own limit */
    TOKENS_MAX = 4000000,   /* commas and opening brackets: 400,000 tensors of 3 dimensions */
    DEPTH_MAX = 3,          /* {"name":{"shape":[ */
    PEEK = 64
};

typedef struct dtype_bits {
    const char *name;
    int bits;
} dtype_bits;

static const dtype_bits dtypes[] = {
    { "BOOL", 8 },    { "F4", 4 },          { "F6_E2M3", 6 },     { "F6_E3M2", 6 },
    { "U8", 8 },      { "I8", 8 },          { "F8_E5M2", 8 },     { "F8_E4M3", 8 },
    { "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },
    { "U16", 16 },    { "F16", 16 },        { "BF16", 16 },       { "I32", 32 },
    { "U32", 32 },    { "F32", 32 },        { "C64", 64 },        { "F64", 64 },
    { "I64", 64 },    { "U64", 64 },
};

/* 0 = unknown. */
static int bits_of(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, dtype) == 0) return dtypes[i].bits;
    return 0;
}

/* --- what the file is, when it is not what it should be --- */

static bool starts_with(const unsigned char *head, size_t n, const char *text)
{
    return n >= strlen(text) && memcmp(head, text, strlen(text)) == 0;
}

/* The mistakes people make with downloads have their own names. */
static ls_status not_safetensors(const char *path, const unsigned char *head, size_t n)
{
    if (starts_with(head, n, "version https://git-lfs"))
        return ls_fail(LS_ERR_DATA,
                       "%s: a git-lfs pointer, not the file itself; fetch it with: git lfs pull",
                       path);
    if (starts_with(head, n, "<html") || starts_with(head, n, "<!DOCTYPE") ||
        starts_with(head, n, "<!doctype") || starts_with(head, n, "<HTML"))
        return ls_fail(LS_ERR_DATA,
                       "%s: a web page (HTML), not a safetensors file; download it again", path);
    if (starts_with(head, n, "PK\x03\x04"))
        return ls_fail(LS_ERR_DATA,
                       "%s: a zip archive (perhaps of torch.save), not a safetensors file", path);
    return LS_OK;
}

/* --- the JSON, before and while it is parsed --- */

/* Counts what the parser will have to allocate. Text inside strings is passed over, so brackets in
 * names do not count. */
static ls_status check_extent(const char *path, const char *json, size_t n)
{
    int64_t tokens = 0;
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = json[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        tokens += c == ',' || c == '{' || c == '[';
        if (depth > DEPTH_MAX)
            return ls_fail(LS_ERR_DATA, "%s: header: nested deeper than the format allows", path);
    }
    if (tokens > TOKENS_MAX)
        return ls_fail(LS_ERR_DATA, "%s: header: %" PRId64 " items; at most %d are read", path,
                       tokens, TOKENS_MAX);
    return LS_OK;
}

static ls_status check_metadata(const char *path, json_t *metadata)
{
    if (!json_is_object(metadata))
        return ls_fail(LS_ERR_DATA, "%s: header: __metadata__ is not an object", path);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return ls_fail(LS_ERR_DATA, "%s: header: __metadata__[\"%s\"] is not a string", path,
                           key);
    }
    return LS_OK;
}

static ls_status bad_tensor(const char *path, const char *name, const char *what)
{
    return ls_fail(LS_ERR_DATA, "%s: header: tensor \"%.100s\": %s", path, name, what);
}

static ls_status read_shape(const char *path, const char *name, const json_t *shape,
                            ls__safetensor *t)
{
    if (!json_is_array(shape)) return bad_tensor(path, name, "no shape");
    if (json_array_size(shape) > LS_MAX_RANK)
        return ls_fail(LS_ERR_DATA,
                       "%s: header: tensor \"%.100s\": %zu dimensions; at most %d are "
                       "supported",
                       path, name, json_array_size(shape), LS_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    for (int d = 0; d < t->rank; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return bad_tensor(path, name, "a dimension that is not a whole number >= 0");
        t->shape[d] = json_integer_value(size);
    }
    return LS_OK;
}

/* The bytes that shape and type ask for. */
static ls_status tensor_bytes(const char *path, const char *name, const ls__safetensor *t,
                              int64_t *nbytes)
{
    int64_t bits = bits_of(t->dtype);
    if (bits == 0)
        return ls_fail(LS_ERR_DATA, "%s: header: tensor \"%.100s\": unknown dtype \"%s\"", path,
                       name, t->dtype);
    for (int d = 0; d < t->rank; d++)
        if (__builtin_mul_overflow(bits, t->shape[d], &bits))
            return bad_tensor(path, name, "a shape whose size overflows");
    if (bits % 8 != 0) return bad_tensor(path, name, "its bits do not fill whole bytes");
    *nbytes = bits / 8;
    return LS_OK;
}

static ls_status read_offsets(const char *path, const char *name, const json_t *offsets,
                              ls__safetensor *t)
{
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e) ||
        json_integer_value(b) < 0)
        return bad_tensor(path, name, "data_offsets are not two whole numbers >= 0");
    t->begin = json_integer_value(b);
    t->end = json_integer_value(e);
    if (t->end < t->begin) return bad_tensor(path, name, "data_offsets end before they begin");
    return LS_OK;
}

/* Offsets are still relative to the data. */
static ls_status read_tensor(const char *path, const char *name, const json_t *entry,
                             ls__safetensor *t)
{
    if (!json_is_object(entry)) return bad_tensor(path, name, "not an object");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return bad_tensor(path, name, "no dtype");
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    if (strlen(dtype) >= sizeof t->dtype) return bad_tensor(path, name, "unknown dtype");
    LS_TRY(read_shape(path, name, json_object_get(entry, "shape"), t));
    LS_TRY(read_offsets(path, name, json_object_get(entry, "data_offsets"), t));
    int64_t nbytes = 0;
    LS_TRY(tensor_bytes(path, name, t, &nbytes));
    if (nbytes != t->end - t->begin)
        return ls_fail(LS_ERR_DATA,
                       "%s: header: tensor \"%.100s\": its shape takes %" PRId64
                       " bytes, its data_offsets span %" PRId64,
                       path, name, nbytes, t->end - t->begin);
    t->name = ls__strdup(name);
    return t->name ? LS_OK : LS_ERR_MEMORY;
}

static int by_place(const void *left, const void *right)
{
    const ls__safetensor *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end; /* empty ones first */
}

/* --- the parts together --- */

/* Sorted, gapless, and as long as the file: only now do offsets become positions in the file. */
static ls_status place(const char *path, ls__safetensors *s, int64_t data, int64_t file_bytes)
{
    if (s->count > 0) qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_place);
    int64_t end = 0;
    for (int i = 0; i < s->count; i++) {
        ls__safetensor *t = &s->tensors[i];
        if (t->begin != end)
            return bad_tensor(path, t->name, "its data does not begin where the one before ends");
        end = t->end;
    }
    if (end != file_bytes - data) {
        bool torn = end > file_bytes - data;
        return ls_fail(
            LS_ERR_DATA,
            "%s: %s: the header describes %" PRId64 "+%" PRId64 " bytes, the file has %" PRId64,
            path, torn ? "truncated" : "data behind the last tensor", data, end, file_bytes);
    }
    for (int i = 0; i < s->count; i++) {
        s->tensors[i].begin += data;
        s->tensors[i].end += data;
    }
    return LS_OK;
}

static ls_status read_header(const char *path, json_t *header, ls__safetensors *out)
{
    out->tensors = ls__alloc(json_object_size(header) + 1, sizeof *out->tensors);
    if (!out->tensors) return LS_ERR_MEMORY;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            LS_TRY(check_metadata(path, entry));
            out->metadata = json_incref(entry);
            continue;
        }
        ls_status status = read_tensor(path, name, entry, &out->tensors[out->count]);
        if (status != LS_OK) return status;
        out->count++;
    }
    return LS_OK;
}

static ls_status parse(const char *path, const char *json, size_t n, ls__safetensors *out)
{
    if (n == 0 || json[0] != '{')
        return ls_fail(LS_ERR_DATA, "%s: not a safetensors file: its header does not begin with {",
                       path);
    LS_TRY(check_extent(path, json, n));
    json_error_t error;
    json_t *header = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
    if (!header && json_error_code(&error) == json_error_out_of_memory)
        return ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    if (!header)
        return ls_fail(LS_ERR_DATA, "%s: header: not valid JSON at byte %d: %s", path,
                       8 + error.position, error.text);
    ls_status status = read_header(path, header, out);
    json_decref(header);
    return status;
}

static ls_status pread_all(int fd, const char *path, void *out, size_t nbytes, int64_t offset)
{
    char *next = out;
    while (nbytes > 0) {
        ssize_t n = pread(fd, next, nbytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
        if (n == 0) return ls_fail(LS_ERR_DATA, "%s: ends at byte %" PRId64, path, offset);
        next += n;
        nbytes -= (size_t)n;
        offset += n;
    }
    return LS_OK;
}

/* The length of the header, checked against the file's size. */
static ls_status header_bytes(int fd, const char *path, int64_t file_bytes, size_t *nbytes)
{
    unsigned char head[PEEK];
    size_t n = file_bytes < PEEK ? (size_t)file_bytes : PEEK;
    LS_TRY(pread_all(fd, path, head, n, 0));
    LS_TRY(not_safetensors(path, head, n));
    if (n < 8)
        return ls_fail(LS_ERR_DATA,
                       "%s: truncated: %" PRId64 " bytes, a safetensors file has at least 10", path,
                       file_bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | head[i];
    if (length > HEADER_MAX)
        return ls_fail(LS_ERR_DATA,
                       "%s: not a safetensors file: a header of %" PRIu64
                       " bytes, the format allows %d",
                       path, length, HEADER_MAX);
    if ((int64_t)length > file_bytes - 8)
        return ls_fail(LS_ERR_DATA,
                       "%s: truncated: its header alone takes %" PRIu64
                       " bytes, the file has %" PRId64,
                       path, 8 + length, file_bytes);
    *nbytes = (size_t)length;
    return LS_OK;
}

static ls_status open_file(const char *path, int *fd, int64_t *file_bytes)
{
    do *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    struct stat info;
    if (fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *file_bytes = info.st_size;
        return LS_OK;
    }
    close(*fd);
    return ls_fail(LS_ERR_DATA, "%s: not a file", path);
}

ls_status ls__safetensors_open(const char *path, ls__safetensors *out)
{
    *out = (ls__safetensors) { 0 };
    int fd;
    int64_t file_bytes = 0;
    size_t nbytes = 0;
    LS_TRY(open_file(path, &fd, &file_bytes));
    char *json = NULL;
    ls_status status;
    LS_TRY_GOTO(header_bytes(fd, path, file_bytes, &nbytes), status, done);
    if (!(json = ls__alloc(nbytes + 1, 1))) {
        status = LS_ERR_MEMORY;
        goto done;
    }
    LS_TRY_GOTO(pread_all(fd, path, json, nbytes, 8), status, done);
    LS_TRY_GOTO(parse(path, json, nbytes, out), status, done);
    status = place(path, out, 8 + (int64_t)nbytes, file_bytes);
done:
    ls__free(json);
    close(fd);
    if (status != LS_OK) ls__safetensors_free(out);
    return status;
}

void ls__safetensors_free(ls__safetensors *s)
{
    for (int i = 0; i < s->count; i++) ls__free(s->tensors[i].name);
    ls__free(s->tensors);
    json_decref(s->metadata);
    *s = (ls__safetensors) { 0 };
}

const ls__safetensor *ls__safetensors_find(const ls__safetensors *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
    return NULL;
}
