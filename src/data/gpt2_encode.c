/* GPT-2's encoding: a regular expression cuts the text into words, and each is merged on its own.
 *
 * A text is cut into chunks where the expression must cut too, at a space behind a letter or sign,
 * so that one of gigabytes is matched in memory of a chunk. Words repeat: a small table of the last
 * ones seen answers most of them. It belongs to one call, so that any number of threads may encode. */
#include "data/gpt2.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/utf8.h"

enum {
    CHUNK = 1 << 18,
    BATCH = 4096,
    CACHED_BYTES = 22,
    CACHED_TOKENS = 10,
    CACHE_MIN = 1 << 6,
    CACHE_MAX = 1 << 16,
};

/* Unicode's White_Space, which is what \s means to the others who read these files; PCRE2's also has
 * U+180E. */
#define SPACES                                                                                     \
    "\\t-\\r "                                                                                     \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
static const char pattern_text[] = "'(?:[sdmt]|ll|ve|re)"
                                   "| ?\\p{L}++"
                                   "| ?\\p{N}++"
                                   "| ?[^" SPACES "\\p{L}\\p{N}]++"
                                   "|[" SPACES "]+(?![^" SPACES "])"
                                   "|[" SPACES "]++";

typedef struct cached_piece {
    uint8_t nbytes, ntokens; /* ntokens 0 = free */
    uint8_t bytes[CACHED_BYTES];
    int32_t tokens[CACHED_TOKENS];
} cached_piece;

typedef struct encoding {
    const ls_tokenizer *tokenizer;
    const ls__gpt2 *gpt2;
    const ls__token_sink *sink;
    pcre2_match_data *match;
    ls__bpe_scratch scratch;
    cached_piece *cache; /* (ncache), a power of two */
    size_t ncache;
    int32_t tokens[BATCH];
    int64_t count;   /* of tokens, not yet in the sink */
    size_t consumed; /* of the text */
} encoding;

static ls_status flush(encoding *e)
{
    int64_t count = e->count;
    e->count = 0;
    return count ? e->sink->add(e->sink->user, e->tokens, count, e->consumed) : LS_OK;
}

static ls_status emit(encoding *e, const int32_t *tokens, int64_t count)
{
    if (count > BATCH - e->count) LS_TRY(flush(e));
    if (count > BATCH) return e->sink->add(e->sink->user, tokens, count, e->consumed);
    memcpy(e->tokens + e->count, tokens, (size_t)count * sizeof *tokens);
    e->count += count;
    return LS_OK;
}

static ls_status encode_piece(encoding *e, const uint8_t *piece, size_t nbytes)
{
    cached_piece *c = NULL;
    if (nbytes <= CACHED_BYTES) {
        c = &e->cache[XXH3_64bits(piece, nbytes) & (e->ncache - 1)];
        if (c->ntokens && c->nbytes == nbytes && memcmp(c->bytes, piece, nbytes) == 0)
            return emit(e, c->tokens, c->ntokens);
    }
    int64_t count;
    LS_TRY(ls__bpe_encode(&e->gpt2->bpe, &e->scratch, piece, nbytes, &count));
    if (c && count <= CACHED_TOKENS) {
        c->nbytes = (uint8_t)nbytes;
        c->ntokens = (uint8_t)count;
        memcpy(c->bytes, piece, nbytes);
        memcpy(c->tokens, e->scratch.tokens, (size_t)count * sizeof *c->tokens);
    }
    return emit(e, e->scratch.tokens, count);
}

/* Valid UTF-8 that begins and ends where the pattern cuts. */
static ls_status encode_chunk(encoding *e, const uint8_t *chunk, size_t nbytes)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(e->match);
    for (size_t at = 0; at < nbytes; at = found[1]) {
        int code = pcre2_match(e->gpt2->pattern, chunk, nbytes, at,
                               PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, e->match, NULL);
        if (code == PCRE2_ERROR_NOMEMORY) return ls_fail(LS_ERR_MEMORY, "out of memory");
        if (code < 0 || found[1] <= at) {
            PCRE2_UCHAR text[128] = "it matched nothing";
            if (code < 0) pcre2_get_error_message(code, text, sizeof text);
            return ls_fail(LS_ERR_INTERNAL, "cutting the text into words at byte %zu: %s",
                           e->consumed + at, (const char *)text);
        }
        LS_TRY(encode_piece(e, chunk + at, found[1] - at));
    }
    e->consumed += nbytes;
    return LS_OK;
}

/* Whether the pattern cuts before text[i]: a space behind what is neither space nor the beginning. */
static bool cuts_at(const uint8_t *text, size_t i)
{
    return (text[i] == ' ' || text[i] == '\n') && text[i - 1] > ' ' && text[i - 1] < 0x7F;
}

/* The end of the chunk that begins at text: the last cut within CHUNK, else the first one after. */
static size_t find_chunk(const uint8_t *text, size_t nbytes)
{
    if (nbytes <= CHUNK) return nbytes;
    for (size_t i = CHUNK; i > 0; i--)
        if (cuts_at(text, i)) return i;
    for (size_t i = CHUNK + 1; i < nbytes; i++)
        if (cuts_at(text, i)) return i;
    return nbytes;
}

/* A text without special tokens. */
static ls_status encode_segment(encoding *e, const uint8_t *text, size_t nbytes)
{
    for (size_t at = 0; at < nbytes;) {
        size_t chunk = find_chunk(text + at, nbytes - at);
        size_t valid = ls__utf8_valid(text + at, chunk);
        if (valid < chunk) return ls__utf8_fail(text + at, chunk, valid, e->consumed);
        LS_TRY(encode_chunk(e, text + at, chunk));
        at += chunk;
    }
    return LS_OK;
}

