/* How large a GPT is: presets, flags, what a run recorded. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "recipe/gpt.h"

enum { SIZE_MOST = 1 << 24, LAYERS_MOST = 4096 };

typedef struct preset {
    const char *name;
    int64_t layers, heads, width, context, vocabulary;
} preset;

static const preset presets[] = {
    { "tiny", 4, 4, 128, 64, 50257 },
    { "baby", 6, 6, 384, 256, 50257 },
    { "gpt2", 12, 12, 768, 1024, 50257 },
};

static void fill(int64_t *size, int64_t value)
{
    if (*size == 0) *size = value;
}

static ls_status apply_preset(recipe_gpt *recipe)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const preset *p = &presets[i];
        if (strcmp(recipe->preset, p->name) != 0) continue;
        fill(&recipe->layers, p->layers);
        fill(&recipe->heads, p->heads);
        fill(&recipe->width, p->width);
        fill(&recipe->context, p->context);
        fill(&recipe->vocabulary, p->vocabulary);
        return LS_OK;
    }
    return ls_fail(LS_ERR_CONFIG, "--preset %s: there are tiny, baby and gpt2", recipe->preset);
}

static ls_status check(const recipe_gpt *recipe)
{
    const struct {
        const char *flag;
        int64_t size, most;
    } sizes[] = {
        { "layers", recipe->layers, LAYERS_MOST },   { "heads", recipe->heads, SIZE_MOST },
        { "kv-heads", recipe->kv_heads, SIZE_MOST }, { "width", recipe->width, SIZE_MOST },
        { "context", recipe->context, SIZE_MOST },   { "vocabulary", recipe->vocabulary, SIZE_MOST }
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].size < 1 || sizes[i].size > sizes[i].most)
            return ls_fail(LS_ERR_CONFIG, "--%s %lld: 1 to %d", sizes[i].flag,
                           (long long)sizes[i].size, (int)sizes[i].most);
    if (recipe->width % recipe->heads != 0)
        return ls_fail(LS_ERR_CONFIG, "--width %lld: not a multiple of --heads %lld",
                       (long long)recipe->width, (long long)recipe->heads);
    if (recipe->heads % recipe->kv_heads != 0)
        return ls_fail(LS_ERR_CONFIG, "--kv-heads %lld: does not divide --heads %lld",
                       (long long)recipe->kv_heads, (long long)recipe->heads);
    if (recipe->context > recipe->positions)
        return ls_fail(LS_ERR_CONFIG, "--context %lld: the model has %lld positions",
                       (long long)recipe->context, (long long)recipe->positions);
    if (!(recipe->dropout >= 0 && recipe->dropout < 1))
        return ls_fail(LS_ERR_CONFIG, "--dropout %g: in [0, 1)", recipe->dropout);
    return LS_OK;
}

/* Weights alone do not tell all: other heads would read them in another way, without a word. */
static ls_status check_same(const recipe_gpt *recipe, const char *folder)
{
    recipe_gpt before = { 0 };
    ls_status status = recipe_gpt_load(&before, folder);
    if (status != LS_OK) return status;
    const struct {
        const char *flag;
        int64_t then, now;
    } sizes[] = { { "layers", before.layers, recipe->layers },
                  { "heads", before.heads, recipe->heads },
                  { "kv-heads", before.kv_heads, recipe->kv_heads },
                  { "width", before.width, recipe->width },
                  { "context", before.positions, recipe->positions },
                  { "vocabulary", before.vocabulary, recipe->vocabulary } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].then != sizes[i].now)
            return ls_fail(LS_ERR_CONFIG, "--%s %lld: %s began with %lld", sizes[i].flag,
                           (long long)sizes[i].now, folder, (long long)sizes[i].then);
    return LS_OK;
}

/* What a checkpoint that has left its run remembers: the flags that it was trained with. */
static ls_status load_flags(recipe_gpt *other, const char *folder)
{
    const struct {
        const char *flag;
        int64_t *size;
    } sizes[] = { { "layers", &other->layers },     { "heads", &other->heads },
                  { "kv-heads", &other->kv_heads }, { "width", &other->width },
                  { "context", &other->context },   { "vocabulary", &other->vocabulary } };
    char path[LS_PATH_MAX], name[16] = "tiny";
    json_error_t error;
    if (snprintf(path, sizeof path, "%s/trainer.json", folder) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_CONFIG, "%.64s...: too long a path", folder);
    json_t *document = json_load_file(path, 0, &error);
    if (!document) return ls_fail(LS_ERR_DATA, "%s: %s", path, error.text);
    const json_t *flags = json_object_get(document, "program");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i].size =
            json_integer_value(json_object_get(json_object_get(flags, sizes[i].flag), "value"));
    const char *text =
        json_string_value(json_object_get(json_object_get(flags, "preset"), "value"));
    if (text) snprintf(name, sizeof name, "%s", text);
    json_decref(document);
    int64_t vocabulary = other->vocabulary; /* 0 = the tokenizer's */
    other->preset = name;
    ls_status status = apply_preset(other);
    other->preset = NULL;
    other->vocabulary = vocabulary;
    other->positions = other->context;
    fill(&other->kv_heads, other->heads);
    return status;
}

