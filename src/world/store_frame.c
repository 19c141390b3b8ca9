/* Frames to bytes and back. The parser is strict, because a stream that lost its place can only be
 * closed; it never copies. Expected: frames of some hundred bytes, a few per second. */
#include "world/store_frame.h"

#include <endian.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

ls_status ls__frame_parse(const void *data, size_t nbytes, ls__frame *frame, size_t *used)
{
    const char *in = data;
    uint32_t rest, id;
    uint16_t key_nbytes;
    uint64_t number;
    *used = 0;
    if (nbytes < sizeof rest) return LS_OK;
    memcpy(&rest, in, sizeof rest);
    size_t size = sizeof rest + (size_t)le32toh(rest);
    if (size < LS__FRAME_HEADER || size > LS__RELAY_MAX)
        return ls_fail(LS_ERR_DATA, "a frame of %zu bytes is not in [%d, %d]", size,
                       LS__FRAME_HEADER, LS__RELAY_MAX);
    if (nbytes < LS__FRAME_HEADER) return LS_OK;

    unsigned type = (unsigned char)in[4], status = (unsigned char)in[5];
    memcpy(&key_nbytes, in + 6, sizeof key_nbytes);
    memcpy(&id, in + 8, sizeof id);
    memcpy(&number, in + 12, sizeof number);
    key_nbytes = le16toh(key_nbytes);
    if (type < LS__FRAME_SET || type >= LS__FRAME_TYPES)
        return ls_fail(LS_ERR_DATA, "a frame of unknown type %u", type);
    if (status > LS_ERR_DEVICE)
        return ls_fail(LS_ERR_DATA, "a frame with unknown status %u", status);
    if (key_nbytes > LS__KEY_MAX || LS__FRAME_HEADER + (size_t)key_nbytes > size)
        return ls_fail(LS_ERR_DATA, "a frame of %zu bytes with a key of %u bytes", size,
                       key_nbytes);
    size_t limit = type == LS__FRAME_RELAY ? LS__FRAME_MAX : LS__VALUE_MAX;
    if (size - LS__FRAME_HEADER - key_nbytes > limit)
        return ls_fail(LS_ERR_DATA, "a frame with a value beyond %zu bytes", limit);
    if (nbytes < size) return LS_OK;

    *frame = (ls__frame) {
        .type = (ls__frame_type)type,
        .status = (ls_status)status,
        .id = le32toh(id),
        .number = (int64_t)le64toh(number),
        .key = in + LS__FRAME_HEADER,
        .key_nbytes = key_nbytes,
        .value = in + LS__FRAME_HEADER + key_nbytes,
        .nbytes = size - LS__FRAME_HEADER - key_nbytes,
    };
    *used = size;
    return LS_OK;
}

size_t ls__frame_size(const ls__frame *frame)
{
    LS_ASSERT(frame->key_nbytes <= LS__KEY_MAX);
    LS_ASSERT(frame->nbytes <= (frame->type == LS__FRAME_RELAY ? LS__FRAME_MAX : LS__VALUE_MAX));
    return LS__FRAME_HEADER + frame->key_nbytes + frame->nbytes;
}

void ls__frame_write(const ls__frame *frame, void *out)
{
    char *to = out;
    uint32_t rest = htole32((uint32_t)(ls__frame_size(frame) - sizeof rest));
    uint16_t key_nbytes = htole16((uint16_t)frame->key_nbytes);
    uint32_t id = htole32(frame->id);
    uint64_t number = htole64((uint64_t)frame->number);
    memcpy(to, &rest, sizeof rest);
    to[4] = (char)frame->type;
    to[5] = (char)frame->status;
    memcpy(to + 6, &key_nbytes, sizeof key_nbytes);
    memcpy(to + 8, &id, sizeof id);
    memcpy(to + 12, &number, sizeof number);
    if (frame->key_nbytes > 0) memcpy(to + LS__FRAME_HEADER, frame->key, frame->key_nbytes);
    char *value = to + LS__FRAME_HEADER + frame->key_nbytes;
    if (frame->nbytes > 0 && frame->value != value) memcpy(value, frame->value, frame->nbytes);
}

void ls__frame_text(const ls__frame *frame, char *out, size_t limit)
{
    size_t n = frame->nbytes < limit - 1 ? frame->nbytes : limit - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)frame->value[i];
        bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        out[i] = control ? '?' : (char)c;
    }
    out[n] = '\0';
}

ls_status ls__bytes_reserve(ls__bytes *bytes, size_t nbytes)
{
    if (bytes->begin == bytes->end) bytes->begin = bytes->end = 0;
    if (bytes->capacity - bytes->end >= nbytes) return LS_OK;
    if (bytes->begin > 0) {
        memmove(bytes->data, bytes->data + bytes->begin, bytes->end - bytes->begin);
        bytes->end -= bytes->begin;
        bytes->begin = 0;
        if (bytes->capacity - bytes->end >= nbytes) return LS_OK;
    }
    size_t capacity = bytes->capacity > 0 ? bytes->capacity : 1024;
    while (capacity - bytes->end < nbytes) capacity *= 2;
    char *data = ls__realloc(bytes->data, capacity, 1);
    if (!data) return LS_ERR_MEMORY;
    bytes->data = data;
    bytes->capacity = capacity;
    return LS_OK;
}

ls_status ls__bytes_append_frame(ls__bytes *bytes, const ls__frame *frame)
{
    size_t size = ls__frame_size(frame);
    LS_TRY(ls__bytes_reserve(bytes, size));
    ls__frame_write(frame, bytes->data + bytes->end);
    bytes->end += size;
    return LS_OK;
}

ls_status ls__bytes_append_relay(ls__bytes *bytes, int rank, const ls__frame *inner)
{
    size_t inside = ls__frame_size(inner);
    ls__frame outer = { .type = LS__FRAME_RELAY, .number = rank, .nbytes = inside };
    LS_TRY(ls__bytes_reserve(bytes, LS__FRAME_HEADER + inside));
    char *to = bytes->data + bytes->end;
    ls__frame_write(inner, to + LS__FRAME_HEADER);
    outer.value = to + LS__FRAME_HEADER;
    ls__frame_write(&outer, to);
    bytes->end += LS__FRAME_HEADER + inside;
    return LS_OK;
}

void ls__bytes_free(ls__bytes *bytes)
{
    ls__free(bytes->data);
    *bytes = (ls__bytes) { 0 };
}
