/* lockstep checkpoint export RUN: weights for other programs, without optimizer and run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "recipe/gpt.h"
#include "world/world_internal.h"

enum { TOKENIZER_MAX = 256 << 20 };

typedef struct export
{
    ls_world *world;
    const char *name; /* of the run, as given */
    const char *runs_dir, *format, *out;
    ls_cli_run run;
    char folder[LS_PATH_MAX]; /* where it goes */
    int copied;               /* tokenizer files */
}
export;

/* "shoes@best" -> "shoes-huggingface" */
static ls_status choose_folder(export *e)
{
    if (e->out) {
        if (snprintf(e->folder, sizeof e->folder, "%s", e->out) < LS_PATH_MAX) return LS_OK;
        return ls_fail(LS_ERR_CONFIG, "--out: too long a path");
    }
    const char *slash = strrchr(e->run.folder, '/');
    snprintf(e->folder, sizeof e->folder, "%.200s-%s", slash ? slash + 1 : e->run.folder,
             e->format);
    return LS_OK;
}

/* Into name there, when it is in folder under this name. */
static ls_status copy_file(const char *folder, const char *from, const export *e, const char *to,
                           bool *copied)
{
    char source[LS_PATH_MAX], target[LS_PATH_MAX];
    char *bytes;
    size_t nbytes;
    LS_TRY(ls__path_join(source, folder, from));
    LS_TRY(ls__path_join(target, e->folder, to));
    if (!ls__path_exists(source)) return LS_OK;
    LS_TRY(ls__file_read(source, TOKENIZER_MAX, &bytes, &nbytes));
    ls_status status = ls__file_write_atomic(&ls__fs_posix, target, bytes, nbytes);
    ls__free(bytes);
    *copied = status == LS_OK;
    return status;
}

/* GPT-2's tokenizer, from where the training took it, under the names that transformers wants. */
static ls_status copy_tokenizer(export *e)
{
    static const char *const files[][2] = {
        { "tokenizer.json", "tokenizer.json" },
        { "encoder.json", "vocab.json" },
        { "vocab.json", "vocab.json" },
        { "vocab.bpe", "merges.txt" },
        { "merges.txt", "merges.txt" },
        { "tokenizer_config.json", "tokenizer_config.json" },
    };
    const char *folder = ls_cli_run_text(&e->run, "tokenizer");
    if (!folder) folder = ls_cli_run_text(&e->run, "init-from");
    if (!folder || (!ls_cli_run_text(&e->run, "tokenizer") && !recipe_gpt_is_huggingface(folder)))
        return LS_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bool copied = false;
        LS_TRY(copy_file(folder, files[i][0], e, files[i][1], &copied));
        e->copied += copied;
    }
    return LS_OK;
}

static ls_status export_run(export *e)
{
    recipe_gpt recipe = { 0 };
    ls_model *model = NULL;
    ls_status status;
    if (strcmp(e->format, "huggingface") != 0)
        return ls_fail(LS_ERR_CONFIG, "--format %s: there is huggingface", e->format);
    LS_TRY(ls_cli_run_find(e->runs_dir, e->name, &e->run));
    if (e->run.recipe != LS_CLI_RECIPE_GPT)
        return ls_fail(LS_ERR_CONFIG,
                       "%s: only language models (lockstep train gpt) have a form in %s; the "
                       "weights themselves are a safetensors file, %s/model.safetensors",
                       e->name, e->format, e->run.path);
    LS_TRY(recipe_gpt_load(&recipe, e->run.folder));
    LS_TRY(choose_folder(e));
    LS_TRY_GOTO(ls_model_create(e->world, recipe_gpt_step, &recipe, &model), status, done);
    LS_TRY_GOTO(ls_model_load(model, e->run.path), status, done);
    LS_TRY_GOTO(recipe_gpt_export(&recipe, model, e->folder), status, done);
    status = copy_tokenizer(e);
done:
    ls_model_destroy(model);
    return status;
}

static ls_status print(const export *e)
{
    if (ls__options_wants(ls__world_options(e->world), "json"))
        return ls_cli_print_json(json_pack(
            "{s:s, s:s, s:s, s:I, s:s, s:s, s:b}", "schema", "lockstep.export/1", "run", e->name,
            "checkpoint", e->run.path, "step", (json_int_t)ls_cli_run_step(&e->run), "format",
            e->format, "folder", e->folder, "tokenizer", e->copied > 0));
    printf("%s: model.safetensors, config.json%s\n", e->folder,
           e->copied ? " and GPT-2's tokenizer" : "");
    return ls_cli_flush();
}

int ls_cli_checkpoint_export(int argc, char **argv)
{
    static export e = { .runs_dir = "runs", .format = "huggingface" };
    const ls_flag flags[] = {
        { "format", 's', &e.format, "huggingface: as its transformers keeps GPT-2" },
        { "out", 's', &e.out, "folder to write; else RUN-huggingface here" },
        { "runs-dir", 's', &e.runs_dir, "folder that holds runs" },
        { 0 },
    };
    const ls_world_options options = {
        .summary = "Writes a run's weights in the form that other programs read.",
        .arguments = "RUN",
        .flags = flags,
        .one_device = true,
        .no_run = true
    };
    ls_check(ls_world_init(&argc, &argv, &options, &e.world));
    if (argc != 2)
        ls_check(ls_fail(LS_ERR_CONFIG, "lockstep checkpoint export RUN: one run, %d were given",
                         argc - 1));
    e.name = argv[1];
    ls_check(export_run(&e));
    ls_check(print(&e));
    json_decref(e.run.trainer);
    return ls_world_finish(e.world);
}
