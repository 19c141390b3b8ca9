/* lockstep eval RUN: rebuilds the model that a recipe trained from what the run recorded, and
 * evaluates a checkpoint of it, each sample once, on all devices. */
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "recipe/gpt.h"
#include "recipe/image.h"
#include "recipe/table.h"
#include "world/world_internal.h"

typedef struct eval {
    ls_world *world;
    const char *name; /* of the run, as given */
    const char *runs_dir;
    const char *precision; /* NULL = the run's */
    const char *data;      /* NULL = what the run held back */
    ls_cli_run run;
    const char *model; /* for the document */
    ls_values values;
    int64_t samples;
    double seconds;
} eval;

static const char *text(const eval *e, const char *flag)
{
    return ls_cli_run_text(&e->run, flag);
}

static double number(const eval *e, const char *flag)
{
    return json_number_value(ls_cli_run_value(&e->run, flag));
}

/* --- any recipe --- */

static ls_status evaluate(eval *e, ls_step_fn *step, void *recipe, ls_dataset *data)
{
    ls_model *model = NULL;
    ls_status status;
    LS_TRY_GOTO(ls_model_create(e->world, step, recipe, &model), status, done);
    LS_TRY_GOTO(ls_cli_run_precision(&e->run, e->precision, model), status, done);
    LS_TRY_GOTO(ls_model_load(model, e->run.path), status, done);
    e->samples = ls_dataset_length(data);
    double began = ls__now();
    status = ls_evaluate(model, data, &e->values);
    e->seconds = ls__now() - began;
done:
    ls_model_destroy(model);
    return status;
}

/* --- images: the test set, or a folder's validation part --- */

static ls_status eval_image(eval *e)
{
    recipe_image recipe = RECIPE_IMAGE_DEFAULTS;
    recipe_image_data data = { 0 };
    recipe.model = e->model = text(e, "model");
    recipe.classes = (int64_t)number(e, "classes");
    recipe.image_size = (int64_t)number(e, "image-size");
    recipe.channels = (int64_t)number(e, "channels");
    if (number(e, "val-fraction") > 0) recipe.val_fraction = number(e, "val-fraction");
    recipe.data = e->data ? e->data : text(e, "data");
    LS_TRY(recipe_image_check(&recipe));
    LS_TRY(recipe_image_classes(&recipe, e->run.folder, false));
    ls_status status = recipe_image_open(&recipe, &data);
    ls_dataset *held = data.test ? data.test : e->data ? data.all : data.val;
    if (status == LS_OK) status = evaluate(e, recipe_image_step, &recipe, held);
    recipe_image_close(&data);
    e->data = recipe.data;
    return status;
}

/* --- text --- */

/* The same loss, as people in the field like to see it. */
static void add_perplexity(ls_values *values)
{
    double loss = ls_values_get(values, "loss");
    const struct {
        const char *name;
        double value;
    } more[] = { { "perplexity", exp(loss) }, { "bits_per_token", loss / log(2) } };
    for (int i = 0; i < 2 && values->count < LS_VALUES_MAX; i++) {
        snprintf(values->items[values->count].name, LS_VALUE_NAME_MAX, "%s", more[i].name);
        values->items[values->count++].value = more[i].value;
    }
}

static ls_status eval_gpt(eval *e)
{
    recipe_gpt recipe = { .data = text(e, "data"), .val_data = text(e, "val-data") };
    recipe_gpt_data data = { 0 };
    ls_status status;
    e->model = "gpt";
    LS_TRY(recipe_gpt_load(&recipe, e->run.folder));
    LS_TRY_GOTO(recipe_gpt_load_tokenizer(e->run.folder, &data.tokenizer), status, done);
    if (e->data)
        status = recipe_gpt_open(&recipe, e->data, data.tokenizer, &data.all);
    else
        status = recipe_gpt_open_parts(&recipe, &data);
    if (status != LS_OK) goto done;
    LS_TRY_GOTO(evaluate(e, recipe_gpt_step, &recipe, e->data ? data.all : data.val), status, done);
    if (!e->data) e->data = recipe.val_data ? recipe.val_data : recipe.data;
    add_perplexity(&e->values);
done:
    recipe_gpt_close(&data);
    return status;
}

