/* The tokenizers without learning: bytes and characters. A table as long as the largest code point
 * makes a character's token one look-up, so that large texts are encoded at the rate of reading. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/data_file.h"
#include "data/tokenizer_internal.h"
#include "data/utf8.h"

enum { BATCH = 4096, PIECE = 1 << 24 };

/* --- bytes --- */

static ls_status encode_bytes(const ls_tokenizer *t, const uint8_t *text, size_t nbytes,
                              bool special, const ls__token_sink *sink)
{
    (void)t, (void)special;
    int32_t tokens[BATCH];
    for (size_t i = 0; i < nbytes;) {
        int64_t n = 0;
        while (n < BATCH && i < nbytes) tokens[n++] = text[i++];
        LS_TRY(sink->add(sink->user, tokens, n, i));
    }
    return LS_OK;
}

ls_status ls_tokenizer_bytes(ls_tokenizer **out)
{
    ls_tokenizer *t = *out = ls__tokenizer_create(&ls__tokenizer_kind_bytes, 256, 256);
    if (!t) return LS_ERR_MEMORY;
    for (int i = 0; i < 256; i++) t->pieces[i] = (uint8_t)i;
    for (int i = 0; i <= 256; i++) t->begins[i] = (uint32_t)i;
    return LS_OK;
}

static ls_status restore_bytes(const json_t *document, const char *path, ls_tokenizer **out)
{
    (void)document, (void)path;
    return ls_tokenizer_bytes(out);
}

const ls__tokenizer_kind ls__tokenizer_kind_bytes = {
    .name = "bytes",
    .single = true,
    .encode = encode_bytes,
    .restore = restore_bytes,
};

/* --- characters --- */

typedef struct character_table {
    uint32_t limit;   /* one above the largest code point */
    int32_t tokens[]; /* (limit) of each code point; -1 = none */
} character_table;

static ls_status unknown_character(const ls_tokenizer *t, const uint8_t *text, size_t position,
                                   int length, uint32_t code)
{
    char shown[LS__UTF8_MAX + 4] = "";
    if (code > ' ' && code != 0x7F) {
        shown[0] = ' ';
        memcpy(shown + 1, text + position, (size_t)length);
    }
    size_t line = 1;
    for (size_t i = 0; i < position; i++) line += text[i] == '\n';
    return ls_fail(
        LS_ERR_DATA,
        "the character%s (U+%04X) at byte %zu, in line %zu, is not among the %lld of the "
        "vocabulary, which holds those of the text that it was made from",
        shown, code, position, line, (long long)t->size);
}

static ls_status encode_characters(const ls_tokenizer *t, const uint8_t *text, size_t nbytes,
                                   bool special, const ls__token_sink *sink)
{
    (void)special;
    const character_table *table = t->self;
    int32_t tokens[BATCH];
    for (size_t i = 0; i < nbytes;) {
        int64_t n = 0;
        while (n < BATCH && i < nbytes) {
            uint32_t code;
            int length = ls__utf8_decode(text + i, nbytes - i, &code);
            if (length == 0) return ls__utf8_fail(text, nbytes, i, 0);
            int32_t token = code < table->limit ? table->tokens[code] : -1;
            if (token < 0) return unknown_character(t, text, i, length, code);
            tokens[n++] = token;
            i += (size_t)length;
        }
        LS_TRY(sink->add(sink->user, tokens, n, i));
    }
    return LS_OK;
}

