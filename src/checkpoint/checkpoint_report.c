/* What the writers of a save tell each other through the store. Not a collective: training uses the
 * communicator meanwhile, and a writer that is late must not be in its way.
 *
 *     checkpoint/<id>/<save>/begin         rank 0: status, the step, the temporary folder's name
 *     checkpoint/<id>/<save>/rank/<r>/<i>  rank r: status, how many pieces, then the pieces
 *     checkpoint/<id>/<save>/done          rank 0: status of the whole
 *
 * A value is a status's name, its text, and data, each ended by NUL. Names are deleted when
 * everybody has read them, so that a store holds those of two saves at most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

enum {
    TEXT_MAX = 4096,
    PIECES_PER_VALUE = 30000, /* of 24 bytes: a value has 1 MiB at most */
    PIECES_MAX = 1 << 26
};

typedef struct wire_piece {
    uint32_t file, nbytes;
    int64_t offset;
    uint64_t xxh3;
} wire_piece;

typedef struct key_text {
    char text[128];
} key_text;

static key_text key_of(const ls__checkpointer *c, int64_t save, const char *what)
{
    key_text key;
    snprintf(key.text, sizeof key.text, "checkpoint/%" PRId64 "/%" PRId64 "/%s", c->id, save, what);
    return key;
}

static key_text key_of_part(const ls__checkpointer *c, int rank, int part)
{
    char what[64];
    snprintf(what, sizeof what, "rank/%d/%d", rank, part);
    return key_of(c, c->saves, what);
}

/* --- a value: status, text, data --- */

static ls_status post(ls__store *store, key_text key, ls_status status, const void *data,
                      size_t nbytes)
{
    const char *name = ls__status_name(status), *text = status == LS_OK ? "" : ls_error_text();
    size_t name_bytes = strlen(name) + 1, text_bytes = strnlen(text, TEXT_MAX - 1) + 1;
    char *value = ls__alloc(name_bytes + text_bytes + nbytes, 1);
    if (!value) return LS_ERR_MEMORY;
    memcpy(value, name, name_bytes);
    memcpy(value + name_bytes, text, text_bytes - 1); /* the rest is zero */
    if (nbytes > 0) memcpy(value + name_bytes + text_bytes, data, nbytes);
    ls_status posted = ls__store_set(store, key.text, value, name_bytes + text_bytes + nbytes);
    ls__free(value);
    return posted;
}

typedef struct received {
    char *value; /* owned */
    const char *text, *data;
    size_t nbytes; /* of data */
    ls_status status;
} received;

/* Fails only when nothing readable came; what the sender says of itself is in out->status. */
static ls_status await(ls__store *store, key_text key, int timeout_ms, received *out)
{
    size_t nbytes;
    *out = (received) { 0 };
    LS_TRY(ls__store_get(store, key.text, timeout_ms, &out->value, &nbytes));
    const char *end = out->value + nbytes;
    const char *name_end = memchr(out->value, '\0', nbytes);
    const char *text_end =
        name_end ? memchr(name_end + 1, '\0', (size_t)(end - name_end - 1)) : NULL;
    if (!text_end) {
        ls__free(out->value);
        return ls_fail(LS_ERR_INTERNAL, "the store's \"%s\" is not a report", key.text);
    }
    out->status = ls__status_from_name(out->value);
    out->text = name_end + 1;
    out->data = text_end + 1;
    out->nbytes = (size_t)(end - out->data);
    return LS_OK;
}

/* --- begin --- */

ls_status ls__report_begin(ls__checkpointer *c, ls_status status, const char *temporary)
{
    char data[512];
    int n = snprintf(data, sizeof data, "%" PRId64 " %s", c->step, temporary);
    return post(c->options.store, key_of(c, c->saves, "begin"), status, data, (size_t)n + 1);
}

static ls_status read_begin(const ls__checkpointer *c, const received *r, char temporary[256])
{
    if (r->status != LS_OK) return ls_fail(r->status, "%s", r->text);
    char *name;
    long long step = strtoll(r->data, &name, 10);
    if (step != c->step)
        return ls_fail(LS_ERR_MISMATCH,
                       "checkpoint: rank %d saves step %" PRId64 ", rank 0 saves step %lld",
                       c->options.rank, c->step, step);
    snprintf(temporary, 256, "%s", name + 1);
    return LS_OK;
}

ls_status ls__report_await_begin(ls__checkpointer *c, int timeout_ms, char temporary[256])
{
    received r;
    ls_status status = await(c->options.store, key_of(c, c->saves, "begin"), timeout_ms, &r);
    if (status == LS_ERR_TIMEOUT)
        return ls_fail(LS_ERR_TIMEOUT, "rank 0 has not begun its checkpoint within %d s",
                       timeout_ms / 1000);
    if (status != LS_OK) return status;
    status = read_begin(c, &r, temporary);
    ls__free(r.value);
    return status;
}

/* --- pieces --- */

