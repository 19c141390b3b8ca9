/* Weights in and out of files. A file may be named before the model has met any data, so what it
 * holds is read at once, by name, and put in its place when the table is made. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "run/share.h"
#include "trainer/model_internal.h"
#include "world/world_internal.h"

void ls__loaded_free(ls__loaded *loaded)
{
    if (!loaded) return;
    for (int i = 0; i < loaded->ntensors; i++) ls__free((char *)(uintptr_t)loaded->tensors[i].name);
    ls__free(loaded->tensors);
    ls__unmap(loaded->values, (size_t)loaded->count * sizeof(float));
    ls__free(loaded);
}

static int64_t element_count(const int64_t *shape, int rank)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++) count *= shape[d];
    return count;
}

/* --- reading --- */

static ls_status list_tensors(const char *path, ls__loaded *out)
{
    ls__safetensors file;
    LS_TRY(ls__safetensors_open(path, &file));
    ls_status status = LS_OK;
    out->tensors = ls__alloc((size_t)file.count, sizeof *out->tensors);
    if (!out->tensors) status = LS_ERR_MEMORY;
    for (int i = 0; status == LS_OK && i < file.count; i++) {
        const ls__safetensor *t = &file.tensors[i];
        if (strcmp(t->dtype, "F32") != 0) {
            status = ls_fail(LS_ERR_UNSUPPORTED, "%s: %s is of type %s; only F32 can be loaded",
                             path, t->name, t->dtype);
            break;
        }
        ls__saved_tensor *s = &out->tensors[i];
        *s = (ls__saved_tensor) { .name = ls__strdup(t->name),
                                  .rank = t->rank,
                                  .offset = out->count };
        if (!s->name) status = LS_ERR_MEMORY;
        if (!s->name) break;
        memcpy(s->shape, t->shape, sizeof s->shape);
        out->ntensors = i + 1;
        out->count += element_count(t->shape, t->rank);
    }
    ls__safetensors_free(&file);
    return status;
}

static ls_status read_tensors(const char *path, ls__loaded *out)
{
    ls__saved_range *ranges = ls__alloc((size_t)out->ntensors, sizeof *ranges);
    out->values = ls__map((size_t)out->count * sizeof(float));
    ls_status status = ranges && out->values ? LS_OK : LS_ERR_MEMORY;
    for (int i = 0; ranges && i < out->ntensors; i++) {
        const ls__saved_tensor *t = &out->tensors[i];
        ranges[i] = (ls__saved_range) { i, t->offset, element_count(t->shape, t->rank) };
    }
    if (status == LS_OK)
        status = ls__checkpoint_load(path, out->tensors, out->ntensors, ranges, out->ntensors,
                                     out->values, NULL, 0, NULL);
    ls__free(ranges);
    return status;
}

static ls_status load_file(const char *path, ls__loaded **out)
{
    char model[LS_PATH_MAX];
    size_t n = strlen(path);
    bool file = n > 12 && strcmp(path + n - 12, ".safetensors") == 0;
    if (file)
        snprintf(model, sizeof model, "%s", path);
    else
        LS_TRY(ls__path_join(model, path, "model.safetensors"));
    ls__loaded *loaded = ls__alloc(1, sizeof *loaded);
    if (!loaded) return LS_ERR_MEMORY;
    snprintf(loaded->from, sizeof loaded->from, "%s", path);
    ls_status status = list_tensors(model, loaded);
    if (status == LS_OK) status = read_tensors(path, loaded);
    if (status == LS_OK)
        *out = loaded;
    else
        ls__loaded_free(loaded);
    return status;
}

static const ls__saved_tensor *find_loaded(const ls__loaded *loaded, const char *name)
{
    for (int i = 0; i < loaded->ntensors; i++)
        if (strcmp(loaded->tensors[i].name, name) == 0) return &loaded->tensors[i];
    return NULL;
}

static void shape_text(int rank, const int64_t *shape, char out[160])
{
    size_t used = (size_t)snprintf(out, 160, "(");
    for (int d = 0; d < rank; d++)
        used += (size_t)snprintf(out + used, 160 - used, d ? ",%lld" : "%lld", (long long)shape[d]);
    snprintf(out + used, 160 - used, ")");
}

static ls_status place(const ls_model *model, const ls__space_tensor *t, float *values)
{
    const ls__loaded *loaded = model->loaded;
    const ls__saved_tensor *s = find_loaded(loaded, t->name);
    if (!s)
        return ls_fail(LS_ERR_CONFIG, "%s: there is no %s in it; it is of another model",
                       loaded->from, t->name);
    if (s->rank != t->rank || memcmp(s->shape, t->shape, (size_t)t->rank * sizeof(int64_t)) != 0) {
        char there[160], here[160];
        shape_text(s->rank, s->shape, there);
        shape_text(t->rank, t->shape, here);
        return ls_fail(LS_ERR_CONFIG, "%s: %s is %s in it and %s here; it is of another model",
                       loaded->from, t->name, there, here);
    }
    memcpy(values + t->offset, loaded->values + s->offset,
           (size_t)element_count(t->shape, t->rank) * sizeof(float));
    return LS_OK;
}