static void take_sizes(recipe_gpt *recipe, const recipe_gpt *other)
{
    fill(&recipe->layers, other->layers);
    fill(&recipe->heads, other->heads);
    fill(&recipe->kv_heads, other->kv_heads);
    fill(&recipe->width, other->width);
    fill(&recipe->context, other->context);
    fill(&recipe->vocabulary, other->vocabulary);
    recipe->positions = other->positions;
}

/* Weights to begin with say how large the model is. */
static ls_status apply_init(recipe_gpt *recipe)
{
    char folder[LS_PATH_MAX];
    recipe_gpt other = { 0 };
    if (!recipe->init_from) return LS_OK;
    if (recipe_gpt_is_huggingface(recipe->init_from))
        return recipe_gpt_huggingface_sizes(recipe, recipe->init_from);
    bool run = recipe_gpt_find_run(recipe, folder);
    if (!run && !recipe_gpt_find_checkpoint(recipe->init_from, folder)) return LS_OK;
    ls_status status = run ? recipe_gpt_load(&other, folder) : load_flags(&other, folder);
    if (status != LS_OK) return status;
    take_sizes(recipe, &other);
    return run ? check_same(recipe, folder) : LS_OK;
}

ls_status recipe_gpt_resolve(recipe_gpt *recipe, int64_t tokens)
{
    ls_status status = apply_init(recipe);
    if (status != LS_OK) return status;
    fill(&recipe->vocabulary, tokens);
    status = apply_preset(recipe);
    if (status != LS_OK) return status;
    fill(&recipe->kv_heads, recipe->heads);
    fill(&recipe->positions, recipe->context);
    if (recipe->vocabulary < tokens)
        return ls_fail(LS_ERR_CONFIG, "--vocabulary %lld: the tokenizer has %lld tokens",
                       (long long)recipe->vocabulary, (long long)tokens);
    return check(recipe);
}

/* --- gpt.json --- */

static ls_status path_in(char path[LS_PATH_MAX], const char *folder)
{
    if (snprintf(path, LS_PATH_MAX, "%s/gpt.json", folder) < LS_PATH_MAX) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "%.64s...: too long a path", folder);
}

ls_status recipe_gpt_save(const recipe_gpt *recipe, const char *folder)
{
    char path[LS_PATH_MAX], new[LS_PATH_MAX + 8];
    if (path_in(path, folder) != LS_OK) return LS_ERR_CONFIG;
    snprintf(new, sizeof new, "%s.new", path);
    if (access(path, F_OK) == 0) return check_same(recipe, folder);
    json_t *document = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "schema", "lockstep.gpt/1", "layers",
        (json_int_t)recipe->layers, "heads", (json_int_t)recipe->heads, "kv_heads",
        (json_int_t)recipe->kv_heads, "width", (json_int_t)recipe->width, "context",
        (json_int_t)recipe->context, "positions", (json_int_t)recipe->positions, "vocabulary",
        (json_int_t)recipe->vocabulary, "dropout", recipe->dropout);
    bool written =
        document && json_dump_file(document, new, JSON_INDENT(2)) == 0 && rename(new, path) == 0;
    json_decref(document);
    return written ? LS_OK : ls_fail(LS_ERR_IO, "%s: cannot write", path);
}

ls_status recipe_gpt_load(recipe_gpt *recipe, const char *folder)
{
    char path[LS_PATH_MAX];
    json_error_t error;
    json_int_t layers, heads, kv_heads, width, context, positions, vocabulary;
    if (path_in(path, folder) != LS_OK) return LS_ERR_CONFIG;
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!document) return ls_fail(LS_ERR_DATA, "%s: %s", path, error.text);
    int failed =
        json_unpack_ex(document, &error, 0, "{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "layers",
                       &layers, "heads", &heads, "kv_heads", &kv_heads, "width", &width, "context",
                       &context, "positions", &positions, "vocabulary", &vocabulary);
    json_decref(document);
    if (failed) return ls_fail(LS_ERR_DATA, "%s: %s", path, error.text);
    recipe->layers = layers;
    recipe->heads = heads;
    recipe->kv_heads = kv_heads;
    recipe->width = width;
    recipe->context = context;
    recipe->positions = positions;
    recipe->vocabulary = vocabulary;
    return check(recipe);
}
