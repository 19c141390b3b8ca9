/* Tokenizers of every kind: what they share, and their file. A tokenizer is saved with a run, since
 * tokens mean nothing without it; the file is JSON, so that other programs can read it. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/tokenizer_internal.h"

#define SCHEMA "lockstep.tokenizer/1"

static const size_t FILE_BYTES_MAX = (size_t)64 << 20;
static const ls__tokenizer_kind *const kinds[] = {
    &ls__tokenizer_kind_bytes,
    &ls__tokenizer_kind_characters,
    &ls__tokenizer_kind_gpt2,
};

ls_tokenizer *ls__tokenizer_create(const ls__tokenizer_kind *kind, int64_t size, size_t nbytes)
{
    ls_tokenizer *t = ls__alloc(1, sizeof *t);
    if (!t) return NULL;
    *t = (ls_tokenizer) { .kind = kind, .size = size, .end = -1 };
    t->pieces = ls__alloc(nbytes, 1);
    t->begins = ls__alloc((size_t)size + 1, sizeof *t->begins);
    if (t->pieces && t->begins) return t;
    ls_tokenizer_destroy(t);
    return NULL;
}

void ls_tokenizer_destroy(ls_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    if (tokenizer->self && tokenizer->kind->destroy)
        tokenizer->kind->destroy(tokenizer->self);
    else
        ls__free(tokenizer->self);
    ls__free(tokenizer->pieces);
    ls__free(tokenizer->begins);
    ls__free(tokenizer);
}

int64_t ls_tokenizer_size(const ls_tokenizer *tokenizer)
{
    return tokenizer->size;
}

const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer)
{
    return tokenizer->kind->name;
}

int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer)
{
    return tokenizer->end;
}

const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t token, size_t *nbytes)
{
    *nbytes = 0;
    if (token < 0 || token >= tokenizer->size) return NULL;
    uint32_t begin = tokenizer->begins[token], end = tokenizer->begins[token + 1];
    if (begin == end) return NULL;
    *nbytes = end - begin;
    return (const char *)tokenizer->pieces + begin;
}

bool ls__tokenizer_byte_table(const ls_tokenizer *tokenizer, int32_t table[256])
{
    if (!tokenizer->kind->single) return false;
    for (int i = 0; i < 256; i++) table[i] = -1;
    for (int32_t token = 0; token < tokenizer->size; token++) {
        size_t nbytes;
        const char *piece = ls_tokenizer_piece(tokenizer, token, &nbytes);
        if (nbytes == 1) table[(uint8_t)piece[0]] = token;
    }
    return true;
}

/* --- encoding into an array --- */

typedef struct token_list {
    int32_t *tokens;
    int64_t count, room;
} token_list;

static ls_status append(void *user, const int32_t *tokens, int64_t count, size_t consumed)
{
    (void)consumed;
    token_list *list = user;
    if (count > list->room - list->count) {
        int64_t room = list->count + count + list->room / 2;
        int32_t *grown = ls__realloc(list->tokens, (size_t)room, sizeof *grown);
        if (!grown) return LS_ERR_MEMORY;
        list->tokens = grown;
        list->room = room;
    }
    memcpy(list->tokens + list->count, tokens, (size_t)count * sizeof *tokens);
    list->count += count;
    return LS_OK;
}

ls_status ls__tokenizer_encode(const ls_tokenizer *tokenizer, const uint8_t *text, size_t nbytes,
                               bool special, const ls__token_sink *sink)
{
    return nbytes ? tokenizer->kind->encode(tokenizer, text, nbytes, special, sink) : LS_OK;
}

static ls_status encode(const ls_tokenizer *tokenizer, const char *text, size_t nbytes,
                        bool special, int32_t **tokens, int64_t *count)
{
    *tokens = NULL;
    *count = 0;
    token_list list = { .room = nbytes / 4 < 4096 ? (int64_t)nbytes / 4 + 16 : 4096 };
    list.tokens = ls__alloc((size_t)list.room, sizeof *list.tokens);
    if (!list.tokens) return LS_ERR_MEMORY;
    const ls__token_sink sink = { append, &list };
    ls_status status =
        ls__tokenizer_encode(tokenizer, (const uint8_t *)text, nbytes, special, &sink);
    if (status != LS_OK) {
        ls__free(list.tokens);
        return status;
    }
    *tokens = list.tokens;
    *count = list.count;
    return LS_OK;
}

ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, const char *text, size_t nbytes,
                              int32_t **tokens, int64_t *count)
{
    return encode(tokenizer, text, nbytes, false, tokens, count);
}

ls_status ls_tokenizer_encode_special(const ls_tokenizer *tokenizer, const char *text,
                                      size_t nbytes, int32_t **tokens, int64_t *count)
{
    return encode(tokenizer, text, nbytes, true, tokens, count);
}

/* --- the file --- */

ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path)
{
    json_t *document =
        json_pack("{s:s, s:s}", "schema", SCHEMA, "kind", ls_tokenizer_kind(tokenizer));
    bool good = document != NULL;
    if (good && tokenizer->kind->describe) good = tokenizer->kind->describe(tokenizer, document);
    ls_status status = good ? ls__json_write(&ls__fs_posix, path, document)
                            : ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    json_decref(document);
    return status;
}

ls_status ls__tokenizer_restore(const json_t *document, const char *path, ls_tokenizer **out)
{
    *out = NULL;
    const char *schema = json_string_value(json_object_get(document, "schema"));
    const char *kind = json_string_value(json_object_get(document, "kind"));
    if (!schema || strcmp(schema, SCHEMA) != 0)
        return ls_fail(LS_ERR_DATA, "%s: not a tokenizer of Lockstep: its schema is not " SCHEMA,
                       path);
    for (size_t i = 0; kind && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i]->name, kind) == 0) return kinds[i]->restore(document, path, out);
    return ls_fail(LS_ERR_DATA, "%s: \"%.40s\" is no kind of tokenizer", path, kind ? kind : "");
}

ls_status ls_tokenizer_load(const char *path, ls_tokenizer **out)
{
    *out = NULL;
    json_t *document;
    LS_TRY(ls__json_read(path, FILE_BYTES_MAX, &document));
    ls_status status = ls__tokenizer_restore(document, path, out);
    json_decref(document);
    return status;
}
