/* The GPT recipe against PyTorch (golden/gpt, written by make_golden_gpt.py), weights there and back in
 * Hugging Face's format, sizes, and text from a model whose answers are known. */
#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "recipe/gpt.h"
#include "world/world_internal.h"

static char folder[] = "/tmp/lockstep-gpt-XXXXXX";
static ls_world *world;

static int begin(void **state)
{
    (void)state;
    ls__log_set_level(LS__LOG_ERROR);
    assert_ptr_equal(mkdtemp(folder), folder);
    assert_ok(ls__world_create_single(&world));
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_int_equal(ls_world_finish(world), 0);
    assert_ok(ls__folder_remove(&ls__fs_posix, folder));
    return 0;
}

static const char *in_folder(const char *name)
{
    static char paths[4][LS_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, LS_PATH_MAX, "%s/%s", folder, name);
    return path;
}

static const char *golden(const char *name)
{
    static char paths[4][LS_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, LS_PATH_MAX, "%s/tests/recipe/golden/gpt/%s", source ? source : "../../..",
             name);
    return path;
}

static ls_model *load_golden(recipe_gpt *recipe, const char *from)
{
    ls_model *model;
    *recipe = (recipe_gpt) { .preset = "tiny", .init_from = from };
    assert_ok(recipe_gpt_resolve(recipe, 0));
    assert_ok(ls_model_create(world, recipe_gpt_step, recipe, &model));
    assert_ok(recipe_gpt_init(recipe, model));
    return model;
}

/* --- scores --- */

typedef struct scores {
    const float *expected; /* (2, CONTEXT, V) */
    int64_t count;         /* of a sample */
    int samples;
    double worst;
} scores;

static void compare(void *user, int64_t index, const ls_outputs *outputs)
{
    scores *s = user;
    const ls_array *z = ls_outputs_get(outputs, "scores");
    assert_non_null(z);
    s->samples++;
    assert_int_equal(ls_array_count(z), s->count);
    for (int64_t i = 0; index < 2 && i < s->count; i++) {
        double d =
            fabs((double)((const float *)z->data)[i] - (double)s->expected[index * s->count + i]);
        if (!(d <= s->worst)) s->worst = d;
    }
}

static void check_scores(ls_model *model, const recipe_gpt *recipe)
{
    ls__safetensors header;
    ls_dataset *data;
    char *bytes;
    size_t nbytes;
    assert_ok(ls__safetensors_open(golden("scores.safetensors"), &header));
    assert_ok(ls__file_read(golden("scores.safetensors"), 1 << 20, &bytes, &nbytes));
    int64_t count = recipe->context * recipe->vocabulary;
    assert_int_equal(header.tensors[0].end - header.tensors[0].begin, 2 * count * 4);
    float *expected = malloc((size_t)count * 8);
    memcpy(expected, bytes + header.tensors[0].begin, (size_t)count * 8);
    scores s = { .expected = expected, .count = count };
    assert_ok(ls_dataset_tokens(golden("tokens.bin"), recipe->context, &data));
    assert_ok(ls_predict(model, data, compare, &s));
    assert_int_equal(s.samples, ls_dataset_length(data));
    if (!(s.worst < 1e-4)) fail_msg("scores differ by %g from PyTorch's", s.worst);
    ls_dataset_destroy(data);
    ls__safetensors_free(&header);
    free(expected);
    free(bytes);
}

static void test_scores(void **state)
{
    (void)state;
    recipe_gpt recipe;
    ls_model *model = load_golden(&recipe, golden(""));
    assert_int_equal(recipe.layers, 2);
    assert_int_equal(recipe.context, 12);
    check_scores(model, &recipe);
    ls_model_destroy(model);
}

/* --- there and back --- */

static void check_same_tensor(const char *a_path, const char *b_path, const ls__safetensors *b,
                              const ls__safetensor *x)
{
    char name[256], *p, *q;
    size_t n, m;
    snprintf(name, sizeof name, "transformer.%s", x->name);
    const ls__safetensor *y = ls__safetensors_find(b, name);
    if (!y) fail_msg("%s: there is no %s", b_path, name);
    assert_int_equal(x->rank, y->rank);
    for (int d = 0; d < x->rank; d++) assert_int_equal(x->shape[d], y->shape[d]);
    assert_ok(ls__file_read(a_path, 1 << 24, &p, &n));
    assert_ok(ls__file_read(b_path, 1 << 24, &q, &m));
    assert_memory_equal(p + x->begin, q + y->begin, (size_t)(x->end - x->begin));
    free(p);
    free(q);
}

