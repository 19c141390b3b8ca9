/* Finding the backend: a plugin opened by name, once per process.
 *
 * A plugin and not a linked library, so that supervisors and small programs do not pay for loading
 * oneDNN and OpenMP, and so that one binary runs where there is no GPU. Places, in order: the
 * folder in LOCKSTEP_PLUGIN_DIR (and then no other), beside liblockstep.so, its folder lockstep,
 * where the library was configured to be installed. */
#include "graph/backend.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"

#ifndef LS_PLUGIN_DIR
#define LS_PLUGIN_DIR "/usr/lib/lockstep"
#endif

enum { MAX_PLACES = 3, MAX_OPEN = 4 };

/* What this process has opened: a plugin stays loaded (its thread pool cannot be unloaded). */
static struct opened {
    const ls__backend *table;
    int threads, device;
} opened[MAX_OPEN];
static int nopened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The folder of the file that this code lies in. */
static bool own_folder(char out[LS_PATH_MAX])
{
    Dl_info info;
    if (!dladdr((void *)&nopened, &info) || !info.dli_fname) return false;
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

static ls_status not_found(const char *file, char places[MAX_PLACES][LS_PATH_MAX], int n)
{
    char list[3 * 256] = "";
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

static ls_status load(const char *name, const ls__backend **out)
{
    char places[MAX_PLACES][LS_PATH_MAX], path[LS_PATH_MAX], file[64];
    snprintf(file, sizeof file, "lockstep_%.40s.so", name);
    int n = find_places(places);
    for (int i = 0; i < n; i++) {
        if (ls__path_join(path, places[i], file) != LS_OK || !ls__path_exists(path)) continue;
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            return ls_fail(LS_ERR_CONFIG,
                           "%s cannot be loaded: %s; install the libraries it needs (for the CPU: "
                           "libdnnl2 and libgomp1; for GPUs: CUDA's cudart, cublasLt and cudnn)",
                           path, dlerror());
        const ls__backend *table = dlsym(handle, "ls__backend_table");
        if (!table || !table->name || strcmp(table->name, name) != 0) {
            dlclose(handle);
            return ls_fail(LS_ERR_CONFIG, "%s is no plugin of this version of Lockstep", path);
        }
        ls__log(LS__LOG_DEBUG, "backend %s from %s", name, path);
        *out = table;
        return LS_OK;
    }
    return not_found(file, places, n);
}

static ls_status open_locked(const char *name, int threads, int device, const ls__backend **out)
{
    struct opened *found = NULL;
    for (int i = 0; i < nopened; i++)
        if (!strcmp(opened[i].table->name, name)) found = &opened[i];
    if (!found) {
        if (nopened == MAX_OPEN) return ls_fail(LS_ERR_INTERNAL, "too many backends");
        struct opened new = { .device = device };
        LS_TRY(load(name, &new.table));
        found = &opened[nopened];
        *found = new;
    }
    if (device != found->device)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "this process computes on %s device %d already; device %d needs a process of "
            "its own",
            name, found->device, device);
    int wanted = threads > 0 ? threads : found->threads > 0 ? found->threads : 1;
    if (wanted != found->threads) LS_TRY(found->table->open(wanted, device));
    found->threads = wanted;
    if (found == &opened[nopened]) nopened++;
    *out = found->table;
    return LS_OK;
}

ls_status ls__backend_open_device(const char *name, int threads, int device,
                                  const ls__backend **out)
{
    *out = NULL;
    pthread_mutex_lock(&lock);
    ls_status status = open_locked(name, threads, device, out);
    pthread_mutex_unlock(&lock);
    return status;
}

ls_status ls__backend_open(const char *name, int threads, const ls__backend **out)
{
    return ls__backend_open_device(name, threads, 0, out);
}