/* Values [first, first + n) of the pieces; part 0 also says how many there are in all. */
static ls_status post_part(ls__checkpointer *c, int part, int first, int n)
{
    size_t nbytes = 8 + (size_t)n * sizeof(wire_piece);
    char *data = ls__alloc(nbytes, 1);
    if (!data) return LS_ERR_MEMORY;
    int64_t total = c->layout.npieces;
    memcpy(data, &total, 8);
    for (int i = 0; i < n; i++) {
        const ls__piece *piece = &c->layout.pieces[first + i];
        wire_piece wire = { .file = (uint32_t)piece->file,
                            .nbytes = (uint32_t)piece->nbytes,
                            .offset = piece->offset,
                            .xxh3 = piece->xxh3 };
        memcpy(data + 8 + (size_t)i * sizeof wire, &wire, sizeof wire);
    }
    ls_status status =
        post(c->options.store, key_of_part(c, c->options.rank, part), LS_OK, data, nbytes);
    ls__free(data);
    return status;
}

ls_status ls__report_pieces(ls__checkpointer *c, ls_status status)
{
    if (status != LS_OK)
        return post(c->options.store, key_of_part(c, c->options.rank, 0), status, NULL, 0);
    int part = 0, first = 0;
    do {
        int n = c->layout.npieces - first;
        if (n > PIECES_PER_VALUE) n = PIECES_PER_VALUE;
        LS_TRY(post_part(c, part++, first, n));
        first += n;
    } while (first < c->layout.npieces);
    return LS_OK;
}

/* Appends what one value holds. *total: as it says. */
static ls_status append(const received *r, int rank, ls__piece **pieces, int *n, int64_t *total)
{
    if (r->status != LS_OK) return ls_fail(r->status, "rank %d: %s", rank, r->text);
    size_t count = r->nbytes < 8 ? 0 : (r->nbytes - 8) / sizeof(wire_piece);
    if (r->nbytes != 8 + count * sizeof(wire_piece))
        return ls_fail(LS_ERR_INTERNAL, "rank %d: its report on a checkpoint is torn", rank);
    memcpy(total, r->data, 8);
    if (*total < 0 || *total > PIECES_MAX)
        return ls_fail(LS_ERR_INTERNAL, "rank %d reports %" PRId64 " pieces", rank, *total);
    ls__piece *grown = ls__realloc(*pieces, (size_t)*n + count + 1, sizeof *grown);
    if (!grown) return LS_ERR_MEMORY;
    *pieces = grown;
    for (size_t i = 0; i < count; i++) {
        wire_piece wire;
        memcpy(&wire, r->data + 8 + i * sizeof wire, sizeof wire);
        grown[(*n)++] = (ls__piece) {
            .file = wire.file, .offset = wire.offset, .nbytes = wire.nbytes, .xxh3 = wire.xxh3
        };
    }
    return LS_OK;
}

ls_status ls__report_await_pieces(ls__checkpointer *c, int rank, int timeout_ms, ls__piece **pieces,
                                  int *n)
{
    int64_t total = 0;
    int before = *n, part = 0;
    do {
        received r;
        key_text key = key_of_part(c, rank, part++);
        ls_status status = await(c->options.store, key, timeout_ms, &r);
        if (status == LS_ERR_TIMEOUT)
            return ls_fail(LS_ERR_TIMEOUT, "rank %d has not written its part within %d s", rank,
                           timeout_ms / 1000);
        if (status != LS_OK) return status;
        int so_far = *n;
        status = append(&r, rank, pieces, n, &total);
        ls__free(r.value);
        LS_TRY(status);
        LS_TRY(ls__store_delete(c->options.store, key.text));
        if (*n == so_far && *n - before < total)
            return ls_fail(LS_ERR_INTERNAL, "rank %d: its report on a checkpoint is short", rank);
    } while (*n - before < total);
    return LS_OK;
}

/* --- done --- */

ls_status ls__report_done(ls__checkpointer *c, ls_status status)
{
    LS_TRY(post(c->options.store, key_of(c, c->saves, "done"), status, NULL, 0));
    if (c->saves <= 1) return LS_OK;
    /* All ranks have taken part in this save, so all have read what closed the one before. */
    LS_TRY(ls__store_delete(c->options.store, key_of(c, c->saves - 1, "begin").text));
    return ls__store_delete(c->options.store, key_of(c, c->saves - 1, "done").text);
}

ls_status ls__report_await_done(ls__checkpointer *c, int timeout_ms)
{
    received r;
    ls_status status = await(c->options.store, key_of(c, c->saves, "done"), timeout_ms, &r);
    if (status == LS_ERR_TIMEOUT)
        return ls_fail(LS_ERR_TIMEOUT, "rank 0 has not finished its checkpoint within %d s",
                       timeout_ms / 1000);
    if (status != LS_OK) return status;
    if (r.status != LS_OK) status = ls_fail(r.status, "%s", r.text);
    ls__free(r.value);
    return status;
}