static void test_export(void **state)
{
    (void)state;
    recipe_gpt recipe;
    ls__safetensors a, b;
    int compared = 0;
    ls_model *model = load_golden(&recipe, golden(""));
    assert_ok(recipe_gpt_export(&recipe, model, in_folder("exported")));
    ls_model_destroy(model);
    assert_ok(ls__safetensors_open(golden("model.safetensors"), &a));
    assert_ok(ls__safetensors_open(in_folder("exported/model.safetensors"), &b));
    for (int i = 0; i < a.count; i++) {
        const ls__safetensor *t = &a.tensors[i];
        if (strcmp(t->dtype, "F32") != 0 || strcmp(t->name, "lm_head.weight") == 0) continue;
        check_same_tensor(golden("model.safetensors"), in_folder("exported/model.safetensors"), &b,
                          t);
        compared++;
    }
    assert_int_equal(compared, 2 * 12 + 4);
    assert_int_equal(b.count, compared);
    ls__safetensors_free(&a);
    ls__safetensors_free(&b);

    model = load_golden(&recipe, in_folder("exported")); /* its config.json says enough */
    check_scores(model, &recipe);
    ls_model_destroy(model);

    recipe.kv_heads = 1;
    assert_fails(recipe_gpt_export(&recipe, NULL, in_folder("grouped")), LS_ERR_UNSUPPORTED,
                 "grouped queries");
}

/* --- what does not fit --- */

static void write_config(const char *key, json_t *value)
{
    json_t *config;
    assert_ok(ls__json_read(golden("config.json"), 1 << 20, &config));
    json_object_set_new(config, key, value);
    assert_ok(ls__json_write(&ls__fs_posix, in_folder("hf/config.json"), config));
    json_decref(config);
}

static void refused(const char *key, json_t *value, ls_status status, const char *text)
{
    recipe_gpt recipe = { .preset = "tiny", .init_from = in_folder("hf") };
    write_config(key, value);
    assert_fails(recipe_gpt_resolve(&recipe, 0), status, text);
}

static void test_configs(void **state)
{
    (void)state;
    assert_ok(ls__folder_make(&ls__fs_posix, in_folder("hf")));
    refused("model_type", json_string("llama"), LS_ERR_UNSUPPORTED, "model_type is not gpt2");
    refused("activation_function", json_string("relu"), LS_ERR_UNSUPPORTED, "gelu_new");
    refused("layer_norm_epsilon", json_real(1e-6), LS_ERR_UNSUPPORTED, "1e-5");
    refused("n_inner", json_integer(100), LS_ERR_UNSUPPORTED, "n_inner");
    refused("tie_word_embeddings", json_false(), LS_ERR_UNSUPPORTED, "tie_word");
    refused("n_layer", json_string("2"), LS_ERR_DATA, "n_layer");
    refused("n_head", json_integer(3), LS_ERR_CONFIG, "not a multiple");
    recipe_gpt recipe = { .preset = "tiny", .init_from = in_folder("hf"), .width = 32 };
    write_config("n_head", json_integer(2));
    assert_fails(recipe_gpt_resolve(&recipe, 0), LS_ERR_CONFIG, "--width 32");
    recipe = (recipe_gpt) { .preset = "tiny", .init_from = in_folder("hf"), .context = 13 };
    assert_fails(recipe_gpt_resolve(&recipe, 0), LS_ERR_CONFIG, "12 positions");
    recipe = (recipe_gpt) { .preset = "tiny", .init_from = in_folder("hf"), .context = 5 };
    assert_ok(recipe_gpt_resolve(&recipe, 0)); /* shorter samples than the model could see */
    assert_int_equal(recipe.context, 5);
    assert_int_equal(recipe.positions, 12);
    assert_fails(recipe_gpt_resolve(&recipe, 41), LS_ERR_CONFIG, "41 tokens");
}

static void test_sizes(void **state)
{
    (void)state;
    recipe_gpt recipe = { .preset = "baby" }, loaded = { 0 };
    assert_ok(recipe_gpt_resolve(&recipe, 65));
    assert_int_equal(recipe.layers, 6);
    assert_int_equal(recipe.kv_heads, 6);
    assert_int_equal(recipe.width, 384);
    assert_int_equal(recipe.context, 256);
    assert_int_equal(recipe.vocabulary, 65);
    assert_ok(recipe_gpt_save(&recipe, folder));
    assert_ok(recipe_gpt_load(&loaded, folder));
    assert_int_equal(loaded.layers, 6);
    assert_int_equal(loaded.heads, 6);
    assert_int_equal(loaded.positions, 256);
    assert_int_equal(loaded.vocabulary, 65);
    recipe = (recipe_gpt) { .preset = "huge" };
    assert_fails(recipe_gpt_resolve(&recipe, 0), LS_ERR_CONFIG, "tiny, baby and gpt2");
    recipe = (recipe_gpt) { .preset = "tiny", .heads = 4, .kv_heads = 3 };
    assert_fails(recipe_gpt_resolve(&recipe, 0), LS_ERR_CONFIG, "--kv-heads 3");
    recipe = (recipe_gpt) { .preset = "tiny", .layers = -1 };
    assert_fails(recipe_gpt_resolve(&recipe, 0), LS_ERR_CONFIG, "--layers -1");
    recipe = (recipe_gpt) { .preset = "tiny", .dropout = 1 };
    assert_fails(recipe_gpt_resolve(&recipe, 0), LS_ERR_CONFIG, "--dropout");
}

