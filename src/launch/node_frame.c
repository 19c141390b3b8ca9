/* Frames between launchers, written and read by one table, so that nothing is read that was not
 * checked: the bytes may come from anybody who found the port. Expected: a few a second and node, and
 * lines of output. */
#include "launch/node_frame.h"

#include <limits.h>
#include <string.h>

#include "base/check.h"

static const struct {
    int numbers, texts;
    uint32_t longest[LS__NODE_TEXTS];
} shapes[LS__NODE_FRAMES] = {
#define SHAPE(name, numbers, texts, ...) { numbers, texts, __VA_ARGS__ },
    LS__NODE_FRAME_MAP(SHAPE)
#undef SHAPE
};

static void put(char *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++) at[i] = (char)(value >> (8 * i) & 0xff);
}

static uint64_t get(const char *at, int nbytes)
{
    uint64_t value = 0;
    for (int i = 0; i < nbytes; i++) value |= (uint64_t)(unsigned char)at[i] << (8 * i);
    return value;
}

static size_t cut(const ls__node_frame *frame, int i)
{
    size_t longest = shapes[frame->type].longest[i];
    return frame->texts[i].nbytes < longest ? frame->texts[i].nbytes : longest;
}

ls_status ls__node_frame_append(ls__bytes *bytes, const ls__node_frame *frame)
{
    int numbers = shapes[frame->type].numbers, texts = shapes[frame->type].texts;
    size_t nbytes = 5 + 8 * (size_t)numbers;
    for (int i = 0; i < texts; i++) nbytes += 4 + cut(frame, i);
    LS_TRY(ls__bytes_reserve(bytes, nbytes));
    char *at = bytes->data + bytes->end;
    put(at, nbytes - 4, 4);
    at[4] = (char)frame->type;
    at += 5;
    for (int i = 0; i < numbers; i++, at += 8) put(at, (uint64_t)frame->numbers[i], 8);
    for (int i = 0; i < texts; i++) {
        put(at, cut(frame, i), 4);
        if (cut(frame, i) > 0) memcpy(at + 4, frame->texts[i].data, cut(frame, i));
        at += 4 + cut(frame, i);
    }
    bytes->end += nbytes;
    return LS_OK;
}

static ls_status wrong(const char *what)
{
    return ls_fail(LS_ERR_DATA, "not a launcher's frame: %s", what);
}

ls_status ls__node_frame_parse(const void *data, size_t nbytes, size_t limit, ls__node_frame *frame,
                               size_t *used)
{
    const char *at = data;
    *used = 0;
    if (nbytes < 5) return LS_OK;
    uint64_t rest = get(at, 4);
    if (rest < 1 || rest + 4 > limit) return wrong("its length");
    unsigned type = (unsigned char)at[4];
    if (type >= LS__NODE_FRAMES) return wrong("its type");
    if (nbytes < rest + 4) return LS_OK;
    const char *end = at + 4 + rest;
    at += 5;
    memset(frame, 0, sizeof *frame);
    frame->type = (ls__node_frame_type)type;
    if (end - at < 8 * shapes[type].numbers) return wrong("too short");
    for (int i = 0; i < shapes[type].numbers; i++, at += 8) frame->numbers[i] = (int64_t)get(at, 8);
    for (int i = 0; i < shapes[type].texts; i++) {
        if (end - at < 4) return wrong("too short");
        uint64_t length = get(at, 4);
        at += 4;
        if (length > shapes[type].longest[i] || (uint64_t)(end - at) < length)
            return wrong("a text's length");
        frame->texts[i] = (ls__node_text) { at, (size_t)length };
        at += length;
    }
    if (at != end) return wrong("too long");
    *used = (size_t)rest + 4;
    return LS_OK;
}

ls__node_text ls__node_text_of(const char *text)
{
    return (ls__node_text) { text, strlen(text) };
}

void ls__node_text_copy(ls__node_text text, char *out, size_t size)
{
    size_t n = text.nbytes < size - 1 ? text.nbytes : size - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool good = (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
        out[i] = good ? (char)c : '?';
    }
    out[n] = '\0';
}

/* --- documents --- */

/* A number that must lie in [low, high]. */
static bool take(int64_t number, int64_t low, int64_t high, int *out)
{
    if (number < low || number > high) return false;
    *out = (int)number;
    return true;
}

void ls__node_join_frame(const ls__node_join *join, ls__node_frame *out)
{
    *out = (ls__node_frame) {
        .type = LS__NODE_JOIN,
        .numbers = { join->node_rank, join->size, join->port, join->restarts, join->pid },
        .texts = { ls__node_text_of(join->host), ls__node_text_of(join->machine),
                   ls__node_text_of(join->address), ls__node_text_of(join->run_id) },
    };
}

