/* Lists pictures by class. Names are sorted in bytes, whatever the locale and the order of the disk,
 * so that a class has the same number and a sample the same index on every machine. Paths of a million
 * pictures lie in one block. */
#include "data/image_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

enum { DEPTH_MAX = 8 /* of folders within a class */, CLASSES_MAX = 1 << 20 };

typedef ls_status on_entry_fn(void *user, const char *path, const char *name, bool is_folder);

/* Calls fn for what is in folder, in no order; hidden entries are left out. */
static ls_status for_each(const char *folder, on_entry_fn *fn, void *user)
{
    DIR *dir = opendir(folder);
    if (!dir) return ls__fail_errno(LS_ERR_DATA, "%s: the folder cannot be read", folder);
    ls_status status = LS_OK;
    while (status == LS_OK) {
        char path[LS_PATH_MAX];
        struct stat info;
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry && errno) status = ls__fail_errno(LS_ERR_DATA, "%s: cannot be read", folder);
        if (!entry) break;
        if (entry->d_name[0] == '.') continue;
        status = ls__path_join(path, folder, entry->d_name);
        if (status != LS_OK || stat(path, &info) != 0) continue; /* a dangling link is no file */
        status = fn(user, path, entry->d_name, S_ISDIR(info.st_mode));
    }
    closedir(dir);
    return status;
}

/* --- classes --- */

static ls_status add_class(void *user, const char *path, const char *name, bool is_folder)
{
    (void)path;
    ls__image_folder *f = user;
    if (!is_folder) return LS_OK;
    if (f->nclasses == CLASSES_MAX)
        return ls_fail(LS_ERR_DATA, "%s: more than %d sub-folders", f->folder, CLASSES_MAX);
    if ((f->nclasses & (f->nclasses - 1)) == 0) { /* room is the next power of two */
        int64_t room = f->nclasses ? 2 * f->nclasses : 1;
        char **grown = ls__realloc(f->classes, (size_t)room, sizeof *grown);
        if (!grown) return LS_ERR_MEMORY;
        f->classes = grown;
    }
    f->classes[f->nclasses] = ls__strdup(name);
    return f->classes[f->nclasses++] ? LS_OK : LS_ERR_MEMORY;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_part_name(const char *name)
{
    static const char *const parts[] = { "train",      "training", "val",    "valid",
                                         "validation", "test",     "testing" };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcasecmp(name, parts[i]) == 0) return true;
    return false;
}

static ls_status find_classes(ls__image_folder *f)
{
    LS_TRY(for_each(f->folder, add_class, f));
    if (f->nclasses == 0)
        return ls_fail(
            LS_ERR_DATA,
            "%s: no sub-folders: the pictures of each class lie in a sub-folder with its "
            "name (%s/cat/1.jpg, %s/dog/1.jpg, ...)",
            f->folder, f->folder, f->folder);
    qsort(f->classes, (size_t)f->nclasses, sizeof *f->classes, by_name);
    bool all_parts = true;
    for (int64_t i = 0; i < f->nclasses; i++) all_parts = all_parts && is_part_name(f->classes[i]);
    if (all_parts)
        return ls_fail(LS_ERR_DATA,
                       "%s: its sub-folders are parts of a data set, not classes: give %s/%s",
                       f->folder, f->folder, f->classes[f->nclasses > 1 ? f->nclasses - 1 : 0]);
    return LS_OK;
}

/* --- files --- */

typedef struct class_walk {
    ls__image_folder *folder;
    int32_t label;
    int depth;
} class_walk;

static bool is_picture_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 ||
                   strcasecmp(dot, ".jpeg") == 0);
}

static ls_status append_entry(ls__image_folder *f, const char *path, int32_t label)
{
    size_t nbytes = strlen(path) + 1;
    if (f->count == f->room) {
        int64_t room = f->room ? 2 * f->room : 256;
        ls__image_entry *grown = ls__realloc(f->entries, (size_t)room, sizeof *grown);
        if (!grown) return LS_ERR_MEMORY;
        f->entries = grown;
        f->room = room;
    }
    if (nbytes > f->paths_room - f->used) {
        size_t room = 2 * f->paths_room + nbytes + 4096;
        char *grown = ls__realloc(f->paths, room, 1);
        if (!grown) return LS_ERR_MEMORY;
        f->paths = grown;
        f->paths_room = room;
    }
    f->entries[f->count++] = (ls__image_entry) { f->used, label };
    memcpy(f->paths + f->used, path, nbytes);
    f->used += nbytes;
    return LS_OK;
}

static ls_status add_file(void *user, const char *path, const char *name, bool is_folder)
{
    class_walk *walk = user;
    ls__image_folder *f = walk->folder;
    if (is_folder) {
        if (walk->depth == DEPTH_MAX)
            return ls_fail(LS_ERR_DATA, "%s: more than %d folders deep", path, DEPTH_MAX);
        walk->depth++;
        LS_TRY(for_each(path, add_file, walk));
        walk->depth--;
        return LS_OK;
    }
    const char *relative = path + strlen(f->folder);
    while (*relative == '/') relative++;
    if (is_picture_name(name)) return append_entry(f, relative, walk->label);
    f->ignored++;
    if (f->ignored_example) return LS_OK;
    f->ignored_example = ls__strdup(relative);
    return f->ignored_example ? LS_OK : LS_ERR_MEMORY;
}

static int by_path(const void *a, const void *b, void *paths)
{
    const ls__image_entry *x = a, *y = b;
    return strcmp((const char *)paths + x->path, (const char *)paths + y->path);
}

static ls_status find_files(ls__image_folder *f)
{
    for (int64_t i = 0; i < f->nclasses; i++) {
        char path[LS_PATH_MAX];
        int64_t before = f->count;
        class_walk walk = { .folder = f, .label = (int32_t)i };
        LS_TRY(ls__path_join(path, f->folder, f->classes[i]));
        LS_TRY(for_each(path, add_file, &walk));
        if (f->count > before)
            qsort_r(f->entries + before, (size_t)(f->count - before), sizeof *f->entries, by_path,
                    f->paths);
        else
            ls__log(LS__LOG_WARN, "%s: no PNG or JPEG file in it: a class without samples", path);
    }
    if (f->count == 0)
        return ls_fail(LS_ERR_DATA, "%s: no .png, .jpg or .jpeg file in its sub-folders",
                       f->folder);
    if (f->ignored)
        ls__log(LS__LOG_WARN, "%s: %lld files that are no .png, .jpg or .jpeg are left out (%s%s)",
                f->folder, (long long)f->ignored, f->ignored_example,
                f->ignored > 1 ? ", ..." : "");
    return LS_OK;
}

ls_status ls__image_folder_open(const char *folder, ls__image_folder *out)
{
    *out = (ls__image_folder) { .folder = ls__strdup(folder) };
    if (!out->folder) return LS_ERR_MEMORY;
    ls_status status = find_classes(out);
    if (status == LS_OK) status = find_files(out);
    if (status != LS_OK) ls__image_folder_close(out);
    return status;
}

void ls__image_folder_close(ls__image_folder *f)
{
    for (int64_t i = 0; i < f->nclasses; i++) ls__free(f->classes[i]);
    ls__free(f->classes);
    ls__free(f->folder);
    ls__free(f->entries);
    ls__free(f->paths);
    ls__free(f->ignored_example);
    *f = (ls__image_folder) { 0 };
}