/* --- text --- */

static ls_status collect(void *user, const char *piece, size_t nbytes)
{
    char *text = user;
    size_t n = strlen(text);
    assert_true(n + nbytes < 512);
    memcpy(text + n, piece, nbytes);
    text[n + nbytes] = '\0';
    return LS_OK;
}

typedef struct last_scores {
    int64_t at; /* position whose scores are wanted */
    int32_t best;
} last_scores;

static void keep_best(void *user, int64_t index, const ls_outputs *outputs)
{
    last_scores *s = user;
    const ls_array *z = ls_outputs_get(outputs, "scores");
    int64_t count = z->shape[1];
    const float *row = (const float *)z->data + s->at * count;
    (void)index;
    s->best = 0;
    for (int32_t i = 1; i < count; i++)
        if (row[i] > row[s->best]) s->best = i;
}

/* What a window of tokens says comes next, by the whole model at once. */
typedef struct window {
    const int32_t *tokens;
    int64_t count;
} window;

static int64_t one(void *self)
{
    (void)self;
    return 1;
}

static ls_status read_window(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    const window *w = self;
    (void)i, (void)rng;
    memcpy(out[0], w->tokens, (size_t)w->count * sizeof(int32_t));
    return LS_OK;
}

static int32_t next_token(ls_model *model, const int32_t *tokens, int64_t count)
{
    static const ls_dataset_ops ops = { .length = one, .read = read_window };
    window w = { tokens, count };
    const ls_field field = { "tokens", LS_DTYPE_I32, 1, { count } };
    last_scores s = { .at = count - 1 };
    ls_dataset *data;
    assert_ok(ls_dataset_create(&ops, &w, &field, 1, &data));
    assert_ok(ls_predict(model, data, keep_best, &s));
    ls_dataset_destroy(data);
    return s.best;
}

/* The decoder's text is that of the whole model on the same window; when the context (12) is full,
 * the window becomes its last half. */
static void test_generate(void **state)
{
    (void)state;
    recipe_gpt recipe;
    ls_tokenizer *tokenizer;
    char text[512] = "", again[512] = "";
    int32_t tokens[64];
    int64_t first = 0, n = 3, count;
    FILE *file = fopen(in_folder("letters.txt"), "w");
    for (int c = 0; c < 40; c++) fputc('0' + c, file);
    fclose(file);
    assert_ok(ls_tokenizer_characters(in_folder("letters.txt"), &tokenizer));
    ls_model *model = load_golden(&recipe, golden(""));
    recipe_gpt_sampling sampling = { .temperature = 0, .max_tokens = 30 };
    assert_ok(
        recipe_gpt_generate(&recipe, model, tokenizer, "123", &sampling, collect, text, &count));
    assert_int_equal(count, 30);
    assert_int_equal(strlen(text), 30);
    for (int i = 0; i < 3; i++) tokens[i] = i + 1;
    for (int i = 0; i < 30; i++) {
        tokens[n] = next_token(model, tokens + first, n - first);
        if (text[i] != '0' + tokens[n])
            fail_msg("token %d is %c, not %c", i, text[i], '0' + tokens[n]);
        n++;
        if (n - first > recipe.positions) first = n - recipe.positions / 2;
    }
    sampling = (recipe_gpt_sampling) { .temperature = 1, .max_tokens = 30, .seed = 5 };
    text[0] = '\0';
    assert_ok(
        recipe_gpt_generate(&recipe, model, tokenizer, "123", &sampling, collect, text, &count));
    assert_ok(
        recipe_gpt_generate(&recipe, model, tokenizer, "123", &sampling, collect, again, &count));
    assert_string_equal(text, again);
    sampling.seed = 6;
    again[0] = '\0';
    assert_ok(
        recipe_gpt_generate(&recipe, model, tokenizer, "123", &sampling, collect, again, &count));
    assert_string_not_equal(text, again);
    assert_fails(
        recipe_gpt_generate(&recipe, model, tokenizer, "12z", &sampling, collect, again, &count),
        LS_ERR_DATA, "2");
    /* A prompt longer than the context. */
    again[0] = '\0';
    assert_ok(recipe_gpt_generate(&recipe, model, tokenizer, "0123456789:;<=>?@ABCDEFG", &sampling,
                                  collect, again, &count));
    assert_int_equal(strlen(again), 30);
    ls_model_destroy(model);
    ls_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_configs),
        cmocka_unit_test(test_scores),   cmocka_unit_test(test_export),
        cmocka_unit_test(test_generate),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
