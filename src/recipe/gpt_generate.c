/* Text from a GPT: the prompt at once, then token by token. The decoder keeps what it has seen; when the
 * context is full, it begins anew with the last half. */
#include <stdlib.h>
#include <string.h>

#include "recipe/gpt.h"

typedef struct generation {
    const recipe_gpt *recipe;
    const ls_tokenizer *tokenizer;
    ls_decoder *decoder;
    int32_t *history; /* (prompt + max_tokens) */
    int64_t count;    /* in history */
    const float *scores;
} generation;

/* Appends tokens to the history; scores of the next one. */
static ls_status feed(generation *g, const int32_t *tokens, int64_t count)
{
    int64_t from = g->count;
    memcpy(g->history + from, tokens, (size_t)count * sizeof *tokens);
    g->count += count;
    if (ls_decoder_position(g->decoder) + count > g->recipe->positions) {
        ls_decoder_reset(g->decoder);
        from = g->count - (g->recipe->positions + 1) / 2;
    }
    return ls_decoder_read(g->decoder, g->history + from, g->count - from, &g->scores);
}

static ls_status draw_tokens(generation *g, const recipe_gpt_sampling *s, recipe_gpt_piece_fn *each,
                             void *user, int64_t *count)
{
    /* Philox: any key will do, so the seed is the key. */
    ls_rng rng = { .key = { (uint32_t)s->seed, (uint32_t)(s->seed >> 32) }, .used = 4 };
    int64_t known = ls_tokenizer_size(g->tokenizer); /* the vocabulary may be padded beyond it */
    ls_status status = LS_OK;
    for (*count = 0; status == LS_OK && *count < s->max_tokens;) {
        size_t nbytes = 0;
        int32_t token = ls_sample(g->scores, known, s->temperature, s->top_k, &rng);
        if (token == ls_tokenizer_end(g->tokenizer)) break;
        ++*count;
        const char *piece = ls_tokenizer_piece(g->tokenizer, token, &nbytes);
        status = each(user, piece, nbytes);
        if (status == LS_OK && *count < s->max_tokens) status = feed(g, &token, 1);
    }
    return status;
}

/* Tokens of the prompt; an empty one begins as a text does. */
static ls_status encode(const ls_tokenizer *tokenizer, const char *prompt, int32_t **tokens,
                        int64_t *count)
{
    size_t nbytes = 0;
    while (prompt[nbytes]) nbytes++;
    if (nbytes > 0) return ls_tokenizer_encode(tokenizer, prompt, nbytes, tokens, count);
    int32_t end = ls_tokenizer_end(tokenizer);
    if (end < 0) return ls_tokenizer_encode(tokenizer, "\n", 1, tokens, count);
    *tokens = malloc(sizeof **tokens);
    if (!*tokens) return ls_fail(LS_ERR_MEMORY, "out of memory");
    **tokens = end;
    *count = 1;
    return LS_OK;
}

ls_status recipe_gpt_generate(const recipe_gpt *recipe, ls_model *model,
                              const ls_tokenizer *tokenizer, const char *prompt,
                              const recipe_gpt_sampling *sampling, recipe_gpt_piece_fn *each,
                              void *user, int64_t *count)
{
    generation g = { .recipe = recipe, .tokenizer = tokenizer };
    int32_t *tokens = NULL;
    int64_t ntokens = 0;
    ls_status status = encode(tokenizer, prompt, &tokens, &ntokens);
    if (status == LS_OK) status = ls_decoder_create(model, 1, recipe->positions, &g.decoder);
    if (status == LS_OK) {
        g.history = malloc(((size_t)ntokens + (size_t)sampling->max_tokens) * sizeof *g.history);
        if (!g.history)
            status = ls_fail(LS_ERR_MEMORY, "out of memory: %lld tokens",
                             (long long)sampling->max_tokens);
    }
    /* Of a long prompt, only what the model can see. */
    int64_t first = ntokens > recipe->positions ? ntokens - recipe->positions : 0;
    if (status == LS_OK) status = feed(&g, tokens + first, ntokens - first);
    if (status == LS_OK) status = draw_tokens(&g, sampling, each, user, count);
    ls_decoder_destroy(g.decoder);
    free(g.history);
    free(tokens);
    return status;
}
