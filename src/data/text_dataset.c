/* A text as a dataset of windows. Where each byte is a token the file itself is the array of tokens;
 * otherwise it is encoded once, into the narrowest integers that hold the vocabulary. Texts are of
 * some hundred megabytes: they are read through a mapping whose pages are handed back on the way. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/tokenizer_internal.h"
#include "data/tokens.h"

enum { PIECE = 1 << 24 };

/* A text may begin in any way but these. */
static ls_status check_text(const ls__data_file *file)
{
    const char *guess = ls__data_file_guess(file->bytes, file->nbytes);
    if (guess[0] && file->bytes[0] != '<') return ls_fail(LS_ERR_DATA, "not a text%s", guess);
    return LS_OK;
}

/* --- bytes as tokens --- */

/* Whether every byte is a token of its own. Looks at all of them, unless all are. */
static bool all_single(const ls__data_file *file, const int32_t table[256])
{
    bool any = true;
    for (int i = 0; i < 256; i++) any = any && table[i] >= 0;
    if (any) return true;
    for (size_t begin = 0; begin < file->nbytes; begin += PIECE) {
        size_t end = file->nbytes - begin < PIECE ? file->nbytes : begin + PIECE;
        int32_t every = 0;
        for (size_t i = begin; i < end; i++) every |= table[file->bytes[i]];
        ls__data_file_drop(file, begin, end);
        if (every < 0) return false;
    }
    return true;
}

static ls_status use_bytes(ls__token_run *run, const int32_t table[256], ls__token_source *source)
{
    source->table = ls__alloc(256, sizeof *source->table);
    if (!source->table) return LS_ERR_MEMORY;
    memcpy(source->table, table, 256 * sizeof *table);
    run->tokens = (ls__tokens) { &ls__stored_token8, (int64_t)run->file.nbytes, run->file.bytes };
    return LS_OK;
}

/* --- encoding --- */

typedef struct encoded {
    const ls__data_file *text;
    size_t dropped; /* of text */
    uint8_t *values;
    int64_t count;
    int size; /* of a token */
} encoded;

static ls_status store(void *user, const int32_t *tokens, int64_t count, size_t consumed)
{
    encoded *e = user;
    uint8_t *to = e->values + e->count * e->size;
    if (e->size == 1)
        for (int64_t i = 0; i < count; i++) to[i] = (uint8_t)tokens[i];
    else if (e->size == 2)
        for (int64_t i = 0; i < count; i++) ((uint16_t *)(void *)to)[i] = (uint16_t)tokens[i];
    else
        memcpy(to, tokens, (size_t)count * sizeof *tokens);
    e->count += count;
    if (consumed - e->dropped >= PIECE) {
        ls__data_file_drop(e->text, e->dropped, consumed);
        e->dropped = consumed;
    }
    return LS_OK;
}

/* A text has no more tokens than bytes: memory for so many is reserved, and what no token came to is
 * given back untouched. */
static ls_status encode_run(const ls_tokenizer *tokenizer, bool special, ls__token_run *run)
{
    ls__data_file text = run->file;
    int64_t vocabulary = ls_tokenizer_size(tokenizer);
    const ls__stored *stored = vocabulary <= 1 << 8    ? &ls__stored_token8
                               : vocabulary <= 1 << 16 ? &ls__stored_u16le
                                                       : &ls__stored_i32le;
    size_t room = text.nbytes * (size_t)stored->size;
    encoded e = { .text = &text, .size = stored->size, .values = ls__map(room) };
    if (!e.values) return LS_ERR_MEMORY;
    const ls__token_sink sink = { store, &e };
    ls_status status = ls__tokenizer_encode(tokenizer, text.bytes, text.nbytes, special, &sink);
    if (status != LS_OK) {
        ls__unmap(e.values, room);
        return status;
    }
    size_t used = (size_t)e.count * (size_t)e.size;
    ls__map_shrink(e.values, room, used);
    ls__data_file_close(&text);
    run->file = (ls__data_file) { .bytes = e.values, .nbytes = used, .in_memory = true };
    run->tokens = (ls__tokens) { stored, e.count, e.values };
    return LS_OK;
}

static ls_status read_text(const char *path, const ls_tokenizer *tokenizer, bool special,
                           ls__token_source *source)
{
    int32_t table[256];
    ls__token_run *run = source->runs = ls__alloc(1, sizeof *run);
    if (!run) return LS_ERR_MEMORY;
    source->nruns = 1;
    run->name = ls__strdup(path);
    if (!run->name) return LS_ERR_MEMORY;
    LS_TRY(ls__data_file_open(path, &run->file));
    ls_status status = check_text(&run->file);
    if (status != LS_OK)
        ;
    else if (ls__tokenizer_byte_table(tokenizer, table) && all_single(&run->file, table))
        status = use_bytes(run, table, source);
    else
        status = encode_run(tokenizer, special, run);
    return status == LS_ERR_DATA ? ls_fail(status, "%s: %s", path, ls_error_text()) : status;
}

ls_status ls_dataset_text_with(const char *path, int64_t context, const ls_tokenizer *tokenizer,
                               const ls_text_options *options, ls_dataset **out)
{
    *out = NULL;
    if (!path || !tokenizer)
        return ls_fail(LS_ERR_ARG, "a dataset of text needs a path and a tokenizer");
    ls__token_source source = { .context = context, .name = path };
    ls_status status = read_text(path, tokenizer, options && options->special, &source);
    if (status == LS_OK) return ls__token_windows(&source, out);
    ls__token_source_close(&source);
    return status;
}

ls_status ls_dataset_text(const char *path, int64_t context, const ls_tokenizer *tokenizer,
                          ls_dataset **out)
{
    return ls_dataset_text_with(path, context, tokenizer, NULL, out);
}
