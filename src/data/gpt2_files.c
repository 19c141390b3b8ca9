/* The files that GPT-2's tokenizer comes in: OpenAI's encoder.json + vocab.bpe, the same under Hugging
 * Face's names, or its tokenizer.json, which can describe many tokenizers of which this is one; what
 * would make it another is refused by name. Opened once per run. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "data/data_file.h"
#include "data/gpt2.h"
#include "data/utf8.h"

static const size_t FILE_BYTES_MAX = (size_t)64 << 20;

/* --- tokenizer.json --- */

static ls_status refuse(const char *path, const char *what, const char *is)
{
    return ls_fail(
        LS_ERR_UNSUPPORTED,
        "%s: its %s is \"%.40s\": only GPT-2's kind of tokenizer is read, byte-level BPE "
        "without a normalizer",
        path, what, is);
}

static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "of no type";
}

/* A word that is NULL, absent, false, 0 or "" is not said. */
static bool is_said(const json_t *part, const char *key)
{
    const json_t *value = json_object_get(part, key);
    if (json_is_string(value)) return json_string_length(value) > 0;
    if (json_is_number(value)) return json_number_value(value) != 0;
    return value && !json_is_null(value) && !json_is_false(value);
}

static ls_status check_parts(const json_t *document, const char *path)
{
    const json_t *normalizer = json_object_get(document, "normalizer");
    const json_t *cut = json_object_get(document, "pre_tokenizer");
    const json_t *model = json_object_get(document, "model");
    if (!json_is_object(model))
        return ls_fail(LS_ERR_DATA, "%s: not a tokenizer.json: it has no \"model\"", path);
    /* Older files do not say the model's type; only BPE has merges. */
    bool bpe = json_object_get(model, "type") ? strcmp(type_of(model), "BPE") == 0
                                              : json_object_get(model, "merges") != NULL;
    if (!bpe) return refuse(path, "model", type_of(model));
    if (normalizer && !json_is_null(normalizer))
        return refuse(path, "normalizer", type_of(normalizer));
    if (!cut || strcmp(type_of(cut), "ByteLevel") != 0)
        return refuse(path, "pre_tokenizer", cut ? type_of(cut) : "nothing");
    if (is_said(cut, "add_prefix_space")) return refuse(path, "add_prefix_space", "true");
    if (json_is_false(json_object_get(cut, "use_regex"))) return refuse(path, "use_regex", "false");
    static const char *const none[] = { "dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix", "byte_fallback", "ignore_merges" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (is_said(model, none[i])) return refuse(path, none[i], "set");
    return LS_OK;
}

/* Added tokens are plain text; the vocabulary writes bytes as characters. */
static ls_status add_token(const json_t *added, size_t i, const char *path, json_t *vocab)
{
    const char *content = json_string_value(json_object_get(added, "content"));
    const json_t *id = json_object_get(added, "id");
    if (!content || !json_is_integer(id))
        return ls_fail(LS_ERR_DATA, "%s: added token %zu lacks \"content\" or \"id\"", path, i);
    const json_t *known = json_object_get(vocab, content);
    if (known && json_equal((json_t *)known, (json_t *)id)) return LS_OK;
    ls__byte_characters map;
    ls__byte_characters_init(&map);
    uint8_t *name = ls__alloc(2 * strlen(content) + 1, 1);
    if (!name) return LS_ERR_MEMORY;
    size_t used = 0;
    for (const char *p = content; *p; p++)
        used += (size_t)ls__utf8_encode(map.of_byte[(uint8_t)*p], name + used);
    ls_status status = LS_OK;
    if (json_object_get(vocab, (const char *)name))
        status = ls_fail(LS_ERR_DATA, "%s: the added token \"%.40s\" is in the vocabulary already",
                         path, content);
    else if (json_object_set_new(vocab, (const char *)name, json_integer(json_integer_value(id))) !=
             0)
        status = ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    ls__free(name);
    return status;
}

/* The number of "<|endoftext|>", -1 if it is no token. */
static int64_t find_end(const json_t *vocab)
{
    const json_t *end = json_object_get(vocab, LS__GPT2_END);
    return json_is_integer(end) ? json_integer_value(end) : -1;
}

ls_status ls__gpt2_read_huggingface(const json_t *document, const char *path, json_t **vocab,
                                    const json_t **merges, int64_t *end)
{
    *vocab = NULL;
    LS_TRY(check_parts(document, path));
    const json_t *model = json_object_get(document, "model");
    *merges = json_object_get(model, "merges");
    if (!json_is_object(json_object_get(model, "vocab")))
        return ls_fail(LS_ERR_DATA, "%s: its model has no \"vocab\"", path);
    *vocab = json_copy(json_object_get(model, "vocab"));
    if (!*vocab) return ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    size_t i;
    const json_t *added;
    json_array_foreach(json_object_get(document, "added_tokens"), i, added)
    {
        ls_status status = add_token(added, i, path, *vocab);
        if (status == LS_OK) continue;
        json_decref(*vocab);
        *vocab = NULL;
        return status;
    }
    *end = find_end(*vocab);
    return LS_OK;
}

/* --- vocab.bpe --- */

ls_status ls__gpt2_read_merges(const char *text, size_t nbytes, const char *path, json_t **merges)
{
    static const char version[] = "#version";
    json_t *list = *merges = json_array();
    const char *end = text + nbytes;
    bool good = list != NULL;
    for (int line = 1; good && text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end, *next = newline ? newline + 1 : end;
        if (stop > text && stop[-1] == '\r') stop--;
        size_t length = (size_t)(stop - text);
        bool comment = line == 1 && length >= sizeof version - 1 &&
                       memcmp(text, version, sizeof version - 1) == 0;
        if (length > 0 && !comment) {
            if (ls__utf8_valid((const uint8_t *)text, length) < length ||
                memchr(text, '\0', length)) {
                json_decref(list);
                *merges = NULL;
                return ls_fail(LS_ERR_DATA, "%s:%d: not a list of merges in UTF-8", path, line);
            }
            good = json_array_append_new(list, json_stringn(text, length)) == 0;
        }
        text = next;
    }
    if (good) return LS_OK;
    json_decref(list);
    *merges = NULL;
    return ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
}

/* --- the folder --- */

/* A whole file, unless it is a pointer or page that took its place. */
static ls_status read_file(const char *path, char **text, size_t *nbytes)
{
    LS_TRY(ls__file_read(path, FILE_BYTES_MAX, text, nbytes));
    const char *guess = ls__data_file_guess((const uint8_t *)*text, *nbytes);
    if (!guess[0]) return LS_OK;
    ls__free(*text);
    *text = NULL;
    return ls_fail(LS_ERR_DATA, "%s: not a tokenizer's file%s", path, guess);
}

static ls_status read_json(const char *path, json_t **out)
{
    char *text;
    size_t nbytes;
    LS_TRY(read_file(path, &text, &nbytes));
    ls__free(text);
    return ls__json_read(path, FILE_BYTES_MAX, out);
}

static ls_status read_pair(const char *encoder, const char *bpe, ls_tokenizer **out)
{
    json_t *vocab = NULL, *merges = NULL;
    char *text = NULL;
    size_t nbytes;
    ls_status status;
    LS_TRY_GOTO(read_json(encoder, &vocab), status, done);
    LS_TRY_GOTO(read_file(bpe, &text, &nbytes), status, done);
    LS_TRY_GOTO(ls__gpt2_read_merges(text, nbytes, bpe, &merges), status, done);
    status = ls__gpt2_build(vocab, merges, find_end(vocab), encoder, bpe, out);
done:
    ls__free(text);
    json_decref(merges);
    json_decref(vocab);
    return status;
}

static ls_status read_single(const char *path, ls_tokenizer **out)
{
    json_t *document, *vocab = NULL;
    const json_t *merges;
    int64_t end;
    LS_TRY(read_json(path, &document));
    ls_status status = ls__gpt2_read_huggingface(document, path, &vocab, &merges, &end);
    if (status == LS_OK) status = ls__gpt2_build(vocab, merges, end, path, path, out);
    json_decref(vocab);
    json_decref(document);
    return status;
}

static ls_status not_found(const char *folder, const char *there, const char *absent)
{
    char what[128] = "";
    if (there) snprintf(what, sizeof what, "%s is there, but %s is not; ", there, absent);
    return ls_fail(LS_ERR_DATA,
                   "%s: no GPT-2 tokenizer: %sit takes tokenizer.json, or encoder.json and "
                   "vocab.bpe, or vocab.json and merges.txt. People get them from the Hugging Face "
                   "repository openai-community/gpt2 (tokenizer.json), or from OpenAI's GPT-2 "
                   "release (encoder.json, vocab.bpe)",
                   folder, what);
}

ls_status ls_tokenizer_gpt2(const char *folder, ls_tokenizer **out)
{
    static const char *const pairs[][2] = { { "encoder.json", "vocab.bpe" },
                                            { "vocab.json", "merges.txt" } };
    char first[LS_PATH_MAX], second[LS_PATH_MAX];
    const char *there = NULL, *absent = NULL;
    *out = NULL;
    LS_TRY(ls__path_join(first, folder, "tokenizer.json"));
    if (ls__path_exists(first)) return read_single(first, out);
    for (int i = 0; i < 2; i++) {
        LS_TRY(ls__path_join(first, folder, pairs[i][0]));
        LS_TRY(ls__path_join(second, folder, pairs[i][1]));
        bool has_first = ls__path_exists(first), has_second = ls__path_exists(second);
        if (has_first && has_second) return read_pair(first, second, out);
        if (!has_first && !has_second) continue;
        there = pairs[i][has_first ? 0 : 1];
        absent = pairs[i][has_first ? 1 : 0];
    }
    return not_found(folder, there, absent);
}
