/* Trains a GPT: the model, and the command. Tokens in, the next one of each out; embedding and output
 * share their weights. Whatever the number of devices: nothing here knows it. */
#include "recipe/gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DEVIATION 0.02 /* of first weights, as GPT-2's */

/* --- the model --- */

/* (B,T,in) -> (B,T,features) */
static ls_tensor *dense(ls_tensor *x, const char *name, int64_t features, double deviation)
{
    return ls_linear_with(
        x, name,
        &(ls_linear_options) { .features = features, .rows = true, .deviation = deviation });
}

static ls_tensor *drop(const recipe_gpt *recipe, ls_tensor *x, const char *name)
{
    return recipe->dropout > 0 ? ls_dropout(x, name, recipe->dropout) : x;
}

/* (B,T,C) -> (B,T,C) */
static ls_tensor *block(ls_graph *g, const recipe_gpt *recipe, ls_tensor *x, int i)
{
    int64_t width = recipe->width, head = width / recipe->heads;
    double residual = DEVIATION / sqrt(2 * (double)recipe->layers);
    ls_attention_options attention = { .heads = recipe->heads, .kv_heads = recipe->kv_heads };

    ls_tensor *h = ls_layer_norm(x, ls_name(g, "block%d.ln1", i));
    h = dense(h, ls_name(g, "block%d.qkv", i), (recipe->heads + 2 * recipe->kv_heads) * head,
              DEVIATION);
    h = ls_attention(h, ls_name(g, "block%d.attention", i), &attention);
    h = dense(h, ls_name(g, "block%d.proj", i), width, residual);
    x = ls_add(x, drop(recipe, h, ls_name(g, "block%d.drop1", i)));

    h = ls_layer_norm(x, ls_name(g, "block%d.ln2", i));
    h = ls_gelu_tanh(dense(h, ls_name(g, "block%d.fc", i), 4 * width, DEVIATION));
    h = dense(h, ls_name(g, "block%d.out", i), width, residual);
    return ls_add(x, drop(recipe, h, ls_name(g, "block%d.drop2", i)));
}

void recipe_gpt_step(ls_graph *g, void *user)
{
    const recipe_gpt *recipe = user;
    ls_tensor *tokens = ls_input(g, "tokens");   /* (B,T) */
    ls_tensor *targets = ls_input(g, "targets"); /* (B,T) */

    ls_tensor *x = ls_embedding(tokens, "wte", recipe->vocabulary, recipe->width, DEVIATION);
    x = ls_position_embedding(x, "wpe", recipe->positions, DEVIATION); /* (B,T,C) */
    x = drop(recipe, x, "drop");
    for (int i = 0; i < recipe->layers; i++) {
        if (recipe->recompute) ls_recompute_begin(g);
        x = block(g, recipe, x, i);
        if (recipe->recompute) x = ls_recompute_end(x);
    }
    x = ls_layer_norm(x, "ln");
    ls_linear_options head = {
        .features = recipe->vocabulary, .rows = true, .no_bias = true, .tied_to = "wte"
    };
    ls_tensor *scores = ls_linear_with(x, "head", &head); /* (B,T,vocabulary) */
    ls_output(g, "scores", scores);
    ls_minimize(g, ls_cross_entropy(scores, targets), NULL);
}

/* --- the command --- */

typedef struct saving {
    ls_world *world;
    const recipe_gpt *recipe;
    const ls_tokenizer *tokenizer;
} saving;

/* What `lockstep generate` and `lockstep eval` will need, beside the checkpoints. */
static void save_with_run(ls_run *run, void *user)
{
    const saving *s = user;
    if (ls_world_rank(s->world) != 0) return;
    ls_status status = recipe_gpt_save(s->recipe, ls_run_folder(run));
    if (status == LS_OK) status = recipe_gpt_save_tokenizer(s->tokenizer, ls_run_folder(run));
    ls_check(status);
}

/* Samples of a step, unless a flag says otherwise: long ones are fewer. */
static int64_t batch_of(const recipe_gpt *recipe)
{
    if (recipe->context <= 256) return 32;
    return recipe->context < 8192 ? 8192 / recipe->context : 1;
}

static void train(ls_world *world, recipe_gpt *recipe)
{
    recipe_gpt_data data = { 0 };
    ls_model *model;
    ls_run_result result;

    recipe->runs_dir = ls_world_runs_dir(world);
    ls_check(recipe_gpt_check_from(recipe));
    ls_check(recipe_gpt_tokenizer(recipe, &data.tokenizer));
    ls_check(recipe_gpt_resolve(recipe, data.tokenizer ? ls_tokenizer_size(data.tokenizer) : 0));
    ls_check(recipe_gpt_open_parts(recipe, &data));
    ls_check(ls_model_create(world, recipe_gpt_step, recipe, &model));
    if (recipe->init_from) ls_check(recipe_gpt_init(recipe, model));

    saving with_run = { world, recipe, data.tokenizer };
    const ls_callback save = { .name = "gpt", .user = &with_run, .fit_begin = save_with_run };
    const ls_callback *const callbacks[] = { &save, NULL };
    const ls_run_options options = { .batch_size = batch_of(recipe),
                                     .optimizer = { .beta1 = 0.9, .beta2 = 0.95 },
                                     .unit = { "tokens", recipe->context },
                                     .callbacks = callbacks };
    ls_check(ls_fit(model, data.train, data.val, &options, &result));

    char *text = ls_run_result_text(world, &result, NULL);
    if (text) fputs(text, stdout);
    free(text);
    ls_model_destroy(model);
    recipe_gpt_close(&data);
}

int recipe_gpt_train(int argc, char **argv)
{
    recipe_gpt recipe = { .preset = "tiny" };
    const ls_flag flags[] = {
        { "data", 's', &recipe.data,
          "a text file, or token files: nanoGPT's .bin, llm.c's shards" },
        { "val-data", 's', &recipe.val_data, "the same, to validate on; else a tenth of --data" },
        { "tokens", 's', &recipe.tokens, "of a text: bytes (default), characters or gpt2" },
        { "tokenizer", 's', &recipe.tokenizer, "folder of GPT-2's encoder.json and vocab.bpe" },
        { "preset", 's', &recipe.preset, "sizes of the model: tiny, baby or gpt2" },
        { "layers", 'i', &recipe.layers, "0: the preset's" },
        { "heads", 'i', &recipe.heads, "of attention; 0: the preset's" },
        { "kv-heads", 'i', &recipe.kv_heads, "of keys and values, fewer than heads; 0: as many" },
        { "width", 'i', &recipe.width, "numbers of a token; 0: the preset's" },
        { "context", 'i', &recipe.context, "tokens of a sample; 0: the preset's" },
        { "vocabulary", 'i', &recipe.vocabulary, "different tokens; 0: the tokenizer's" },
        { "dropout", 'd', &recipe.dropout, "part of the activations zeroed in training" },
        { "recompute", 'b', &recipe.recompute, "less memory: compute activations twice" },
        { "init-from", 's', &recipe.init_from,
          "begin with these weights: a folder of GPT-2's in Hugging Face's format, or a RUN" },
        { 0 },
    };
    const char *const defaults[] = { "lr=0.001",         "schedule=cosine",     "warmup-steps=100",
                                     "weight-decay=0.1", "gradient-clip-val=1", NULL };
    const ls_world_options options = { .summary = "Trains a GPT on text, on every device.",
                                       .flags = flags,
                                       .defaults = defaults };
    ls_world *world;
    ls_check(ls_world_init(&argc, &argv, &options, &world));
    train(world, &recipe);
    return ls_world_finish(world);
}
