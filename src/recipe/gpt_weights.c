/* GPT-2's weights as Hugging Face's transformers keeps them. There, a layer's matrix lies the other
 * way round ("Conv1D"), names may have a prefix, and files may hold attention's mask. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recipe/gpt.h"

/* clang-format off */
#define GPT2(prefix)                                                                               \
    { prefix "wte.weight", "wte.weight", false },                                                  \
    { prefix "wpe.weight", "wpe.weight", false },                                                  \
    { prefix "h.*.ln_1.weight", "block*.ln1.weight", false },                                      \
    { prefix "h.*.ln_1.bias", "block*.ln1.bias", false },                                          \
    { prefix "h.*.attn.c_attn.weight", "block*.qkv.weight", true },                                \
    { prefix "h.*.attn.c_attn.bias", "block*.qkv.bias", false },                                   \
    { prefix "h.*.attn.c_proj.weight", "block*.proj.weight", true },                               \
    { prefix "h.*.attn.c_proj.bias", "block*.proj.bias", false },                                  \
    { prefix "h.*.ln_2.weight", "block*.ln2.weight", false },                                      \
    { prefix "h.*.ln_2.bias", "block*.ln2.bias", false },                                          \
    { prefix "h.*.mlp.c_fc.weight", "block*.fc.weight", true },                                    \
    { prefix "h.*.mlp.c_fc.bias", "block*.fc.bias", false },                                       \
    { prefix "h.*.mlp.c_proj.weight", "block*.out.weight", true },                                 \
    { prefix "h.*.mlp.c_proj.bias", "block*.out.bias", false },                                    \
    { prefix "ln_f.weight", "ln.weight", false },                                                  \
    { prefix "ln_f.bias", "ln.bias", false },                                                      \
    { prefix "h.*.attn.bias", NULL, false }, /* the mask */                                        \
    { prefix "h.*.attn.masked_bias", NULL, false }
/* clang-format on */

static const ls_weight_rule rules[] = {
    GPT2("transformer."),
    GPT2(""),
    { "lm_head.weight", NULL, false }, /* is wte.weight */
    { 0 },
};

/* --- reading --- */

static bool is_there(const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < LS_PATH_MAX &&
           access(path, F_OK) == 0;
}

/* What GPT-2 has many variants of, and this model one. */
static ls_status check_config(const json_t *config, const char *path)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *activation = json_string_value(json_object_get(config, "activation_function"));
    const json_t *epsilon = json_object_get(config, "layer_norm_epsilon");
    const json_t *inner = json_object_get(config, "n_inner"),
                 *width = json_object_get(config, "n_embd");
    const char *wrong = NULL;
    if (!type || strcmp(type, "gpt2") != 0) wrong = "model_type is not gpt2";
    if (activation && strcmp(activation, "gelu_new") != 0 &&
        strcmp(activation, "gelu_pytorch_tanh") != 0)
        wrong = "activation_function is not gelu_new";
    if (json_is_real(epsilon) && json_real_value(epsilon) != 1e-5)
        wrong = "layer_norm_epsilon is not 1e-5";
    if (json_is_integer(inner) && json_integer_value(inner) != 4 * json_integer_value(width))
        wrong = "n_inner is not 4 n_embd";
    if (json_is_false(json_object_get(config, "tie_word_embeddings")))
        wrong = "tie_word_embeddings is false";
    if (json_is_false(json_object_get(config, "scale_attn_weights")) ||
        json_is_true(json_object_get(config, "scale_attn_by_inverse_layer_idx")))
        wrong = "attention is scaled in another way";
    if (json_is_true(json_object_get(config, "add_cross_attention"))) wrong = "cross attention";
    return wrong ? ls_fail(LS_ERR_UNSUPPORTED, "%s: %s; this recipe is GPT-2 only", path, wrong)
                 : LS_OK;
}

static ls_status take(const json_t *config, const char *path, const char *key, const char *flag,
                      int64_t *size)
{
    const json_t *value = json_object_get(config, key);
    if (!json_is_integer(value))
        return ls_fail(LS_ERR_DATA, "%s: %s is missing or not a number", path, key);
    if (*size != 0 && *size != json_integer_value(value))
        return ls_fail(LS_ERR_CONFIG, "--%s %lld: the weights in %s are for %lld", flag,
                       (long long)*size, path, (long long)json_integer_value(value));
    *size = json_integer_value(value);
    return LS_OK;
}

ls_status recipe_gpt_huggingface_sizes(recipe_gpt *recipe, const char *folder)
{
    char path[LS_PATH_MAX];
    json_error_t error;
    if (!is_there(folder, "config.json")) return LS_OK;
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *config = json_load_file(path, 0, &error);
    if (!config) return ls_fail(LS_ERR_DATA, "%s: %s", path, error.text);
    ls_status status = check_config(config, path);
    if (status == LS_OK) status = take(config, path, "n_layer", "layers", &recipe->layers);
    if (status == LS_OK) status = take(config, path, "n_head", "heads", &recipe->heads);
    if (status == LS_OK) status = take(config, path, "n_embd", "width", &recipe->width);
    if (status == LS_OK) status = take(config, path, "n_positions", NULL, &recipe->positions);
    if (status == LS_OK)
        status = take(config, path, "vocab_size", "vocabulary", &recipe->vocabulary);
    json_decref(config);
    if (recipe->context == 0) recipe->context = recipe->positions;
    return status;
}

ls_status recipe_gpt_init(const recipe_gpt *recipe, ls_model *model)
{
    if (recipe_gpt_is_huggingface(recipe->init_from))
        return ls_model_load_as(model, recipe->init_from, rules);
    return ls_model_load(model, recipe->init_from);
}

/* --- writing --- */

static json_t *config_of(const recipe_gpt *recipe)
{
    json_int_t width = recipe->width, heads = recipe->heads, layers = recipe->layers;
    json_int_t positions = recipe->positions, vocabulary = recipe->vocabulary;
    double dropout = recipe->dropout;
    return json_pack("{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:n, s:s, s:f, s:f, s:f, "
                     "s:f, s:f, s:b}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "torch_dtype",
                     "float32", "n_layer", layers, "n_head", heads, "n_embd", width, "n_positions",
                     positions, "n_ctx", positions, "vocab_size", vocabulary, "n_inner",
                     "activation_function", "gelu_new", "layer_norm_epsilon", 1e-5,
                     "initializer_range", 0.02, "embd_pdrop", dropout, "resid_pdrop", dropout,
                     "attn_pdrop", 0.0, "tie_word_embeddings", 1);
}

static ls_status write_config(const recipe_gpt *recipe, const char *folder)
{
    char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *config = config_of(recipe);
    bool written =
        config && json_dump_file(config, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(config);
    return written ? LS_OK : ls_fail(LS_ERR_IO, "%s: cannot write", path);
}

ls_status recipe_gpt_export(const recipe_gpt *recipe, ls_model *model, const char *folder)
{
    char path[LS_PATH_MAX];
    if (recipe->kv_heads != recipe->heads)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--kv-heads %lld of %lld heads: GPT-2's format knows no grouped queries",
                       (long long)recipe->kv_heads, (long long)recipe->heads);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ls_fail(LS_ERR_IO, "%s: cannot make the folder: %s", folder, strerror(errno));
    if (snprintf(path, sizeof path, "%s/model.safetensors", folder) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_CONFIG, "%.64s...: too long a path", folder);
    ls_status status = ls_model_save_as(model, path, rules);
    return status == LS_OK ? write_config(recipe, folder) : status;
}
