/* NCCL's library and surroundings. The plugin loads where it is not installed, and exchanges through
 * the host then. */
#include "backend/cuda/vendor_cuda_nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/log.h"

#if defined(__has_include) && !defined(LS_SIM)
#if __has_include(<nccl.h>)
#include <nccl.h>
_Static_assert(NCCL_OK == (int)ncclSuccess && NCCL_IN_PROGRESS == (int)ncclInProgress, "NCCL's");
_Static_assert(NCCL_INT8 == (int)ncclInt8 && NCCL_FLOAT == (int)ncclFloat, "as NCCL's");
_Static_assert(NCCL_SUM == (int)ncclSum, "as NCCL's");
_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "as NCCL's");
_Static_assert(offsetof(nccl_config, magic) == offsetof(ncclConfig_t, magic), "as NCCL's");
_Static_assert(offsetof(nccl_config, version) == offsetof(ncclConfig_t, version), "as NCCL's");
_Static_assert(offsetof(nccl_config, blocking) == offsetof(ncclConfig_t, blocking), "as NCCL's");
#endif
#endif

static const struct {
    const char *name;
    size_t at;
    bool optional;
} symbols[] = {
    { "ncclGetVersion", offsetof(ls__nccl_table, get_version), false },
    { "ncclGetUniqueId", offsetof(ls__nccl_table, get_unique_id), false },
    { "ncclCommInitRankConfig", offsetof(ls__nccl_table, init), false },
    { "ncclCommFinalize", offsetof(ls__nccl_table, finalize), false },
    { "ncclCommDestroy", offsetof(ls__nccl_table, destroy), false },
    { "ncclCommAbort", offsetof(ls__nccl_table, abort), false },
    { "ncclCommGetAsyncError", offsetof(ls__nccl_table, async_error), false },
    { "ncclSend", offsetof(ls__nccl_table, send), false },
    { "ncclRecv", offsetof(ls__nccl_table, recv), false },
    { "ncclReduceScatter", offsetof(ls__nccl_table, reduce_scatter), false },
    { "ncclAllGather", offsetof(ls__nccl_table, all_gather), false },
    { "ncclGroupStart", offsetof(ls__nccl_table, group_start), false },
    { "ncclGroupEnd", offsetof(ls__nccl_table, group_end), false },
    { "ncclGetErrorString", offsetof(ls__nccl_table, error_string), false },
    { "ncclGetLastError", offsetof(ls__nccl_table, last_error), false },
    { "ncclCommRegister", offsetof(ls__nccl_table, reg), true },
    { "ncclCommDeregister", offsetof(ls__nccl_table, dereg), true },
    { "ncclMemAlloc", offsetof(ls__nccl_table, mem_alloc), true },
    { "ncclMemFree", offsetof(ls__nccl_table, mem_free), true },
};

static ls__nccl_table table; /* a process opens it once */
static char missing[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* stays */
    if (!library) snprintf(missing, sizeof missing, "libnccl.so.2 is not installed");
    for (size_t i = 0; library && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol && !symbols[i].optional && !missing[0])
            snprintf(missing, sizeof missing, "libnccl.so.2 has no %s: version 2.14 is needed",
                     symbols[i].name);
        memcpy((char *)&table + symbols[i].at, &symbol, sizeof symbol);
    }
    /* What one gives the other must take back. */
    if (!table.reg || !table.dereg) table.reg = NULL;
    if (!table.mem_alloc || !table.mem_free) table.mem_alloc = NULL;
}

const ls__nccl_table *ls__nccl(const char **why)
{
    pthread_once(&once, open_library);
    *why = missing[0] ? missing : NULL;
    return missing[0] ? NULL : &table;
}

/* --- the interface --- */

static bool names_interface(const char *path)
{
    static const char name[] = "NCCL_SOCKET_IFNAME";
    char line[1024];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, name, sizeof name - 1) == 0 && line[sizeof name - 1] == '=';
    if (file) fclose(file);
    return found;
}

/* NCCL reads these files, and takes a variable of the environment instead of what they say. */
static bool has_chosen(void)
{
    char path[PATH_MAX];
    const char *home = getenv("HOME"), *file = getenv("NCCL_CONF_FILE");
    if (getenv("NCCL_SOCKET_IFNAME") || getenv("NCCL_COMM_ID")) return true;
    if (file && names_interface(file)) return true;
    snprintf(path, sizeof path, "%s/.nccl.conf", home ? home : "");
    return (home && names_interface(path)) || names_interface("/etc/nccl.conf");
}

void ls__nccl_choose_interface(const char *root)
{
    struct sockaddr_storage from;
    char name[IF_NAMESIZE], value[IF_NAMESIZE + 1];
    int what;
    if (!root || !root[0] || has_chosen()) return;
    if (!ls__address_towards(root, &from, &what) ||
        !ls__address_interface_of((struct sockaddr *)&from, name))
        return;                                 /* NCCL guesses */
    snprintf(value, sizeof value, "=%s", name); /* this one, not all that begin so */
    setenv("NCCL_SOCKET_IFNAME", value, 1);
    ls__log(LS__LOG_DEBUG, "NCCL_SOCKET_IFNAME is %s, from where %s is reached", value, root);
}
