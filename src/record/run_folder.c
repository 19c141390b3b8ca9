/* A run's folder: made or opened, and locked before anything in it is touched. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "record/record_internal.h"

enum { RUN_JSON_MAX = 64 << 20 };

/* Seconds. A job whose supervisor was killed ends within a second or two; the same command typed again
 * at once must not be refused because of it. */
static const double LOCK_PATIENCE = 2.5;

/* Of a run.json that was being written when its process was killed. */
static void remove_leftovers(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char file[LS_PATH_MAX];
        if (strncmp(entry->d_name, "run.json.tmp-", 13) == 0 &&
            ls__path_join(file, path, entry->d_name) == LS_OK)
            unlink(file);
    }
    closedir(folder);
}

ls_status ls__run_folder_open(const char *runs_dir, const char *name, ls__run_folder *out)
{
    *out = (ls__run_folder) { .lock = -1 };
    char lock[LS_PATH_MAX];
    LS_TRY(ls__run_name_check(name));
    snprintf(out->name, sizeof out->name, "%s", name);
    LS_TRY(ls__path_join(out->path, runs_dir, name));
    LS_TRY(ls__path_join(out->checkpoints, out->path, "checkpoints"));
    LS_TRY(ls__path_join(lock, out->path, "lock"));
    LS_TRY(ls__folder_make(&ls__fs_posix, out->path));
    LS_TRY(ls__run_lock(lock, name, LOCK_PATIENCE, &out->lock));
    ls_status status = ls__folder_make(&ls__fs_posix, out->checkpoints);
    if (status != LS_OK) {
        ls__run_folder_close(out);
        return status;
    }
    remove_leftovers(out->path);
    return LS_OK;
}

void ls__run_folder_close(ls__run_folder *folder)
{
    ls__run_unlock(folder->lock);
    folder->lock = -1;
}

/* --- run.json --- */

ls_status ls__run_json_write(const ls__run_folder *folder, const json_t *document)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder->path, "run.json"));
    json_t *whole = json_object();
    json_object_set_new(whole, "schema", json_string(LS__RUN_SCHEMA));
    if (!whole || json_object_update(whole, (json_t *)document) != 0) {
        json_decref(whole);
        return ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    }
    json_object_set_new(whole, "heartbeat", json_real(ls__wall_time()));
    ls_status status = ls__json_write(&ls__fs_posix, path, whole);
    json_decref(whole);
    return status;
}

ls_status ls__run_json_read(const char *path, json_t **out)
{
    char file[LS_PATH_MAX];
    *out = NULL;
    LS_TRY(ls__path_join(file, path, "run.json"));
    if (!ls__path_exists(file)) return LS_OK;
    return ls__json_read(file, RUN_JSON_MAX, out);
}