/* --- tables --- */

static ls_status eval_table(eval *e)
{
    recipe_table recipe = RECIPE_TABLE_DEFAULTS;
    ls_dataset *all = NULL, *train = NULL, *val = NULL;
    ls_status status;
    recipe.data = text(e, "data");
    recipe.val_data = text(e, "val-data");
    recipe.layers = (int64_t)number(e, "layers");
    recipe.width = (int64_t)number(e, "width");
    e->model = "table";
    LS_TRY(recipe_table_check(&recipe));
    LS_TRY(recipe_table_load_schema(e->run.folder, &recipe.schema));
    if (!e->data) e->data = text(e, "test-data");
    if (e->data)
        status = ls_dataset_table(e->data, recipe.schema, &all);
    else
        status = recipe_table_open(&recipe, &all, &train, &val);
    if (status == LS_OK) status = evaluate(e, recipe_table_step, &recipe, e->data ? all : val);
    if (!e->data) e->data = recipe.val_data ? recipe.val_data : recipe.data;
    if (train != all) ls_dataset_destroy(train);
    ls_dataset_destroy(val);
    ls_dataset_destroy(all);
    ls_table_schema_destroy(recipe.schema);
    return status;
}

/* --- the command --- */

static json_t *document(const eval *e)
{
    json_t *values = json_object();
    for (int i = 0; values && i < e->values.count; i++)
        json_object_set_new(values, e->values.items[i].name,
                            ls__json_double(e->values.items[i].value));
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:I, s:o, s:i, s:f}", "schema",
                     "lockstep.eval/1", "run", e->name, "checkpoint", e->run.path, "step",
                     (json_int_t)ls_cli_run_step(&e->run), "model", e->model, "data", e->data,
                     "samples", (json_int_t)e->samples, "values", values, "world_size",
                     ls_world_size(e->world), "samples_per_s", (double)e->samples / e->seconds);
}

static ls_status print(const eval *e)
{
    if (ls_world_rank(e->world) != 0) return LS_OK;
    if (ls__options_wants(ls__world_options(e->world), "json"))
        return ls_cli_print_json(document(e));
    printf("%s\n", e->run.path);
    for (int i = 0; i < e->values.count; i++)
        printf("%-14s %.6g\n", e->values.items[i].name, e->values.items[i].value);
    printf("%-14s %lld of %s\n", "samples", (long long)e->samples, e->data);
    return ls_cli_flush();
}

static ls_status run(eval *e)
{
    LS_TRY(ls_cli_run_find(e->runs_dir, e->name, &e->run));
    switch (e->run.recipe) {
    case LS_CLI_RECIPE_GPT:
        return eval_gpt(e);
    case LS_CLI_RECIPE_TABLE:
        return eval_table(e);
    case LS_CLI_RECIPE_IMAGE:
    case LS_CLI_RECIPE_NONE:
        break;
    }
    return eval_image(e);
}

int ls_cli_eval(int argc, char **argv)
{
    static eval e = { .runs_dir = "runs" };
    const ls_flag flags[] = {
        { "data", 's', &e.data, "evaluate on this instead of what the run held back" },
        { "precision", 's', &e.precision, "32, tf32 or bf16-mixed; default: the run's own" },
        { "runs-dir", 's', &e.runs_dir, "folder that holds runs" },
        { 0 },
    };
    const ls_world_options options = {
        .summary = "Evaluates a run's model on data it was not trained on, each sample once.",
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
    e.name = argv[1];
    ls_check(run(&e));
    ls_check(print(&e));
    json_decref(e.run.trainer);
    return ls_world_finish(e.world);
}
