/* Trains on a table. What its columns mean is learnt from the training file and saved with the run,
 * so that other files are read in the same way. */
#include "recipe/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VAL_FRACTION 0.1

/* --- data --- */

ls_status recipe_table_check(const recipe_table *recipe)
{
    if (!recipe->data)
        return ls_fail(LS_ERR_CONFIG, "--data FILE: where is the table? A CSV file with a line of "
                                      "column names; --target names the column to predict");
    if (recipe->layers < 0 || recipe->layers > 64)
        return ls_fail(LS_ERR_CONFIG, "--layers %lld: 0 to 64", (long long)recipe->layers);
    if (recipe->width < 1 || recipe->width > 65536)
        return ls_fail(LS_ERR_CONFIG, "--width %lld: 1 to 65536", (long long)recipe->width);
    if (!(recipe->dropout >= 0 && recipe->dropout < 1))
        return ls_fail(LS_ERR_CONFIG, "--dropout %g: in [0, 1)", recipe->dropout);
    return LS_OK;
}

ls_status recipe_table_open(const recipe_table *recipe, ls_dataset **all, ls_dataset **train,
                            ls_dataset **val)
{
    ls_status status = ls_dataset_table(recipe->data, recipe->schema, all);
    if (status != LS_OK) return status;
    if (!recipe->val_data) return ls_dataset_split(*all, VAL_FRACTION, 0, train, val);
    *train = *all;
    return ls_dataset_table(recipe->val_data, recipe->schema, val);
}

/* --- the schema, saved with the run --- */

static const char *path_in(char path[LS_PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(path, LS_PATH_MAX, "%s/%s", folder, name) < LS_PATH_MAX) return path;
    ls_check(ls_fail(LS_ERR_CONFIG, "%.64s...: too long a path", folder));
    return NULL;
}

ls_status recipe_table_load_schema(const char *folder, ls_table_schema **out)
{
    char path[LS_PATH_MAX];
    return ls_table_schema_load(path_in(path, folder, "table.json"), out);
}

static bool same_files(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int c = EOF, d = 0;
    while (x && y && (c = getc(x)) == (d = getc(y)) && c != EOF) {}
    if (x) fclose(x);
    if (y) fclose(y);
    return x && y && c == d;
}

typedef struct saving {
    ls_world *world;
    const ls_table_schema *schema;
} saving;

/* A run that goes on must find the columns that it began with. */
static void save_with_run(ls_run *run, void *user)
{
    const saving *s = user;
    char path[LS_PATH_MAX], new[LS_PATH_MAX];
    if (ls_world_rank(s->world) != 0) return;
    path_in(path, ls_run_folder(run), "table.json");
    path_in(new, ls_run_folder(run), "table.json.new");
    ls_check(ls_table_schema_save(s->schema, new));
    if (access(path, F_OK) == 0 && !same_files(path, new))
        ls_check(ls_fail(LS_ERR_CONFIG,
                         "%s: the run began with other columns than the data has now", path));
    if (rename(new, path) != 0) ls_check(ls_fail(LS_ERR_IO, "%s: cannot write", path));
}

/* --- the command --- */

static void print(ls_world *world, const ls_run_result *result, const ls_values *test)
{
    char *text = ls_run_result_text(world, result, test);
    if (text) fputs(text, stdout);
    free(text);
}

static void train(ls_world *world, recipe_table *recipe)
{
    ls_dataset *all, *rest, *val, *test = NULL;
    ls_model *model;
    ls_run_result result;
    ls_values values;
    const ls_table_options columns = { .target = recipe->target,
                                       .drop = recipe->drop,
                                       .categories = recipe->categories,
                                       .classify = recipe->classify };
    ls_check(recipe_table_check(recipe));
    ls_check(ls_table_schema_learn(recipe->data, &columns, &recipe->schema));
    ls_check(recipe_table_open(recipe, &all, &rest, &val));
    if (recipe->test_data) ls_check(ls_dataset_table(recipe->test_data, recipe->schema, &test));
    ls_check(ls_model_create(world, recipe_table_step, recipe, &model));
    saving with_run = { world, recipe->schema };
    const ls_callback save = { .name = "table", .user = &with_run, .fit_begin = save_with_run };
    const ls_callback *const callbacks[] = { &save, NULL };
    ls_check(ls_fit(model, rest, val, &(ls_run_options) { .callbacks = callbacks }, &result));
    if (test && result.reason != LS_STOP_SIGNAL) {
        if (result.best_checkpoint[0]) ls_check(ls_model_load(model, result.best_checkpoint));
        ls_check(ls_evaluate(model, test, &values));
        print(world, &result, &values);
    } else {
        print(world, &result, NULL);
    }
    ls_model_destroy(model);
    if (rest != all) ls_dataset_destroy(rest);
    ls_dataset_destroy(val);
    ls_dataset_destroy(test);
    ls_dataset_destroy(all);
    ls_table_schema_destroy(recipe->schema);
}

int recipe_table_train(int argc, char **argv)
{
    recipe_table recipe = RECIPE_TABLE_DEFAULTS;
    const ls_flag flags[] = {
        { "data", 's', &recipe.data, "a CSV file with a line of column names" },
        { "val-data", 's', &recipe.val_data, "another, to validate on; else a tenth of --data" },
        { "test-data", 's', &recipe.test_data, "another, looked at once, at the end" },
        { "target", 's', &recipe.target, "the column to predict; else the last" },
        { "drop", 's', &recipe.drop, "columns to leave out: id,name" },
        { "categories", 's', &recipe.categories, "columns of categories that look like numbers" },
        { "classify", 'b', &recipe.classify,
          "the target is a class, although it looks like a number" },
        { "layers", 'i', &recipe.layers, "hidden layers" },
        { "width", 'i', &recipe.width, "of a hidden layer" },
        { "dropout", 'd', &recipe.dropout, "part of the activations zeroed in training" },
        { 0 },
    };
    const char *const defaults[] = { "batch-size=32", "max-epochs=30", "lr=0.002",
                                     "schedule=cosine", NULL };
    const ls_world_options options = { .summary = "Predicts a column of a CSV file.",
                                       .flags = flags,
                                       .defaults = defaults };
    ls_world *world;
    ls_check(ls_world_init(&argc, &argv, &options, &world));
    train(world, &recipe);
    return ls_world_finish(world);
}
