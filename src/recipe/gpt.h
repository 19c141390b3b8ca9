/* The recipe behind `lockstep train gpt` and `lockstep generate`: a decoder-only transformer as
 * GPT-2 is one (Radford et al., "Language models are unsupervised multitask learners", 2019). Also
 * an example of the API: public headers only. */
#ifndef LS_RECIPE_GPT_H
#define LS_RECIPE_GPT_H

#include <lockstep/lockstep.h>

typedef struct recipe_gpt {
    const char *preset; /* "tiny", "baby", "gpt2": where a number below is 0 */
    int64_t layers, heads, kv_heads, width;
    int64_t context;    /* tokens of a sample */
    int64_t positions;  /* the model has so many, >= context */
    int64_t vocabulary; /* tokens are [0, vocabulary) */
    double dropout;
    bool recompute; /* activations of a block in the backward pass, instead of keeping them */

    const char *data, *val_data;    /* text, or token files; val_data NULL = a tenth of data */
    const char *tokens, *tokenizer; /* "bytes", "characters", "gpt2"; folder with GPT-2's */
    const char *init_from;          /* weights to begin with; NULL = random */
    const char *runs_dir;           /* where a run named by init_from is */
} recipe_gpt;

/* --- gpt.c --- */
void recipe_gpt_step(ls_graph *g, void *user); /* user: the recipe */
/* The whole command; main's exit code. */
int recipe_gpt_train(int argc, char **argv);

/* --- gpt_from.c: what init_from names --- */
/* Whether there are weights. */
ls_status recipe_gpt_check_from(const recipe_gpt *recipe);
/* Whether a folder holds a model as Hugging Face publishes it. */
bool recipe_gpt_is_huggingface(const char *folder);
/* The folder of the run that from names: by path, by that of a checkpoint or, in runs, by name; false =
 * it is no run of this recipe. */
bool recipe_gpt_find_run(const recipe_gpt *recipe, char folder[LS_PATH_MAX]);
/* The same of a checkpoint that may have left its run. */
bool recipe_gpt_find_checkpoint(const char *from, char folder[LS_PATH_MAX]);

/* --- gpt_sizes.c --- */
/* Sizes that are 0 become init_from's, where that says them, then the preset's; then checked.
 * tokens: of the tokenizer; 0 = unknown. */
ls_status recipe_gpt_resolve(recipe_gpt *recipe, int64_t tokens);
/* gpt.json in a run's folder: the sizes, so that others can build the model again. One that is there
 * already must say the same. */
ls_status recipe_gpt_save(const recipe_gpt *recipe, const char *folder);
ls_status recipe_gpt_load(recipe_gpt *recipe, const char *folder);

/* --- gpt_data.c --- */
typedef struct recipe_gpt_data {
    ls_tokenizer *tokenizer; /* NULL = token files, and nobody said what their tokens mean */
    ls_dataset *all, *train, *val;
} recipe_gpt_data;
/* The tokenizer that the recipe asks for. */
ls_status recipe_gpt_tokenizer(const recipe_gpt *recipe, ls_tokenizer **out);
/* Text or token files, by the path's form. */
ls_status recipe_gpt_open(const recipe_gpt *recipe, const char *path, const ls_tokenizer *tokenizer,
                          ls_dataset **out);
/* The parts for training and validation, with data->tokenizer. */
ls_status recipe_gpt_open_parts(const recipe_gpt *recipe, recipe_gpt_data *data);
void recipe_gpt_close(recipe_gpt_data *data);
/* tokenizer.json in a run's folder; one that is there already must be the same. NULL: none. */
ls_status recipe_gpt_save_tokenizer(const ls_tokenizer *tokenizer, const char *folder);
/* *out NULL = the run has none. */
ls_status recipe_gpt_load_tokenizer(const char *folder, ls_tokenizer **out);

/* --- gpt_weights.c: GPT-2 as Hugging Face's transformers keeps it --- */
/* Sizes that are still 0, from config.json, where there is one. */
ls_status recipe_gpt_huggingface_sizes(recipe_gpt *recipe, const char *folder);
/* [all] init_from: such a folder, or a run, a checkpoint, a .safetensors file of this recipe. */
ls_status recipe_gpt_init(const recipe_gpt *recipe, ls_model *model);
/* [all] model.safetensors and config.json. */
ls_status recipe_gpt_export(const recipe_gpt *recipe, ls_model *model, const char *folder);

/* --- gpt_generate.c --- */
typedef struct recipe_gpt_sampling {
    double temperature; /* 0 = always the most likely token */
    int64_t top_k;      /* of so many most likely ones; 0 = of all */
    int64_t max_tokens;
    uint64_t seed;
} recipe_gpt_sampling;
typedef ls_status recipe_gpt_piece_fn(void *user, const char *piece, size_t nbytes);
/* Continues prompt; each gets the new tokens' bytes as they come. *count: new tokens. */
ls_status recipe_gpt_generate(const recipe_gpt *recipe, ls_model *model,
                              const ls_tokenizer *tokenizer, const char *prompt,
                              const recipe_gpt_sampling *sampling, recipe_gpt_piece_fn *each,
                              void *user, int64_t *count);

#endif
