/* Tokenizer: text to token numbers and back. Immutable once made; any number of threads may use one.
 * Who makes one destroys it, after every dataset that uses it. */
#ifndef LOCKSTEP_TOKENIZER_H
#define LOCKSTEP_TOKENIZER_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_tokenizer ls_tokenizer;

/* Every byte is a token: 256 of them, any text. */
LS_NODISCARD ls_status ls_tokenizer_bytes(ls_tokenizer **out);
/* Every character (UTF-8) that the file at path holds is a token, in the order of their code points. */
LS_NODISCARD ls_status ls_tokenizer_characters(const char *path, ls_tokenizer **out);
/* GPT-2's byte-pair encoding from a folder that holds tokenizer.json, or encoder.json and vocab.bpe
 * (also named vocab.json and merges.txt). Sennrich et al. (2016); Radford et al. (2019). */
LS_NODISCARD ls_status ls_tokenizer_gpt2(const char *folder, ls_tokenizer **out);
/* As saved: one JSON file, written beside and renamed. */
LS_NODISCARD ls_status ls_tokenizer_load(const char *path, ls_tokenizer **out);
LS_NODISCARD ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path);
void ls_tokenizer_destroy(ls_tokenizer *tokenizer);

int64_t ls_tokenizer_size(const ls_tokenizer *tokenizer);     /* tokens are [0, size) */
const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer); /* "bytes", "characters", "gpt2" */
/* The token that ends a text, "<|endoftext|>"; -1 if there is none. */
int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer);

/* tokens: freed by free(). A text with a character that is no token, or invalid UTF-8 where that
 * matters, is LS_ERR_DATA, which names the byte's position. */
LS_NODISCARD ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, const char *text,
                                           size_t nbytes, int32_t **tokens, int64_t *count);
/* The same, but where the text says "<|endoftext|>" it is the token of that name, if there is one;
 * for texts that were joined with it, never for text of strangers. */
LS_NODISCARD ls_status ls_tokenizer_encode_special(const ls_tokenizer *tokenizer, const char *text,
                                                   size_t nbytes, int32_t **tokens, int64_t *count);
/* The bytes of one token, which the tokenizer owns; not NUL-ended, perhaps a part of a character.
 * NULL for a number that is no token. */
const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t token, size_t *nbytes);

#ifdef __cplusplus
}
#endif
#endif
