/* Weights under another program's names: read into the same place as those of a file of ours, by
 * name, so that everything behind it (shapes, missing ones) is judged once, when the model's table
 * is there. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "run/share.h"
#include "trainer/weights_internal.h"

/* --- reading --- */

/* Where a wanted tensor comes from. */
typedef struct source {
    const ls__weight_file *file;
    const ls__safetensor *tensor;
    bool transpose;
} source;

static ls_status check_new(const ls__loaded *loaded, const source *sources, const source *s,
                           const char *name)
{
    for (int i = 0; i < loaded->ntensors; i++)
        if (strcmp(loaded->tensors[i].name, name) == 0)
            return ls_fail(LS_ERR_DATA, "%s: %s and %s are both for the model's %s", s->file->path,
                           sources[i].tensor->name, s->tensor->name, name);
    return LS_OK;
}

static ls_status enter(ls__loaded *loaded, source *sources, const source *s, const char *name)
{
    LS_TRY(check_new(loaded, sources, s, name));
    ls__saved_tensor *t = &loaded->tensors[loaded->ntensors];
    *t = (ls__saved_tensor) { .name = ls__strdup(name),
                              .rank = s->tensor->rank,
                              .offset = loaded->count };
    if (!t->name) return LS_ERR_MEMORY;
    memcpy(t->shape, s->tensor->shape, sizeof t->shape);
    if (s->transpose && t->rank == 2) {
        t->shape[0] = s->tensor->shape[1];
        t->shape[1] = s->tensor->shape[0];
    }
    sources[loaded->ntensors++] = *s;
    loaded->count += ls__weight_elements(t->rank, t->shape);
    return LS_OK;
}

static ls_status enter_file(const ls__weight_file *file, const ls_weight_rule *rules,
                            ls__loaded *loaded, source *sources)
{
    char name[LS__WEIGHT_NAME];
    for (int i = 0; i < file->header.count; i++) {
        const ls__safetensor *t = &file->header.tensors[i];
        const ls_weight_rule *rule = ls__weight_rule_of_file(rules, t->name, name);
        if (!rule)
            return ls_fail(LS_ERR_DATA,
                           "%s: %s is not a tensor that this model knows; the file is of another "
                           "kind of model",
                           file->path, t->name);
        if (!rule->model) continue;
        source s = { file, t, rule->transpose };
        LS_TRY(enter(loaded, sources, &s, name));
    }
    return LS_OK;
}

static ls_status read_all(const ls__weight_files *files, const ls_weight_rule *rules,
                          ls__loaded *loaded)
{
    int most = 0;
    for (int i = 0; i < files->count; i++) most += files->files[i].header.count;
    source *sources = ls__alloc((size_t)most + 1, sizeof *sources);
    loaded->tensors = ls__alloc((size_t)most + 1, sizeof *loaded->tensors);
    ls_status status = sources && loaded->tensors ? LS_OK : LS_ERR_MEMORY;
    for (int i = 0; status == LS_OK && i < files->count; i++)
        status = enter_file(&files->files[i], rules, loaded, sources);
    if (status == LS_OK && loaded->count > 0) {
        loaded->values = ls__map((size_t)loaded->count * sizeof(float));
        if (!loaded->values) status = LS_ERR_MEMORY;
    }
    for (int i = 0; status == LS_OK && i < loaded->ntensors; i++)
        status = ls__weight_read(sources[i].file, sources[i].tensor, sources[i].transpose,
                                 loaded->values + loaded->tensors[i].offset);
    ls__free(sources);
    return status;
}

static ls_status load(const char *path, const ls_weight_rule *rules, ls__loaded **out)
{
    ls__weight_files files;
    LS_TRY(ls__weight_files_open(path, &files));
    ls__loaded *loaded = ls__alloc(1, sizeof *loaded);
    ls_status status = loaded ? LS_OK : LS_ERR_MEMORY;
    if (loaded) {
        loaded->exact = true;
        snprintf(loaded->from, sizeof loaded->from, "%s", path);
        status = read_all(&files, rules, loaded);
    }
    ls__weight_files_free(&files);
    if (status == LS_OK)
        *out = loaded;
    else
        ls__loaded_free(loaded);
    return status;
}

