/* A GPT on a language whose entropy is known: behind each token, the others follow by Zipf's law in an
 * order of its own. With --ragged, the targets behind a sample's end are ignored. Prints the entropy and
 * what the true probabilities say of the validation samples, then what ls_fit says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "recipe/gpt.h"

enum { TOKENS = 24, CONTEXT = 32 };

static struct config {
    int64_t samples, val_samples;
    bool ragged;
} config = { 20000, 500, false };

static double cumulated[TOKENS], likelihood[TOKENS]; /* by rank */

static void make_language(void)
{
    double sum = 0;
    for (int r = 0; r < TOKENS; r++) sum += pow(r + 1, -1.2);
    for (int r = 0; r < TOKENS; r++) likelihood[r] = pow(r + 1, -1.2) / sum;
    for (int r = 0; r < TOKENS; r++) cumulated[r] = likelihood[r] + (r > 0 ? cumulated[r - 1] : 0);
}

static double entropy(void)
{
    double h = 0;
    for (int r = 0; r < TOKENS; r++) h -= likelihood[r] * log(likelihood[r]);
    return h;
}

/* A permutation for each token: 5, 7 and 11 share no factor with TOKENS. */
static int32_t successor(int32_t token, int rank)
{
    static const int steps[] = { 5, 7, 11, 1 };
    return (int32_t)((token * 3 + rank * steps[token % 4] + token / 4) % TOKENS);
}

typedef struct text {
    int64_t length;
    uint32_t key;
    double surprise; /* sum of -log of the true probabilities */
    int64_t seen;
} text;

static int64_t length_of(void *self)
{
    return ((text *)self)->length;
}

static int draw_rank(ls_rng *rng)
{
    double u = ls_rng_uniform(rng);
    int rank = 0;
    while (rank < TOKENS - 1 && u >= cumulated[rank]) rank++;
    return rank;
}

/* Sample i: a text of its own. */
static void make_sample(text *t, int64_t i, int32_t *tokens, int32_t *targets)
{
    ls_rng rng = { .key = { t->key, (uint32_t)i }, .used = 4 };
    int32_t token = (int32_t)ls_rng_below(&rng, TOKENS);
    int64_t end = config.ragged ? 1 + ls_rng_below(&rng, CONTEXT) : CONTEXT;
    if (config.ragged && i % 7 < 3) end = 0; /* nothing in it counts */
    for (int j = 0; j < CONTEXT; j++) {
        int rank = draw_rank(&rng);
        tokens[j] = token;
        token = successor(token, rank);
        targets[j] = j < end ? token : -100;
        if (j < end) t->surprise -= log(likelihood[rank]);
        t->seen += j < end;
    }
}

static ls_status read_sample(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    text copy = *(text *)self; /* called by several threads */
    (void)rng;
    make_sample(&copy, i, out[0], out[1]);
    return LS_OK;
}

static ls_dataset *open_text(text *t)
{
    static const ls_dataset_ops ops = { .length = length_of, .read = read_sample };
    static const ls_field fields[] = { { "tokens", LS_DTYPE_I32, 1, { CONTEXT } },
                                       { "targets", LS_DTYPE_I32, 1, { CONTEXT } } };
    ls_dataset *out;
    ls_check(ls_dataset_create(&ops, t, fields, 2, &out));
    return out;
}

static double surprise(text *t)
{
    int32_t tokens[CONTEXT], targets[CONTEXT];
    for (int64_t i = 0; i < t->length; i++) make_sample(t, i, tokens, targets);
    return t->surprise / (double)t->seen;
}

int main(int argc, char **argv)
{
    recipe_gpt recipe = { .layers = 1, .heads = 2, .width = 32, .context = CONTEXT };
    const ls_flag flags[] = {
        { "samples", 'i', &config.samples, "of the training data" },
        { "val-samples", 'i', &config.val_samples, "of the validation data" },
        { "ragged", 'b', &config.ragged, "targets of varying length" },
        { "recompute", 'b', &recipe.recompute, "of the recipe" },
        { 0 },
    };
    ls_world *world;
    ls_model *model;
    ls_run_result result;
    ls_check(ls_world_init(&argc, &argv, &(ls_world_options) { .flags = flags }, &world));
    make_language();
    recipe.preset = "tiny";
    ls_check(recipe_gpt_resolve(&recipe, TOKENS));
    text train_text = { .length = config.samples, .key = 1 };
    text val_text = { .length = config.val_samples, .key = 2 };
    ls_dataset *train = open_text(&train_text), *val = open_text(&val_text);
    ls_check(ls_model_create(world, recipe_gpt_step, &recipe, &model));
    ls_check(ls_fit(model, train, val,
                    &(ls_run_options) { .batch_size = 32,
                                        .optimizer = { .lr = 0.01, .beta2 = 0.95 },
                                        .schedule = { .kind = LS_SCHEDULE_COSINE },
                                        .clip_norm = 1 },
                    &result));
    char *line = ls_run_result_text(world, &result, NULL);
    if (ls_world_rank(world) == 0)
        printf("entropy %.6f\nfloor %.6f\n%s", entropy(), surprise(&val_text), line);
    free(line);
    ls_model_destroy(model);
    ls_dataset_destroy(train);
    ls_dataset_destroy(val);
    return ls_world_finish(world);
}
