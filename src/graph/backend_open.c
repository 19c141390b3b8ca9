/* Finding the backend: a plugin opened by name, once per process.
 *
 * A plugin and not a linked library, so that supervisors and small programs do not pay for loading
 * oneDNN and OpenMP, and so that one binary runs where there is no GPU. */
#include "graph/backend.h"

#include <pthread.h>
#include <string.h>

#include "base/check.h"
#include "base/plugin.h"

enum { MAX_OPEN = 4 };

/* What this process has opened: a plugin stays loaded (its thread pool cannot be unloaded). */
static struct opened {
    const ls__backend *table;
    int threads, device;
} opened[MAX_OPEN];
static int nopened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ls_status open_locked(const char *name, int threads, int device, const ls__backend **out)
{
    struct opened *found = NULL;
    for (int i = 0; i < nopened; i++)
        if (!strcmp(opened[i].table->name, name)) found = &opened[i];
    if (!found) {
        if (nopened == MAX_OPEN) return ls_fail(LS_ERR_INTERNAL, "too many backends");
        struct opened new = { .device = device };
        const void *table;
        LS_TRY(ls__plugin_load(name, "ls__backend_table",
                               "for the CPU: libdnnl2 and libgomp1; for GPUs: CUDA's cudart, "
                               "cublasLt and cudnn",
                               &table));
        new.table = table;
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