/* set: (LS__CODE_POINTS) */
static ls_status make_characters(const bool *set, ls_tokenizer **out)
{
    uint32_t limit = 0;
    int64_t size = 0;
    for (uint32_t code = 0; code < LS__CODE_POINTS; code++) {
        if (!set[code]) continue;
        limit = code + 1;
        size++;
    }
    ls_tokenizer *t =
        ls__tokenizer_create(&ls__tokenizer_kind_characters, size, (size_t)size * LS__UTF8_MAX);
    if (!t) return LS_ERR_MEMORY;
    character_table *table = ls__alloc(sizeof *table + limit * sizeof *table->tokens, 1);
    if (!table) {
        ls_tokenizer_destroy(t);
        return LS_ERR_MEMORY;
    }
    t->self = table;
    table->limit = limit;
    int32_t token = 0;
    for (uint32_t code = 0; code < limit; code++) {
        table->tokens[code] = -1;
        if (!set[code]) continue;
        int length = ls__utf8_encode(code, t->pieces + t->begins[token]);
        table->tokens[code] = token++;
        t->begins[token] = t->begins[token - 1] + (uint32_t)length;
    }
    *out = t;
    return LS_OK;
}

/* Pages that are behind are given back, so that a large file takes no memory. */
static ls_status collect_characters(const ls__data_file *file, bool *set)
{
    const uint8_t *text = file->bytes;
    for (size_t i = 0; i < file->nbytes;) {
        size_t begin = i, end = file->nbytes - i < PIECE ? file->nbytes : i + PIECE;
        while (i < end) {
            uint32_t code = text[i];
            int length = code < 0x80 ? 1 : ls__utf8_decode(text + i, file->nbytes - i, &code);
            if (length == 0) return ls__utf8_fail(text, file->nbytes, i, 0);
            set[code] = true;
            i += (size_t)length;
        }
        ls__data_file_drop(file, begin, i);
    }
    return LS_OK;
}

ls_status ls_tokenizer_characters(const char *path, ls_tokenizer **out)
{
    *out = NULL;
    ls__data_file file;
    LS_TRY(ls__data_file_open(path, &file));
    ls_status status = LS_ERR_MEMORY;
    bool *set = ls__alloc(LS__CODE_POINTS, sizeof *set);
    LS_TRY_GOTO(set ? LS_OK : LS_ERR_MEMORY, status, done);
    status = collect_characters(&file, set);
    if (status == LS_ERR_DATA) status = ls_fail(status, "%s: %s", path, ls_error_text());
    if (status == LS_OK) status = make_characters(set, out);
done:
    ls__free(set);
    ls__data_file_close(&file);
    return status;
}

static bool describe_characters(const ls_tokenizer *t, json_t *document)
{
    const character_table *table = t->self;
    json_t *codes = json_array();
    bool good = json_object_set_new(document, "characters", codes) == 0;
    for (uint32_t code = 0; good && code < table->limit; code++)
        if (table->tokens[code] >= 0) good = json_array_append_new(codes, json_integer(code)) == 0;
    return good;
}

static ls_status read_codes(const json_t *codes, const char *path, bool *set)
{
    json_int_t before = -1;
    size_t i;
    const json_t *value;
    if (json_array_size(codes) == 0)
        return ls_fail(LS_ERR_DATA, "%s: \"characters\" is not a list of code points", path);
    json_array_foreach(codes, i, value)
    {
        json_int_t code = json_is_integer(value) ? json_integer_value(value) : -1;
        if (code <= before || code >= LS__CODE_POINTS || (code >= 0xD800 && code < 0xE000))
            return ls_fail(LS_ERR_DATA,
                           "%s: entry %zu of \"characters\" is not a code point above the one "
                           "before",
                           path, i);
        set[code] = true;
        before = code;
    }
    return LS_OK;
}

static ls_status restore_characters(const json_t *document, const char *path, ls_tokenizer **out)
{
    bool *set = ls__alloc(LS__CODE_POINTS, sizeof *set);
    if (!set) return LS_ERR_MEMORY;
    ls_status status = read_codes(json_object_get(document, "characters"), path, set);
    if (status == LS_OK) status = make_characters(set, out);
    ls__free(set);
    return status;
}

const ls__tokenizer_kind ls__tokenizer_kind_characters = {
    .name = "characters",
    .single = true,
    .encode = encode_characters,
    .describe = describe_characters,
    .restore = restore_characters,
};
