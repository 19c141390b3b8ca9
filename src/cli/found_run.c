/* The run that a command is about: its checkpoint, its folder, and which recipe trained it. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "cli/cli.h"
#include "run/settings.h"

/* RUN alone is its best checkpoint, where there is one. */
static ls_status find_checkpoint(const char *runs_dir, const char *run, char path[LS_PATH_MAX])
{
    char best[LS_PATH_MAX];
    int n = snprintf(best, sizeof best, "%s@best", run);
    if (!strchr(run, '@') && n > 0 && n < (int)sizeof best &&
        ls__checkpoint_resolve(runs_dir, best, path) == LS_OK)
        return LS_OK;
    return ls__checkpoint_resolve(runs_dir, run, path);
}

/* RUN/checkpoints/step-00000500 -> RUN; "" = it lies elsewhere. */
static void folder_of(const char *checkpoint, char folder[LS_PATH_MAX])
{
    snprintf(folder, LS_PATH_MAX, "%s", checkpoint);
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
        else
            snprintf(folder, LS_PATH_MAX, "%s", i == 0 ? ".." : ".");
    }
}

static ls_cli_recipe recipe_of(const ls_cli_run *run)
{
    char gpt[LS_PATH_MAX], table[LS_PATH_MAX];
    if (ls__path_join(gpt, run->folder, "gpt.json") == LS_OK && ls__path_exists(gpt))
        return LS_CLI_RECIPE_GPT;
    if (ls__path_join(table, run->folder, "table.json") == LS_OK && ls__path_exists(table))
        return LS_CLI_RECIPE_TABLE;
    if (ls_cli_run_text(run, "model") && json_is_integer(ls_cli_run_value(run, "classes")))
        return LS_CLI_RECIPE_IMAGE;
    return LS_CLI_RECIPE_NONE;
}

ls_status ls_cli_run_find(const char *runs_dir, const char *name, ls_cli_run *out)
{
    LS_TRY(find_checkpoint(runs_dir, name, out->path));
    LS_TRY(ls__checkpoint_trainer(out->path, &out->trainer));
    folder_of(out->path, out->folder);
    out->recipe = recipe_of(out);
    if (out->recipe != LS_CLI_RECIPE_NONE) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "%s: it was not trained by a recipe of lockstep train, so its model is known "
                   "only to its own program (ls_model_load and ls_evaluate)",
                   name);
}

ls_status ls_cli_run_state(const char *runs_dir, const char *name, ls__run_state *out)
{
    ls_status status = ls__run_state_read(runs_dir, name, out);
    bool mistyped = status != LS_OK && !strchr(name, '/') && !ls__path_exists(out->folder);
    return mistyped ? ls__run_unknown(runs_dir, name) : status;
}

const json_t *ls_cli_run_value(const ls_cli_run *run, const char *flag)
{
    const json_t *program = json_object_get(run->trainer, "program");
    return json_object_get(json_object_get(program, flag), "value");
}

const char *ls_cli_run_text(const ls_cli_run *run, const char *flag)
{
    return json_string_value(ls_cli_run_value(run, flag));
}

int64_t ls_cli_run_step(const ls_cli_run *run)
{
    return json_integer_value(json_object_get(run->trainer, "step"));
}

ls_status ls_cli_run_precision(const ls_cli_run *run, const char *wanted, ls_model *model)
{
    const json_t *configuration = json_object_get(run->trainer, "configuration");
    const json_t *recorded = json_object_get(json_object_get(configuration, "precision"), "value");
    const char *name = wanted ? wanted : json_string_value(recorded);
    ls_precision precision = LS_PRECISION_32; /* runs before there was a choice */
    if (name && !ls__precision_parse(name, &precision))
        return ls_fail(LS_ERR_CONFIG, "--precision %s: there are 32, tf32 and bf16-mixed", name);
    ls_model_set_precision(model, precision);
    return LS_OK;
}
