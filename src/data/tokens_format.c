/* The two formats of token files. llm.c's has a header with a magic number; nanoGPT's has none, so
 * that anything could be one: what is plainly something else (a pointer, a page, a text) is refused
 * before a model is trained on it. Opened once per run. */
#include <string.h>

#include "base/check.h"
#include "data/tokens.h"

static uint32_t word_at(const uint8_t *bytes, int i)
{
    uint32_t word;
    memcpy(&word, bytes + 4 * i, sizeof word);
    return word;
}

/* What else llm.c writes with a header of this kind. */
static const char *other_llmc_file(uint32_t magic)
{
    switch (magic) {
    case 20240522:
        return "multiple-choice questions for an evaluation";
    case 20240326:
        return "a model";
    case 20240327:
        return "a debug state";
    case 20240328:
        return "a tokenizer";
    case 20240527:
        return "an optimizer's state";
    default:
        return NULL;
    }
}

static ls_status parse_shard(const uint8_t *bytes, size_t nbytes, const char *name, ls__tokens *out)
{
    bool wide = word_at(bytes, 0) == LS__SHARD_LLAMA3;
    uint32_t version = wide ? 7 : 1;
    if (nbytes < LS__SHARD_HEADER)
        return ls_fail(LS_ERR_DATA, "%s: truncated: %zu bytes; a shard's header alone has %d", name,
                       nbytes, LS__SHARD_HEADER);
    if (word_at(bytes, 1) != version)
        return ls_fail(LS_ERR_DATA,
                       "%s: a shard of version %u; %u is read: write it with the "
                       "present scripts of llm.c's dev/data",
                       name, word_at(bytes, 1), version);
    int32_t count = (int32_t)word_at(bytes, 2);
    if (count <= 0) return ls_fail(LS_ERR_DATA, "%s: the header says %d tokens", name, count);
    out->stored = wide ? &ls__stored_i32le : &ls__stored_u16le;
    size_t expected = LS__SHARD_HEADER + (size_t)count * (size_t)out->stored->size;
    if (nbytes != expected)
        return ls_fail(LS_ERR_DATA,
                       "%s: %s: %zu bytes, but the %d tokens that its header promises make %zu",
                       name, nbytes < expected ? "truncated" : "too long", nbytes, count, expected);
    out->count = count;
    out->values = bytes + LS__SHARD_HEADER;
    return LS_OK;
}

/* Tokens would have to be printable in both bytes, all of the first many. */
static bool looks_like_text(const uint8_t *bytes, size_t nbytes)
{
    enum { ENOUGH = 64, LOOK = 4096 };
    if (nbytes < ENOUGH) return false;
    for (size_t i = 0; i < nbytes && i < LOOK; i++)
        if ((bytes[i] < ' ' && !strchr("\t\n\r\f", bytes[i])) || bytes[i] == 0 || bytes[i] > '~')
            return false;
    return true;
}

/* Three words, and then nothing up to where tokens begin. */
static bool looks_like_header(const uint8_t *bytes, size_t nbytes)
{
    if (nbytes < LS__SHARD_HEADER) return false;
    for (int i = 0; i < 3; i++)
        if (word_at(bytes, i) == 0) return false;
    for (int i = 12; i < LS__SHARD_HEADER; i++)
        if (bytes[i]) return false;
    return true;
}

/* A guess is only trusted where a file of tokens cannot begin so, or all but cannot. */
static ls_status check_headerless(const uint8_t *bytes, size_t nbytes, const char *name)
{
    const char *guess = ls__data_file_guess(bytes, nbytes);
    bool compressed = nbytes >= 3 && memcmp(bytes, "\037\213\b", 3) == 0;
    if (guess[0] && (bytes[0] != 0x1F || compressed))
        return ls_fail(LS_ERR_DATA, "%s: not a file of tokens%s", name, guess);
    const char *other = nbytes >= LS__SHARD_HEADER ? other_llmc_file(word_at(bytes, 0)) : NULL;
    if (other)
        return ls_fail(LS_ERR_DATA, "%s: not a file of tokens: it is %s of llm.c", name, other);
    if (looks_like_header(bytes, nbytes))
        return ls_fail(LS_ERR_DATA,
                       "%s: begins with a header of magic %u and version %u; those of llm.c's "
                       "shards are %d, 1 and %d, 7, and nanoGPT's files have none",
                       name, word_at(bytes, 0), word_at(bytes, 1), LS__SHARD_GPT2,
                       LS__SHARD_LLAMA3);
    if (looks_like_text(bytes, nbytes))
        return ls_fail(LS_ERR_DATA, "%s: not a file of tokens: it is a text; give it as one", name);
    if (nbytes % 2 != 0)
        return ls_fail(LS_ERR_DATA,
                       "%s: an odd number of bytes (%zu), but a token without a header has two: it "
                       "is truncated, or not a file of tokens",
                       name, nbytes);
    return LS_OK;
}

ls_status ls__tokens_parse(const uint8_t *bytes, size_t nbytes, const char *name, ls__tokens *out)
{
    uint32_t magic = nbytes >= 4 ? word_at(bytes, 0) : 0;
    if (magic == LS__SHARD_GPT2 || magic == LS__SHARD_LLAMA3)
        return parse_shard(bytes, nbytes, name, out);
    LS_TRY(check_headerless(bytes, nbytes, name));
    *out = (ls__tokens) { .stored = &ls__stored_u16le,
                          .count = (int64_t)(nbytes / 2),
                          .values = bytes };
    return LS_OK;
}
