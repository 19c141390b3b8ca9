/* GPT-2's tokenizer from a vocabulary and a list of merges, whichever files they came from. Strict:
 * a tokenizer that is half right gives tokens that mean something else to the model, and nothing
 * looks wrong. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/gpt2.h"
#include "data/utf8.h"

enum { NAME_MAX_BYTES = 4096 }; /* of one token as characters */

void ls__byte_characters_init(ls__byte_characters *map)
{
    memset(map->to_byte, -1, sizeof map->to_byte);
    int other = 256;
    for (int byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        map->of_byte[byte] = (uint16_t)(itself ? byte : other++);
        map->to_byte[map->of_byte[byte]] = (int16_t)byte;
    }
}

typedef struct builder {
    ls__byte_characters map;
    const json_t *vocab; /* {name: number} */
    const char *vocab_path, *merges_path;
    ls_tokenizer *tokenizer;
} builder;

/* A name's bytes into out (as many as the name has at most); -1: it has other characters. */
static int64_t bytes_of_name(const builder *b, const char *name, size_t nbytes, uint8_t *out)
{
    int64_t count = 0;
    for (size_t i = 0; i < nbytes; count++) {
        uint32_t code;
        int length = ls__utf8_decode((const uint8_t *)name + i, nbytes - i, &code);
        if (length == 0 || code >= LS__BYTE_CHARACTERS || b->map.to_byte[code] < 0) return -1;
        if (out) out[count] = (uint8_t)b->map.to_byte[code];
        i += (size_t)length;
    }
    return count;
}

/* Every name by its number. *nbytes: the bytes of all tokens together. */
static ls_status order_names(const builder *b, const char **names, size_t *nbytes)
{
    int64_t size = (int64_t)json_object_size(b->vocab);
    const char *name;
    json_t *value;
    *nbytes = 0;
    json_object_foreach((json_t *)b->vocab, name, value)
    {
        int64_t token = json_is_integer(value) ? json_integer_value(value) : -1;
        if (token < 0 || token >= size)
            return ls_fail(
                LS_ERR_DATA,
                "%s: token \"%.40s\" has no number in [0, %lld), though there are so many",
                b->vocab_path, name, (long long)size);
        if (names[token])
            return ls_fail(LS_ERR_DATA, "%s: \"%.40s\" and \"%.40s\" are both token %lld",
                           b->vocab_path, names[token], name, (long long)token);
        int64_t length = bytes_of_name(b, name, strlen(name), NULL);
        if (length < 1 || strlen(name) > NAME_MAX_BYTES)
            return ls_fail(LS_ERR_DATA,
                           "%s: token %lld, \"%.40s\", is not written in the characters that stand "
                           "for bytes: not a byte-level vocabulary",
                           b->vocab_path, (long long)token, name);
        names[token] = name;
        *nbytes += (size_t)length;
    }
    return LS_OK;
}

static ls_status find_bytes(const builder *b, int32_t bytes[256])
{
    for (int byte = 0; byte < 256; byte++) {
        uint8_t name[LS__UTF8_MAX + 1] = { 0 };
        ls__utf8_encode(b->map.of_byte[byte], name);
        const json_t *value = json_object_get(b->vocab, (const char *)name);
        if (!value)
            return ls_fail(LS_ERR_DATA, "%s: no token for the byte 0x%02X alone (\"%s\")",
                           b->vocab_path, byte, (const char *)name);
        bytes[byte] = (int32_t)json_integer_value(value);
    }
    return LS_OK;
}

static ls_status fill_pieces(builder *b, int64_t nmerges)
{
    int64_t size = (int64_t)json_object_size(b->vocab);
    size_t nbytes;
    if (size > INT32_MAX) return ls_fail(LS_ERR_DATA, "%s: more than 2^31 tokens", b->vocab_path);
    const char **names = ls__alloc((size_t)size, sizeof *names);
    if (!names) return LS_ERR_MEMORY;
    ls_status status = order_names(b, names, &nbytes);
    if (status == LS_OK) status = ls__gpt2_create(size, nbytes, nmerges, &b->tokenizer);
    if (status == LS_OK) {
        ls_tokenizer *t = b->tokenizer;
        for (int64_t i = 0; i < size; i++) {
            int64_t n = bytes_of_name(b, names[i], strlen(names[i]), t->pieces + t->begins[i]);
            t->begins[i + 1] = t->begins[i] + (uint32_t)n;
        }
    }
    ls__free(names);
    return status;
}

