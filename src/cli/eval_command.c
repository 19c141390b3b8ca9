/* lockstep eval RUN: rebuilds the model that a recipe trained from what the run recorded, and
 * evaluates a checkpoint of it, each sample once, on all devices. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "cli/cli.h"
#include "recipe/image.h"
#include "world/world_internal.h"

typedef struct eval {
    ls_world *world;
    const char *run; /* as given */
    const char *runs_dir;
    recipe_image recipe; /* texts belong to trainer */
    char path[LS_PATH_MAX];
    json_t *trainer;
    ls_values values;
    int64_t samples;
    double seconds;
} eval;

/* RUN alone is its best checkpoint, where there is one. */
static ls_status find_checkpoint(eval *e)
{
    char best[LS_PATH_MAX];
    int n = snprintf(best, sizeof best, "%s@best", e->run);
    if (!strchr(e->run, '@') && n > 0 && n < (int)sizeof best &&
        ls__checkpoint_resolve(e->runs_dir, best, e->path) == LS_OK)
        return ls__checkpoint_trainer(e->path, &e->trainer);
    LS_TRY(ls__checkpoint_resolve(e->runs_dir, e->run, e->path));
    return ls__checkpoint_trainer(e->path, &e->trainer);
}

static const json_t *program_value(const json_t *trainer, const char *flag)
{
    return json_object_get(json_object_get(json_object_get(trainer, "program"), flag), "value");
}

/* The recipe's settings, as the run recorded them. */
static ls_status read_recipe(eval *e)
{
    const char *model = json_string_value(program_value(e->trainer, "model"));
    const json_t *classes = program_value(e->trainer, "classes");
    if (!model || !json_is_integer(classes))
        return ls_fail(
            LS_ERR_CONFIG,
            "%s: it was not trained by a recipe of lockstep train, so its model is known only to "
            "its own program (ls_model_load and ls_evaluate)",
            e->run);
    e->recipe.model = model;
    e->recipe.classes = json_integer_value(classes);
    if (!e->recipe.data) e->recipe.data = json_string_value(program_value(e->trainer, "data"));
    return recipe_image_check(&e->recipe);
}

static ls_status evaluate(eval *e)
{
    ls_dataset *test = NULL;
    ls_model *model = NULL;
    ls_status status;
    LS_TRY(find_checkpoint(e));
    LS_TRY(read_recipe(e));
    LS_TRY_GOTO(recipe_image_open(&e->recipe, "t10k", &test), status, done);
    LS_TRY_GOTO(ls_model_create(e->world, recipe_image_step, &e->recipe, &model), status, done);
    LS_TRY_GOTO(ls_model_load(model, e->path), status, done);
    e->samples = ls_dataset_length(test);
    double began = ls__now();
    status = ls_evaluate(model, test, &e->values);
    e->seconds = ls__now() - began;
done:
    ls_model_destroy(model);
    ls_dataset_destroy(test);
    return status;
}

static json_t *document(const eval *e)
{
    json_t *values = json_object();
    for (int i = 0; values && i < e->values.count; i++)
        json_object_set_new(values, e->values.items[i].name,
                            ls__json_double(e->values.items[i].value));
    const json_t *step = json_object_get(e->trainer, "step");
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:I, s:o, s:i, s:f}", "schema",
                     "lockstep.eval/1", "run", e->run, "checkpoint", e->path, "step",
                     json_integer_value(step), "model", e->recipe.model, "data", e->recipe.data,
                     "samples", (json_int_t)e->samples, "values", values, "world_size",
                     ls_world_size(e->world), "samples_per_s", (double)e->samples / e->seconds);
}

static ls_status print(const eval *e)
{
    if (ls_world_rank(e->world) != 0) return LS_OK;
    if (ls__options_wants(ls__world_options(e->world), "json"))
        return ls_cli_print_json(document(e));
    printf("%s\n", e->path);
    for (int i = 0; i < e->values.count; i++)
        printf("%-10s %.6g\n", e->values.items[i].name, e->values.items[i].value);
    printf("%-10s %lld of %s\n", "samples", (long long)e->samples, e->recipe.data);
    return ls_cli_flush();
}

int ls_cli_eval(int argc, char **argv)
{
    eval e = { .runs_dir = "runs", .recipe = RECIPE_IMAGE_DEFAULTS };
    const ls_flag flags[] = {
        { "data", 's', &e.recipe.data, "folder of the images; default: the run's own" },
        { "runs-dir", 's', &e.runs_dir, "folder that holds runs" },
        { 0 },
    };
    const ls_world_options options = {
        .summary = "Evaluates a run's model on its test set, each sample once.",
        .arguments = "RUN",
        .flags = flags,
        .no_run = true
    };
    ls_check(ls_world_init(&argc, &argv, &options, &e.world));
    if (argc != 2)
        ls_check(ls_fail(LS_ERR_CONFIG,
                         "lockstep eval RUN: one run is needed, by name or path, with @last, "
                         "@best or @STEP; %d were given",
                         argc - 1));
    e.run = argv[1];
    ls_check(evaluate(&e));
    ls_check(print(&e));
    json_decref(e.trainer);
    return ls_world_finish(e.world);
}