ls_status ls_model_load_as(ls_model *model, const char *path, const ls_weight_rule *rules)
{
    ls__loaded *loaded = NULL;
    ls_status status = path && rules ? load(path, rules, &loaded)
                                     : ls_fail(LS_ERR_ARG, "ls_model_load_as: path and rules");
    status = ls__share_failure(ls_world_comm(model->world), status, NULL, NULL);
    if (status == LS_OK) return ls__model_take_loaded(model, loaded);
    ls__loaded_free(loaded);
    return status;
}

/* --- writing --- */

/* (rows, cols) -> (cols, rows) */
static void transpose(const float *from, int64_t rows, int64_t cols, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * rows + r] = from[r * cols + c];
}

/* One parameter under its new name, its values at the same offset of to. */
static ls_status rename_tensor(const ls__saved_tensor *t, const float *values,
                               const ls_weight_rule *rules, ls__saved_tensor *renamed, float *to)
{
    char name[LS__WEIGHT_NAME];
    const ls_weight_rule *rule = ls__weight_rule_of_model(rules, t->name, name);
    if (!rule)
        return ls_fail(LS_ERR_ARG, "ls_model_save_as: no rule says what %s is called there",
                       t->name);
    *renamed = *t;
    renamed->name = ls__strdup(name);
    if (!renamed->name) return LS_ERR_MEMORY;
    if (rule->transpose && t->rank == 2) {
        renamed->shape[0] = t->shape[1];
        renamed->shape[1] = t->shape[0];
        transpose(values + t->offset, t->shape[0], t->shape[1], to + t->offset);
    } else {
        memcpy(to + t->offset, values + t->offset,
               (size_t)ls__weight_elements(t->rank, t->shape) * sizeof(float));
    }
    return LS_OK;
}

static ls_status save_renamed(const char *path, const ls__saved_tensor *tensors, int n,
                              const float *values, int64_t count, const ls_weight_rule *rules)
{
    ls__saved_tensor *renamed = ls__alloc((size_t)n + 1, sizeof *renamed);
    float *copy = ls__map((size_t)count * sizeof(float));
    ls_status status = renamed && copy ? LS_OK : LS_ERR_MEMORY;
    for (int i = 0; status == LS_OK && i < n; i++)
        status = rename_tensor(&tensors[i], values, rules, &renamed[i], copy);
    if (status == LS_OK) status = ls__safetensors_write(&ls__fs_posix, path, renamed, n, copy);
    for (int i = 0; renamed && i < n; i++) ls__free((char *)(uintptr_t)renamed[i].name);
    ls__free(renamed);
    ls__unmap(copy, (size_t)count * sizeof(float));
    return status;
}

static ls_status save_as(const ls_model *model, const char *path, const ls_weight_rule *rules)
{
    const ls__loaded *l = model->loaded;
    if (!path || !rules) return ls_fail(LS_ERR_ARG, "ls_model_save_as: path and rules");
    if (!model->values && !l)
        return ls_fail(LS_ERR_ARG, "ls_model_save_as: the model has no weights yet; ls_fit or "
                                   "ls_model_load first");
    if (!model->values)
        return save_renamed(path, l->tensors, l->ntensors, l->values, l->count, rules);
    ls__saved_tensor *saved;
    LS_TRY(ls__model_saved(model, &saved));
    ls_status status =
        save_renamed(path, saved, model->ntensors, model->values, model->count, rules);
    ls__free(saved);
    return status;
}

ls_status ls_model_save_as(ls_model *model, const char *path, const ls_weight_rule *rules)
{
    ls_status status = ls_world_rank(model->world) == 0 ? save_as(model, path, rules) : LS_OK;
    return ls__share_failure(ls_world_comm(model->world), status, NULL, NULL);
}