/* --- merges --- */

/* The two names of merge i, NUL-ended, one after another with a byte between: both within text. */
static ls_status split_merge(const builder *b, const json_t *merge, size_t i,
                             char text[2 * NAME_MAX_BYTES], const char **right)
{
    const char *left = json_string_value(merge), *second = NULL;
    size_t n = json_string_length(merge), m = 0;
    if (json_array_size(merge) == 2) {
        left = json_string_value(json_array_get(merge, 0));
        second = json_string_value(json_array_get(merge, 1));
        n = left ? strlen(left) : 0;
    } else if (left && (second = memchr(left, ' ', n))) {
        n = (size_t)(second - left);
        second++;
    }
    m = second ? strlen(second) : 0;
    if (n == 0 || m == 0 || memchr(left, ' ', n) || strchr(second, ' '))
        return ls_fail(LS_ERR_DATA, "%s: merge %zu is not two tokens", b->merges_path, i + 1);
    if (n + m + 2 > 2 * NAME_MAX_BYTES)
        return ls_fail(LS_ERR_DATA, "%s: merge %zu has %zu bytes", b->merges_path, i + 1, n + m);
    memcpy(text, left, n);
    text[n] = '\0';
    memcpy(text + n + 1, second, m + 1);
    *right = text + n + 1;
    return LS_OK;
}

static ls_status find_token(const builder *b, const char *name, size_t i, int32_t *token)
{
    const json_t *value = json_object_get(b->vocab, name);
    if (!value)
        return ls_fail(LS_ERR_DATA,
                       "%s: merge %zu needs the token \"%.60s\", which is not in %s: the files do "
                       "not belong together",
                       b->merges_path, i + 1, name, b->vocab_path);
    *token = (int32_t)json_integer_value(value);
    return LS_OK;
}

static ls_status add_merge(builder *b, const json_t *merge, size_t i)
{
    char text[2 * NAME_MAX_BYTES];
    const char *right = NULL;
    ls__bpe_merge m;
    LS_TRY(split_merge(b, merge, i, text, &right));
    LS_TRY(find_token(b, text, i, &m.left));
    LS_TRY(find_token(b, right, i, &m.right));
    memmove(text + strlen(text), right, strlen(right) + 1);
    LS_TRY(find_token(b, text, i, &m.token));
    if (!ls__bpe_add(&((ls__gpt2 *)b->tokenizer->self)->bpe, m))
        return ls_fail(LS_ERR_DATA, "%s: merge %zu stands twice", b->merges_path, i + 1);
    return LS_OK;
}

static ls_status build(builder *b, const json_t *merges, int64_t end)
{
    size_t nmerges = json_array_size(merges);
    if (nmerges >= INT32_MAX)
        return ls_fail(LS_ERR_DATA, "%s: more than 2^31 merges", b->merges_path);
    LS_TRY(fill_pieces(b, (int64_t)nmerges));
    LS_TRY(find_bytes(b, ((ls__gpt2 *)b->tokenizer->self)->bpe.bytes));
    for (size_t i = 0; i < nmerges; i++) LS_TRY(add_merge(b, json_array_get(merges, i), i));
    if (end < -1 || end >= b->tokenizer->size)
        return ls_fail(LS_ERR_DATA, "%s: the token that ends a text is %lld, beyond the vocabulary",
                       b->vocab_path, (long long)end);
    b->tokenizer->end = (int32_t)end;
    return LS_OK;
}

ls_status ls__gpt2_build(const json_t *vocab, const json_t *merges, int64_t end,
                         const char *vocab_path, const char *merges_path, ls_tokenizer **out)
{
    builder b = { .vocab = vocab, .vocab_path = vocab_path, .merges_path = merges_path };
    *out = NULL;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return ls_fail(LS_ERR_DATA, "%s: holds no vocabulary {\"token\": number, ...}", vocab_path);
    if (!json_is_array(merges))
        return ls_fail(LS_ERR_DATA, "%s: holds no list of merges", merges_path);
    ls__byte_characters_init(&b.map);
    ls_status status = build(&b, merges, end);
    if (status == LS_OK)
        *out = b.tokenizer;
    else
        ls_tokenizer_destroy(b.tokenizer);
    return status;
}