ls_status ls__node_join_read(const ls__node_frame *frame, ls__node_join *out)
{
    const int64_t *n = frame->numbers;
    bool good = take(n[0], -1, LS__NODES_MAX, &out->node_rank) &&
                take(n[1], 1, LS__WORLD_MAX, &out->size) && take(n[2], 1, 65535, &out->port) &&
                take(n[3], 0, INT_MAX, &out->restarts) && take(n[4], 0, INT_MAX, &out->pid);
    if (!good) return wrong("a number of what a node says about itself");
    ls__node_text_copy(frame->texts[0], out->host, sizeof out->host);
    ls__node_text_copy(frame->texts[1], out->machine, sizeof out->machine);
    ls__node_text_copy(frame->texts[2], out->address, sizeof out->address);
    ls__node_text_copy(frame->texts[3], out->run_id, sizeof out->run_id);
    return LS_OK;
}

void ls__node_place_frame(const ls__node_place *p, ls__node_frame *out)
{
    *out = (ls__node_frame) {
        .type = LS__NODE_PLACE,
        .numbers = { p->launcher, p->launchers, p->node, p->nodes, p->first_rank, p->world_size,
                     p->local_rank, p->local_size, p->port, p->restarts, p->max_restarts,
                     p->grace_ms },
        .texts = { ls__node_text_of(p->master_addr), ls__node_text_of(p->run_id),
                   ls__node_text_of(p->role), ls__node_text_of(p->host),
                   ls__node_text_of(p->secret), ls__node_text_of(p->run_name) },
    };
}

ls_status ls__node_place_read(const ls__node_frame *frame, ls__node_place *out)
{
    const int64_t *n = frame->numbers;
    bool good =
        take(n[1], 1, LS__NODES_MAX, &out->launchers) &&
        take(n[0], 0, out->launchers - 1, &out->launcher) &&
        take(n[3], 1, out->launchers, &out->nodes) && take(n[2], 0, out->nodes - 1, &out->node) &&
        take(n[5], 1, LS__WORLD_MAX, &out->world_size) &&
        take(n[4], 0, out->world_size - 1, &out->first_rank) &&
        take(n[7], 1, out->world_size, &out->local_size) &&
        take(n[6], 0, out->local_size - 1, &out->local_rank) && take(n[8], 1, 65535, &out->port) &&
        take(n[9], 0, INT_MAX, &out->restarts) && take(n[10], 0, INT_MAX, &out->max_restarts) &&
        take(n[11], -1, INT_MAX, &out->grace_ms);
    if (!good) return wrong("a number of a node's place");
    ls__node_text_copy(frame->texts[0], out->master_addr, sizeof out->master_addr);
    ls__node_text_copy(frame->texts[1], out->run_id, sizeof out->run_id);
    ls__node_text_copy(frame->texts[2], out->role, sizeof out->role);
    ls__node_text_copy(frame->texts[3], out->host, sizeof out->host);
    ls__node_text_copy(frame->texts[4], out->secret, sizeof out->secret);
    ls__node_text_copy(frame->texts[5], out->run_name, sizeof out->run_name);
    return LS_OK;
}

void ls__node_end_frame(ls__node_frame_type type, const ls__end *end, const char *host,
                        int64_t began, ls__node_frame *out)
{
    *out = (ls__node_frame) {
        .type = type,
        .numbers = { end->kind, end->rank, end->exit_code, end->signal, end->pid, end->status,
                     end->joining, end->foreign, end->out_of_memory, (int64_t)(end->grace * 1000),
                     began },
        .texts = { ls__node_text_of(end->said), ls__node_text_of(host) },
    };
}

ls_status ls__node_end_read(const ls__node_frame *frame, ls__end *out,
                            char host[LS__NODE_NAME_MAX + 1], int64_t *began)
{
    const int64_t *n = frame->numbers;
    int kind, status, grace_ms, joining, foreign, out_of_memory;
    memset(out, 0, sizeof *out);
    bool good = take(n[0], 0, LS__END_HUNG, &kind) && take(n[1], -1, LS__WORLD_MAX, &out->rank) &&
                take(n[2], 0, 255, &out->exit_code) && take(n[3], 0, 64, &out->signal) &&
                take(n[4], 0, INT_MAX, &out->pid) && take(n[5], 0, LS_ERR_INTERNAL, &status) &&
                take(n[6], 0, 1, &joining) && take(n[7], 0, 1, &foreign) &&
                take(n[8], 0, 1, &out_of_memory) && take(n[9], -1000, INT_MAX, &grace_ms);
    if (!good) return wrong("a number of an end");
    out->kind = (ls__end_kind)kind;
    out->status = (ls_status)status;
    out->joining = joining;
    out->foreign = foreign;
    out->out_of_memory = out_of_memory;
    out->grace = grace_ms / 1000.0;
    *began = n[10];
    ls__node_text_copy(frame->texts[0], out->said, sizeof out->said);
    ls__node_text_copy(frame->texts[1], host, LS__NODE_NAME_MAX + 1);
    return LS_OK;
}
