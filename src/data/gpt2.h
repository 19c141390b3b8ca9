/* GPT-2's tokenizer inside: where its files end and its encoding begins. */
#ifndef LS_DATA_GPT2_H
#define LS_DATA_GPT2_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "data/bpe.h"
#include "data/tokenizer_internal.h"

#define LS__GPT2_END "<|endoftext|>"

/* Its files write a token's bytes as characters, so that each is printable: 33-126, 161-172 and
 * 174-255 as themselves, the other 68 as U+0100, U+0101, ... */
enum { LS__BYTE_CHARACTERS = 256 + 68 };
typedef struct ls__byte_characters {
    uint16_t of_byte[256];
    int16_t to_byte[LS__BYTE_CHARACTERS]; /* -1 = none */
} ls__byte_characters;
void ls__byte_characters_init(ls__byte_characters *map);

typedef struct ls__gpt2 {
    ls__bpe bpe;
    pcre2_code *pattern; /* what cuts a text into pieces */
} ls__gpt2;

/* An empty one of size tokens, of together nbytes bytes, with room for merges. */
ls_status ls__gpt2_create(int64_t size, size_t nbytes, int64_t nmerges, ls_tokenizer **out);

/* From a document {"vocab": {token: number}, "merges": [...], "end": number}; merges as "a b" or
 * ["a", "b"]. vocab_path and merges_path are for errors. */
ls_status ls__gpt2_build(const json_t *vocab, const json_t *merges, int64_t end,
                         const char *vocab_path, const char *merges_path, ls_tokenizer **out);
/* The two parts of Hugging Face's tokenizer.json. *vocab is a new reference, with the added tokens;
 * *merges is borrowed. */
ls_status ls__gpt2_read_huggingface(const json_t *document, const char *path, json_t **vocab,
                                    const json_t **merges, int64_t *end);
/* The lines of vocab.bpe as an array. */
ls_status ls__gpt2_read_merges(const char *text, size_t nbytes, const char *path, json_t **merges);

#endif