/* Nothing of another program's file is left out in silence. */
static ls_status check_all_placed(const ls_model *model)
{
    const ls__loaded *loaded = model->loaded;
    for (int i = 0; loaded->exact && i < loaded->ntensors; i++) {
        int at = 0;
        while (at < model->ntensors &&
               strcmp(model->tensors[at].name, loaded->tensors[i].name) != 0)
            at++;
        if (at == model->ntensors)
            return ls_fail(LS_ERR_CONFIG, "%s: it has a %s, which this model has not; it is larger",
                           loaded->from, loaded->tensors[i].name);
    }
    return LS_OK;
}

ls_status ls__model_apply_loaded(ls_model *model)
{
    if (!model->loaded) return LS_OK;
    float *values = ls__map((size_t)model->count * sizeof(float));
    ls_status status = values ? LS_OK : LS_ERR_MEMORY;
    for (int i = 0; status == LS_OK && i < model->ntensors; i++)
        status = place(model, &model->tensors[i], values);
    if (status == LS_OK) status = check_all_placed(model);
    if (status != LS_OK) {
        ls__unmap(values, (size_t)model->count * sizeof(float));
        return status;
    }
    ls__unmap(model->values, (size_t)model->count * sizeof(float));
    model->values = values;
    ls__model_changed(model);
    ls__loaded_free(model->loaded);
    model->loaded = NULL;
    return LS_OK;
}

ls_status ls__model_take_loaded(ls_model *model, ls__loaded *loaded)
{
    ls__loaded_free(model->loaded);
    model->loaded = loaded;
    if (model->ntensors == 0) return LS_OK;
    ls_status status = ls__model_apply_loaded(model);
    if (status != LS_OK) { /* the weights from before stay the model's */
        ls__loaded_free(model->loaded);
        model->loaded = NULL;
    }
    return status;
}

static ls_status resolve(const ls_model *model, const char *from, char path[LS_PATH_MAX])
{
    const char *runs_dir = "runs";
    if (!from || !from[0])
        return ls_fail(LS_ERR_ARG,
                       "ls_model_load: there is nothing to load (the run has no such checkpoint)");
    ls__options_string(ls__world_options(model->world), "runs-dir", &runs_dir);
    LS_TRY(ls__checkpoint_resolve(runs_dir, from, path));
    return ls__checkpoint_verify(path);
}

/* One rank decides for all which file it is: a run that is being trained has a new @last at any
 * moment. It verifies for all, too: that reads every byte. */
static ls_status agree_on_file(const ls_model *model, const char *from, char path[LS_PATH_MAX])
{
    ls_comm *comm = ls_world_comm(model->world);
    ls_status status = ls_world_rank(model->world) == 0 ? resolve(model, from, path) : LS_OK;
    LS_TRY(ls__share_failure(comm, status, NULL, NULL));
    return ls_comm_broadcast(comm, path, LS_PATH_MAX, LS_DTYPE_U8, 0);
}

ls_status ls_model_load(ls_model *model, const char *from)
{
    char path[LS_PATH_MAX] = "";
    ls__loaded *loaded = NULL;
    LS_TRY(agree_on_file(model, from, path));
    ls_status status = load_file(path, &loaded);
    LS_TRY(ls__share_failure(ls_world_comm(model->world), status, NULL, NULL));
    return ls__model_take_loaded(model, loaded);
}

/* --- writing --- */

static ls_status save_file(const ls_model *model, const char *path)
{
    if (!model->values && !model->loaded)
        return ls_fail(
            LS_ERR_ARG,
            "ls_model_save: the model has no weights yet; ls_fit or ls_model_load first");
    if (!model->values)
        return ls__safetensors_write(&ls__fs_posix, path, model->loaded->tensors,
                                     model->loaded->ntensors, model->loaded->values);
    ls__saved_tensor *saved;
    LS_TRY(ls__model_saved(model, &saved));
    ls_status status =
        ls__safetensors_write(&ls__fs_posix, path, saved, model->ntensors, model->values);
    ls__free(saved);
    return status;
}

ls_status ls_model_save(ls_model *model, const char *path)
{
    ls_status status = ls_world_rank(model->world) == 0 ? save_file(model, path) : LS_OK;
    return ls__share_failure(ls_world_comm(model->world), status, NULL, NULL);
}
