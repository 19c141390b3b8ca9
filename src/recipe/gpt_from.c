/* What --init-from names: a model as Hugging Face publishes it, a run by path or name, or a checkpoint.
 * Looked at before anything else is opened, so that what is wrong with it is said first: a folder
 * without its weights mostly lacks the tokenizer, too. */
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "recipe/gpt.h"

static bool is_there(const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < LS_PATH_MAX &&
           access(path, F_OK) == 0;
}

/* The folder that is meant: "run/", "run@best", "checkpoint/model.safetensors". */
static void folder_of(const char *from, char out[LS_PATH_MAX])
{
    static const char file[] = "/model.safetensors";
    snprintf(out, LS_PATH_MAX, "%.*s", (int)strcspn(from, "@"), from);
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') out[--n] = '\0';
    if (n >= sizeof file && strcmp(out + n - (sizeof file - 1), file) == 0)
        out[n - (sizeof file - 1)] = '\0';
}

bool recipe_gpt_is_huggingface(const char *folder)
{
    if (is_there(folder, "manifest.json")) return false; /* a checkpoint of ours */
    return is_there(folder, "config.json") || is_there(folder, "model.safetensors") ||
           is_there(folder, "model.safetensors.index.json");
}

/* The first folder that holds a file so called: the one that is named, the run of the checkpoint that is
 * named, the run of this name. */
static bool find(const recipe_gpt *recipe, const char *file, char folder[LS_PATH_MAX])
{
    const char *const before[] = { "", "", recipe->runs_dir }, *const behind[] = { "", "/../..",
                                                                                   "" };
    char named[LS_PATH_MAX];
    folder_of(recipe->init_from, named);
    for (int i = 0; i < 3; i++)
        if (snprintf(folder, LS_PATH_MAX, "%s%s%s%s", before[i], before[i][0] ? "/" : "", named,
                     behind[i]) < LS_PATH_MAX &&
            is_there(folder, file))
            return true;
    return false;
}

bool recipe_gpt_find_run(const recipe_gpt *recipe, char folder[LS_PATH_MAX])
{
    return find(recipe, "gpt.json", folder);
}

bool recipe_gpt_find_checkpoint(const char *from, char folder[LS_PATH_MAX])
{
    folder_of(from, folder);
    return is_there(folder, "manifest.json") && is_there(folder, "trainer.json");
}

/* A clone without git-lfs has a few lines of text in the place of each large file. */
static ls_status check_pointer(const char *path, const char *folder)
{
    static const char mark[] = "version https://git-lfs";
    char begin[sizeof mark] = "";
    FILE *file = fopen(path, "re");
    if (!file) return LS_OK;
    size_t n = fread(begin, 1, sizeof mark - 1, file);
    fclose(file);
    if (n < sizeof mark - 1 || strcmp(begin, mark) != 0) return LS_OK;
    return ls_fail(LS_ERR_DATA,
                   "--init-from: %s is a git-lfs pointer, not the weights themselves; fetch them "
                   "with: (cd %s && git lfs pull)",
                   path, folder);
}

static ls_status check_pointers(const char *folder)
{
    char pattern[LS_PATH_MAX + 32];
    glob_t found = { 0 };
    ls_status status = LS_OK;
    snprintf(pattern, sizeof pattern, "%s/*.safetensors", folder);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; status == LS_OK && i < found.gl_pathc; i++)
            status = check_pointer(found.gl_pathv[i], folder);
    globfree(&found);
    return status;
}

ls_status recipe_gpt_check_from(const recipe_gpt *recipe)
{
    const char *from = recipe->init_from;
    char folder[LS_PATH_MAX], named[LS_PATH_MAX];
    if (!from) return LS_OK;
    folder_of(from, named);
    ls_status status = check_pointers(named);
    size_t n = strlen(from);
    bool file = n > 12 && strcmp(from + n - 12, ".safetensors") == 0 && access(from, F_OK) == 0;
    if (status != LS_OK || file || recipe_gpt_is_huggingface(named) ||
        is_there(named, "manifest.json") || find(recipe, "checkpoints", folder))
        return status;
    bool path = strchr(named, '/');
    return ls_fail(
        LS_ERR_CONFIG,
        "--init-from %s: %s; looked at %s%s%s%s%s for a run (a folder with checkpoints), a "
        "checkpoint (manifest.json) and a model of Hugging Face's (config.json, "
        "model.safetensors); lockstep runs lists runs",
        from, access(named, F_OK) == 0 ? "there are no weights in it" : "no such folder", named,
        path ? "" : " and ", path ? "" : recipe->runs_dir, path ? "" : "/", path ? "" : named);
}
