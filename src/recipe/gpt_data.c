/* What a GPT reads: text through a tokenizer, or files of tokens. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "recipe/gpt.h"

#define VAL_FRACTION 0.1
#define VAL_TOKENS   (512.0 * 1024) /* at most: of a large text, a tenth is more than anyone needs */

static ls_status no_data(void)
{
    return ls_fail(LS_ERR_CONFIG,
                   "--data FILE: a text to train on? Debian's package bible-kjv has one; this "
                   "writes it to a file, without verse numbers:\n"
                   "    bible -f Gen1:1-Rev22:21 | sed 's/^[^ ]* //' > bible.txt");
}

/* Token files end in .bin, or are many; everything else is text. */
static bool is_tokens(const char *path)
{
    size_t n = strlen(path);
    return strpbrk(path, "*?[") || (n > 4 && strcmp(path + n - 4, ".bin") == 0);
}

/* --- the tokenizer --- */

/* bytes where nothing says otherwise; GPT-2's tokens where its tokenizer or weights are given. */
static const char *kind_of(const recipe_gpt *recipe)
{
    if (recipe->tokens) return recipe->tokens;
    bool gpt2 =
        recipe->tokenizer || (recipe->init_from && recipe_gpt_is_huggingface(recipe->init_from));
    return gpt2 ? "gpt2" : "bytes";
}

static ls_status open_gpt2(const recipe_gpt *recipe, ls_tokenizer **out)
{
    const char *folder = recipe->tokenizer ? recipe->tokenizer : recipe->init_from;
    if (!folder)
        return ls_fail(LS_ERR_CONFIG,
                       "--tokens gpt2: --tokenizer DIR says where GPT-2's encoder.json and "
                       "vocab.bpe (or tokenizer.json) are; they are published with the model's "
                       "weights, huggingface.co/openai-community/gpt2");
    ls_status status = ls_tokenizer_gpt2(folder, out);
    if (status == LS_OK || recipe->tokens || recipe->tokenizer) return status;
    return ls_fail(status, "%s. Weights that know no such tokens go on with --tokens bytes",
                   ls_error_text());
}

ls_status recipe_gpt_tokenizer(const recipe_gpt *recipe, ls_tokenizer **out)
{
    char folder[LS_PATH_MAX];
    *out = NULL;
    if (!recipe->data) return no_data();
    const char *kind = kind_of(recipe);
    if (is_tokens(recipe->data)) { /* they are tokens already; a tokenizer says what they mean */
        if (recipe->tokens && strcmp(kind, "gpt2") != 0)
            return ls_fail(LS_ERR_CONFIG, "--tokens %s: %s holds tokens, not a text", kind,
                           recipe->data);
        return recipe->tokenizer ? open_gpt2(recipe, out) : LS_OK;
    }
    if (!recipe->tokens && !recipe->tokenizer && recipe->init_from &&
        recipe_gpt_find_run(recipe, folder)) {
        ls_status status = recipe_gpt_load_tokenizer(folder, out); /* what its weights know */
        if (status != LS_OK || *out) return status;
    }
    if (strcmp(kind, "gpt2") == 0) return open_gpt2(recipe, out);
    if (recipe->tokenizer)
        return ls_fail(LS_ERR_CONFIG, "--tokenizer is for --tokens gpt2, not for %s", kind);
    if (strcmp(kind, "bytes") == 0) return ls_tokenizer_bytes(out);
    if (strcmp(kind, "characters") == 0) return ls_tokenizer_characters(recipe->data, out);
    return ls_fail(LS_ERR_CONFIG, "--tokens %s: there are bytes, characters and gpt2", kind);
}

/* --- samples --- */

ls_status recipe_gpt_open(const recipe_gpt *recipe, const char *path, const ls_tokenizer *tokenizer,
                          ls_dataset **out)
{
    ls_token_options options = { .vocabulary = recipe->vocabulary };
    if (is_tokens(path)) return ls_dataset_tokens_with(path, recipe->context, &options, out);
    if (tokenizer) return ls_dataset_text(path, recipe->context, tokenizer, out);
    return ls_fail(LS_ERR_CONFIG,
                   "%s: a text, but this model was trained on token files and nobody said what "
                   "their tokens mean",
                   path);
}

ls_status recipe_gpt_open_parts(const recipe_gpt *recipe, recipe_gpt_data *data)
{
    ls_status status = recipe_gpt_open(recipe, recipe->data, data->tokenizer, &data->all);
    if (status != LS_OK) return status;
    if (!recipe->val_data) {
        double all = (double)ls_dataset_length(data->all) * (double)recipe->context;
        double part = VAL_TOKENS / all < VAL_FRACTION ? VAL_TOKENS / all : VAL_FRACTION;
        return ls_dataset_split(data->all, part, 0, &data->train, &data->val);
    }
    data->train = data->all;
    return recipe_gpt_open(recipe, recipe->val_data, data->tokenizer, &data->val);
}

void recipe_gpt_close(recipe_gpt_data *data)
{
    if (data->train != data->all) ls_dataset_destroy(data->train);
    ls_dataset_destroy(data->val);
    ls_dataset_destroy(data->all);
    ls_tokenizer_destroy(data->tokenizer);
}

/* --- the tokenizer, saved with a run --- */

static ls_status path_in(char path[LS_PATH_MAX], const char *folder)
{
    if (snprintf(path, LS_PATH_MAX, "%s/tokenizer.json", folder) < LS_PATH_MAX) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "%.64s...: too long a path", folder);
}

static bool same_tokens(const ls_tokenizer *a, const ls_tokenizer *b)
{
    int64_t count = ls_tokenizer_size(a);
    bool same = count == ls_tokenizer_size(b);
    for (int32_t i = 0; same && i < count; i++) {
        size_t n = 0, m = 0;
        const char *x = ls_tokenizer_piece(a, i, &n), *y = ls_tokenizer_piece(b, i, &m);
        same = n == m && (n == 0 || memcmp(x, y, n) == 0);
    }
    return same;
}

ls_status recipe_gpt_save_tokenizer(const ls_tokenizer *tokenizer, const char *folder)
{
    char path[LS_PATH_MAX];
    ls_tokenizer *before;
    if (!tokenizer) return LS_OK;
    ls_status status = path_in(path, folder);
    if (status != LS_OK) return status;
    if (access(path, F_OK) != 0) return ls_tokenizer_save(tokenizer, path);
    status = ls_tokenizer_load(path, &before);
    if (status != LS_OK) return status;
    bool same = same_tokens(tokenizer, before);
    ls_tokenizer_destroy(before);
    if (same) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "%s: this run began with other tokens than %s makes now", path,
                   ls_tokenizer_kind(tokenizer));
}

ls_status recipe_gpt_load_tokenizer(const char *folder, ls_tokenizer **out)
{
    char path[LS_PATH_MAX];
    *out = NULL;
    ls_status status = path_in(path, folder);
    if (status != LS_OK || access(path, F_OK) != 0) return status;
    return ls_tokenizer_load(path, out);
}
