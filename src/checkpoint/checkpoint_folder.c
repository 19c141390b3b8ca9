/* The folder of checkpoints: which are there, what the links say, what an interrupted save left.
 *
 * Names: `step-00000500` (complete, or not there), `.step-....tmp` (being written), `.step-....old`
 * (replaced by a new one of the same step, which is being renamed into its place), `.step-....gone`
 * (being removed), `superseded-00000500` (set aside). Only the first counts. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

/* --- names --- */

void ls__step_name(int64_t step, char out[64])
{
    snprintf(out, 64, "step-%08" PRId64, step);
}

bool ls__step_parse(const char *name, int64_t *step)
{
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9' || strlen(name) > 24)
        return false;
    char again[64];
    *step = strtoll(name + 5, NULL, 10);
    ls__step_name(*step, again);
    return strcmp(name, again) == 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* --- what is there --- */

static int by_step(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* each(name) for every entry; a folder that is not there has none. Names are collected first, so
 * that each may rename and remove. */
static ls_status list_names(const char *folder, char ***names, int *n)
{
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT) return LS_OK;
    if (!dir) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", folder);
    ls_status status = LS_OK;
    int room = 0;
    for (const struct dirent *entry; status == LS_OK && (entry = readdir(dir));) {
        if (*n == room) {
            char **grown = ls__realloc(*names, (size_t)(room = 2 * room + 16), sizeof *grown);
            if (grown)
                *names = grown;
            else
                status = LS_ERR_MEMORY;
        }
        if (status == LS_OK && !((*names)[*n] = ls__strdup(entry->d_name))) status = LS_ERR_MEMORY;
        if (status == LS_OK) ++*n;
    }
    closedir(dir);
    return status;
}

static void free_names(char **names, int n)
{
    for (int i = 0; i < n; i++) ls__free(names[i]);
    ls__free(names);
}

ls_status ls__checkpoint_steps(const char *folder, int64_t **steps, int *n)
{
    char **names;
    int nnames;
    *n = 0;
    *steps = NULL;
    ls_status status = list_names(folder, &names, &nnames);
    if (status == LS_OK && !(*steps = ls__alloc((size_t)nnames + 1, sizeof **steps)))
        status = LS_ERR_MEMORY;
    for (int i = 0; status == LS_OK && i < nnames; i++) {
        int64_t step;
        if (ls__step_parse(names[i], &step)) (*steps)[(*n)++] = step;
    }
    free_names(names, nnames);
    if (status == LS_OK) qsort(*steps, (size_t)*n, sizeof **steps, by_step);
    return status;
}

int64_t ls__checkpoint_link(const char *folder, const char *link)
{
    char path[LS_PATH_MAX], target[256];
    if (ls__path_join(path, folder, link) != LS_OK) return -1;
    ssize_t n = readlink(path, target, sizeof target - 1);
    int64_t step;
    if (n < 0) return -1;
    target[n] = '\0';
    if (!ls__step_parse(target, &step) || ls__path_join(path, folder, target) != LS_OK) return -1;
    return ls__path_exists(path) ? step : -1;
}

/* --- list --- */

static int64_t total_bytes(const ls__manifest *m)
{
    int64_t nbytes = 0;
    for (int i = 0; i < m->nfiles; i++) nbytes += m->files[i].nbytes;
    return nbytes;
}

static ls_status describe(const char *folder, ls__checkpoint_entry *entry)
{
    char name[64], path[LS_PATH_MAX];
    ls__step_name(entry->step, name);
    LS_TRY(ls__path_join(path, folder, name));
    ls__manifest manifest;
    ls_status status = ls__manifest_read(path, &manifest);
    entry->metric = manifest.metric;
    entry->monitor = manifest.monitor;
    entry->nbytes = status == LS_OK ? total_bytes(&manifest) : -1;
    manifest.monitor = NULL; /* moved */
    ls__manifest_free(&manifest);
    return status == LS_ERR_MEMORY ? status : LS_OK;
}

ls_status ls__checkpoint_list(const char *folder, ls__checkpoint_entry **entries, int *n)
{
    int64_t *steps;
    *entries = NULL;
    ls_status status = ls__checkpoint_steps(folder, &steps, n);
    if (status == LS_OK && !(*entries = ls__alloc((size_t)*n + 1, sizeof **entries)))
        status = LS_ERR_MEMORY;
    int64_t last = ls__checkpoint_link(folder, "last"), best = ls__checkpoint_link(folder, "best");
    for (int i = 0; status == LS_OK && i < *n; i++) {
        ls__checkpoint_entry *entry = &(*entries)[i];
        *entry = (ls__checkpoint_entry) { .step = steps[i],
                                          .metric = NAN,
                                          .nbytes = -1,
                                          .last = steps[i] == last,
                                          .best = steps[i] == best };
        status = describe(folder, entry);
    }
    ls__free(steps);
    if (status == LS_OK) return LS_OK;
    ls__checkpoint_list_free(*entries, *n);
    *entries = NULL;
    *n = 0;
    return status;
}

void ls__checkpoint_list_free(ls__checkpoint_entry *entries, int n)
{
    for (int i = 0; entries && i < n; i++) ls__free(entries[i].monitor);
    ls__free(entries);
}

/* --- removing --- */

ls_status ls__checkpoint_remove(const ls__fs *fs, const char *folder, int64_t step)
{
    char name[64], hidden[80], from[LS_PATH_MAX], to[LS_PATH_MAX];
    ls__step_name(step, name);
    snprintf(hidden, sizeof hidden, ".%s.gone", name);
    LS_TRY(ls__path_join(from, folder, name));
    LS_TRY(ls__path_join(to, folder, hidden));
    LS_TRY(ls__folder_remove(fs, to)); /* of an earlier process */
    if (fs->rename(fs->user, from, to) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot rename to %s", from, to);
    LS_TRY(ls__folder_sync(fs, folder)); /* else a crash could leave a step-... half removed */
    return ls__folder_remove(fs, to);
}

/* A step's old checkpoint, set aside for a new one of the same step that did not make it. */
static ls_status restore_old(const ls__fs *fs, const char *folder, const char *name,
                             const char *path)
{
    char plain[64], target[LS_PATH_MAX];
    int64_t step;
    snprintf(plain, sizeof plain, "%.*s", (int)(strlen(name) - 5), name + 1); /* .NAME.old */
    if (!ls__step_parse(plain, &step)) return LS_OK;                          /* not ours */
    LS_TRY(ls__path_join(target, folder, plain));
    if (ls__path_exists(target)) return ls__folder_remove(fs, path);
    if (fs->rename(fs->user, path, target) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot rename to %s", path, target);
    return ls__folder_sync(fs, folder);
}

static ls_status clean_entry(const ls__fs *fs, const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, name));
    bool ours = strncmp(name, ".step-", 6) == 0;
    if (ours && ends_with(name, ".old")) return restore_old(fs, folder, name, path);
    if (ours && (ends_with(name, ".tmp") || ends_with(name, ".gone")))
        return ls__folder_remove(fs, path);
    bool link = strncmp(name, "last.tmp-", 9) == 0 || strncmp(name, "best.tmp-", 9) == 0;
    if (link && fs->unlink(fs->user, path) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot remove", path);
    return LS_OK;
}

ls_status ls__checkpoint_clean(const ls__fs *fs, const char *folder)
{
    char **names;
    int n;
    ls_status status = list_names(folder, &names, &n);
    for (int i = 0; status == LS_OK && i < n; i++) status = clean_entry(fs, folder, names[i]);
    free_names(names, n);
    return status;
}