static ls_status encode_text(encoding *e, const uint8_t *text, size_t nbytes, bool special)
{
    const size_t length = sizeof LS__GPT2_END - 1;
    const uint8_t *end = text + nbytes;
    while (special && e->tokenizer->end >= 0) {
        const uint8_t *mark = memmem(text, (size_t)(end - text), LS__GPT2_END, length);
        if (!mark) break;
        LS_TRY(encode_segment(e, text, (size_t)(mark - text)));
        e->consumed += length;
        LS_TRY(emit(e, &e->tokenizer->end, 1));
        text = mark + length;
    }
    LS_TRY(encode_segment(e, text, (size_t)(end - text)));
    return flush(e);
}

static ls_status encode_gpt2(const ls_tokenizer *tokenizer, const uint8_t *text, size_t nbytes,
                             bool special, const ls__token_sink *sink)
{
    encoding *e = ls__alloc(1, sizeof *e);
    if (!e) return LS_ERR_MEMORY;
    e->tokenizer = tokenizer;
    e->gpt2 = tokenizer->self;
    e->sink = sink;
    e->ncache = CACHE_MIN;
    while (e->ncache < CACHE_MAX && e->ncache < nbytes / 8) e->ncache *= 2;
    e->cache = ls__alloc(e->ncache, sizeof *e->cache);
    e->match = e->cache ? pcre2_match_data_create(1, NULL) : NULL;
    ls_status status = e->match ? encode_text(e, text, nbytes, special)
                                : ls_fail(LS_ERR_MEMORY, "out of memory for encoding a text");
    pcre2_match_data_free(e->match);
    ls__bpe_scratch_close(&e->scratch);
    ls__free(e->cache);
    ls__free(e);
    return status;
}

/* --- the tokenizer around it --- */

static void destroy_gpt2(void *self)
{
    ls__gpt2 *g = self;
    ls__bpe_close(&g->bpe);
    pcre2_code_free(g->pattern);
    ls__free(g);
}

static ls_status compile(ls__gpt2 *g)
{
    int code;
    PCRE2_SIZE at;
    g->pattern = pcre2_compile((PCRE2_SPTR)pattern_text, PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!g->pattern)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "PCRE2 does not take GPT-2's pattern (error %d at %zu): it needs to be built "
            "with Unicode",
            code, at);
    (void)pcre2_jit_compile(g->pattern, PCRE2_JIT_COMPLETE); /* without it: slower */
    return LS_OK;
}

ls_status ls__gpt2_create(int64_t size, size_t nbytes, int64_t nmerges, ls_tokenizer **out)
{
    *out = NULL;
    ls_tokenizer *t = ls__tokenizer_create(&ls__tokenizer_kind_gpt2, size, nbytes);
    if (!t) return LS_ERR_MEMORY;
    ls_status status = LS_ERR_MEMORY;
    ls__gpt2 *g = t->self = ls__alloc(1, sizeof *g);
    if (g) status = compile(g);
    if (status == LS_OK) status = ls__bpe_reserve(&g->bpe, nmerges);
    if (status == LS_OK)
        *out = t;
    else
        ls_tokenizer_destroy(t);
    return status;
}

/* --- its file --- */

/* A token's bytes as the characters that stand for them. */
static json_t *name_of(const ls_tokenizer *t, const ls__byte_characters *map, int32_t token)
{
    size_t nbytes, used = 0;
    const char *piece = ls_tokenizer_piece(t, token, &nbytes);
    uint8_t *name = ls__alloc(nbytes, 2);
    if (!name) return NULL;
    for (size_t i = 0; i < nbytes; i++)
        used += (size_t)ls__utf8_encode(map->of_byte[(uint8_t)piece[i]], name + used);
    json_t *text = json_stringn((const char *)name, used);
    ls__free(name);
    return text;
}

static bool describe_merge(const ls_tokenizer *t, const ls__byte_characters *map,
                           const ls__bpe_merge *m, json_t *merges)
{
    json_t *left = name_of(t, map, m->left), *right = name_of(t, map, m->right);
    json_t *line = left && right
                       ? json_sprintf("%s %s", json_string_value(left), json_string_value(right))
                       : NULL;
    json_decref(left);
    json_decref(right);
    return json_array_append_new(merges, line) == 0;
}

static bool describe_gpt2(const ls_tokenizer *t, json_t *document)
{
    const ls__gpt2 *g = t->self;
    ls__byte_characters map;
    ls__byte_characters_init(&map);
    json_t *vocab = json_object(), *merges = json_array();
    bool good = json_object_set_new(document, "vocab", vocab) == 0;
    good = json_object_set_new(document, "merges", merges) == 0 && good;
    good = json_object_set_new(document, "end", json_integer(t->end)) == 0 && good;
    for (int32_t token = 0; good && token < t->size; token++) {
        json_t *name = name_of(t, &map, token);
        good =
            name && json_object_set_new(vocab, json_string_value(name), json_integer(token)) == 0;
        json_decref(name);
    }
    for (int64_t i = 0; good && i < g->bpe.nmerges; i++)
        good = describe_merge(t, &map, &g->bpe.merges[i], merges);
    return good;
}

static ls_status restore_gpt2(const json_t *document, const char *path, ls_tokenizer **out)
{
    const json_t *end = json_object_get(document, "end");
    return ls__gpt2_build(json_object_get(document, "vocab"), json_object_get(document, "merges"),
                          json_is_integer(end) ? json_integer_value(end) : -1, path, path, out);
}

const ls__tokenizer_kind ls__tokenizer_kind_gpt2 = {
    .name = "gpt2",
    .encode = encode_gpt2,
    .describe = describe_gpt2,
    .restore = restore_gpt2,
    .destroy = destroy_gpt2,
};
