/* Any bytes as a tokenizer's file (ours, tokenizer.json, or a list of merges): an error, or a
 * tokenizer whose pieces make up each text again. */
#include "fuzzing.h"

#include <stdlib.h>

#include "data/gpt2.h"
#include "data/utf8.h"

static void use(ls_tokenizer *t, const void *text, size_t nbytes)
{
    int32_t *tokens;
    int64_t count;
    size_t at = 0;
    if (ls_tokenizer_encode_special(t, text, nbytes, &tokens, &count) != LS_OK) return;
    for (int64_t i = 0; i < count; i++) {
        size_t n;
        const char *piece = ls_tokenizer_piece(t, tokens[i], &n);
        if (!piece || n > nbytes - at || memcmp((const char *)text + at, piece, n) != 0) abort();
        at += n;
    }
    if (at != nbytes) abort();
    free(tokens);
}

static void use_and_destroy(ls_tokenizer *t, const uint8_t *data, size_t nbytes)
{
    static const char text[] = "The device's  tokens<|endoftext|>\n\n 12!\xC3\xA9";
    use(t, text, sizeof text - 1);
    use(t, data, nbytes);
    ls_tokenizer_destroy(t);
}

static void as_document(const json_t *document, const uint8_t *data, size_t nbytes)
{
    ls_tokenizer *t;
    json_t *vocab;
    const json_t *merges;
    int64_t end;
    if (ls__tokenizer_restore(document, "fuzz", &t) == LS_OK) use_and_destroy(t, data, nbytes);
    if (ls__gpt2_read_huggingface(document, "fuzz", &vocab, &merges, &end) != LS_OK) return;
    if (ls__gpt2_build(vocab, merges, end, "fuzz", "fuzz", &t) == LS_OK)
        use_and_destroy(t, data, nbytes);
    json_decref(vocab);
}

static void as_merges(const uint8_t *data, size_t nbytes)
{
    static const char *const more[] = { "th", "the", "\xC4\xA0t", "\xC4\xA0the", "12" };
    ls_tokenizer *t;
    json_t *merges, *vocab = json_object();
    ls__byte_characters map;
    ls__byte_characters_init(&map);
    for (int i = 0; i < 256; i++) {
        uint8_t name[LS__UTF8_MAX + 1] = { 0 };
        ls__utf8_encode(map.of_byte[i], name);
        json_object_set_new(vocab, (const char *)name, json_integer(i));
    }
    for (int i = 0; i < 5; i++) json_object_set_new(vocab, more[i], json_integer(256 + i));
    if (ls__gpt2_read_merges((const char *)data, nbytes, "fuzz", &merges) == LS_OK) {
        if (ls__gpt2_build(vocab, merges, -1, "fuzz", "fuzz", &t) == LS_OK)
            use_and_destroy(t, data, nbytes);
        json_decref(merges);
    }
    json_decref(vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    json_t *document = json_loadb((const char *)data, nbytes, JSON_REJECT_DUPLICATES, NULL);
    if (document)
        as_document(document, data, nbytes);
    else
        as_merges(data, nbytes);
    json_decref(document);
    return 0;
}
