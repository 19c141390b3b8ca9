/* What a tokenizer is made of, for the kinds there are and for those who encode large texts. */
#ifndef LS_TOKENIZER_INTERNAL_H
#define LS_TOKENIZER_INTERNAL_H

#include <lockstep/tokenizer.h>

#include "base/json.h"

/* Where tokens go as they are found. consumed: the bytes of the text that are behind; never
 * shrinks. */
typedef struct ls__token_sink {
    ls_status (*add)(void *user, const int32_t *tokens, int64_t count, size_t consumed);
    void *user;
} ls__token_sink;

typedef struct ls__tokenizer_kind {
    const char *name;
    bool single; /* a byte's token never depends on its neighbours, if it is a token */
    ls_status (*encode)(const ls_tokenizer *tokenizer, const uint8_t *text, size_t nbytes,
                        bool special, const ls__token_sink *sink);
    /* Adds what a file holds besides its kind; false = no memory. NULL = nothing. */
    bool (*describe)(const ls_tokenizer *tokenizer, json_t *document);
    /* Makes one from such a file; errors begin with path. */
    ls_status (*restore)(const json_t *document, const char *path, ls_tokenizer **out);
    void (*destroy)(void *self); /* NULL = ls__free */
} ls__tokenizer_kind;

extern const ls__tokenizer_kind ls__tokenizer_kind_bytes, ls__tokenizer_kind_characters,
    ls__tokenizer_kind_gpt2;

struct ls_tokenizer {
    const ls__tokenizer_kind *kind;
    void *self;
    int64_t size;
    int32_t end;      /* -1 = none */
    uint8_t *pieces;  /* all tokens' bytes, one after another */
    uint32_t *begins; /* (size + 1) where each begins; an empty one is no token */
};

/* An empty shell with room for size tokens of together nbytes bytes; NULL = no memory. */
ls_tokenizer *ls__tokenizer_create(const ls__tokenizer_kind *kind, int64_t size, size_t nbytes);

/* The token of every single byte, -1 where that is none. False: a byte's token may depend on its
 * neighbours. */
bool ls__tokenizer_byte_table(const ls_tokenizer *tokenizer, int32_t table[256]);

/* Makes one from what ls_tokenizer_save wrote; errors begin with path. */
ls_status ls__tokenizer_restore(const json_t *document, const char *path, ls_tokenizer **out);

/* Encodes into sink; special: "<|endoftext|>" in the text is the token of that name. */
ls_status ls__tokenizer_encode(const ls_tokenizer *tokenizer, const uint8_t *text, size_t nbytes,
                               bool special, const ls__token_sink *sink);

#endif
