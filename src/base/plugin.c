/* Finding a plugin's file, and loading it. Finding looks at the disk only, so that a supervisor can
 * refuse devices that have no plugin without loading one. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"

#ifndef LS_PLUGIN_DIR
#define LS_PLUGIN_DIR "/usr/lib/lockstep"
#endif

enum { MAX_PLACES = 3 };

/* The folder of the file that this code lies in. */
static bool own_folder(char out[LS_PATH_MAX])
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)ls__plugin_find, &info) || !info.dli_fname) return false;
    const char *slash = strrchr(info.dli_fname, '/');
    size_t length = slash ? (size_t)(slash - info.dli_fname) : 0;
    if (!slash || length >= LS_PATH_MAX) return false;
    memcpy(out, info.dli_fname, length);
    out[length] = 0;
    return true;
}

static int find_places(char places[MAX_PLACES][LS_PATH_MAX])
{
    int n = 0;
    const char *chosen = getenv("LOCKSTEP_PLUGIN_DIR");
    if (chosen && *chosen) {
        if (strlen(chosen) < LS_PATH_MAX) strcpy(places[n++], chosen);
        return n;
    }
    if (own_folder(places[n])) {
        n++;
        if (ls__path_join(places[n], places[n - 1], "lockstep") == LS_OK) n++;
    }
    strcpy(places[n++], LS_PLUGIN_DIR);
    return n;
}

static ls_status not_found(const char *file)
{
    char places[MAX_PLACES][LS_PATH_MAX], list[3 * 256] = "";
    int n = find_places(places);
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%.240s", i ? ", " : "", places[i]);
    return ls_fail(
        LS_ERR_CONFIG,
        "%s is not in %s; install Lockstep's plugins there or set LOCKSTEP_PLUGIN_DIR to "
        "the folder that has it",
        file, list);
}

bool ls__plugin_file(const char *file, char path[LS_PATH_MAX])
{
    char places[MAX_PLACES][LS_PATH_MAX];
    int n = find_places(places);
    for (int i = 0; i < n; i++)
        if (ls__path_join(path, places[i], file) == LS_OK && ls__path_exists(path)) return true;
    return false;
}

ls_status ls__plugin_find(const char *name, char path[LS_PATH_MAX])
{
    char file[64];
    snprintf(file, sizeof file, "lockstep_%.40s.so", name);
    return ls__plugin_file(file, path) ? LS_OK : not_found(file);
}

ls_status ls__plugin_load(const char *name, const char *table, const char *needs, const void **out)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__plugin_find(name, path));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return ls_fail(LS_ERR_CONFIG,
                       "%s cannot be loaded: %s; install the libraries it needs (%s)", path,
                       dlerror(), needs);
    const char *const *begin = dlsym(handle, table);
    if (!begin || !*begin || strcmp(*begin, name) != 0) {
        dlclose(handle);
        return ls_fail(LS_ERR_CONFIG, "%s is no plugin of this version of Lockstep", path);
    }
    ls__log(LS__LOG_DEBUG, "plugin %s from %s", name, path);
    *out = begin;
    return LS_OK;
}
