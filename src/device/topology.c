/* Cores, packages, NUMA nodes and caches, by hwloc. The library is opened at the call and not
 * linked: loading it would cost every start of every program a millisecond for what only
 * `lockstep devices` shows. */
#include <dlfcn.h>
#include <hwloc.h>
#include <string.h>

#include "base/check.h"
#include "device/device.h"

typedef struct hwloc_calls {
    void *library;
    int (*init)(hwloc_topology_t *topology);
    int (*load)(hwloc_topology_t topology);
    void (*destroy)(hwloc_topology_t topology);
    int (*get_type_depth)(hwloc_topology_t topology, hwloc_obj_type_t type);
    unsigned (*get_nbobjs_by_depth)(hwloc_topology_t topology, int depth);
    hwloc_obj_t (*get_obj_by_depth)(hwloc_topology_t topology, int depth, unsigned index);
    int (*bitmap_isset)(hwloc_const_bitmap_t bitmap, unsigned id);
} hwloc_calls;

static bool find_call(void *library, const char *name, void *slot)
{
    void *address = dlsym(library, name);
    memcpy(slot, &address, sizeof address); /* C has no cast from data to function pointers */
    return address != NULL;
}

static ls_status open_hwloc(hwloc_calls *calls)
{
    void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ls_fail(LS_ERR_UNSUPPORTED, "libhwloc.so.15 is not here: no topology (%s)",
                       "package libhwloc15");
    calls->library = library;
    bool found = find_call(library, "hwloc_topology_init", &calls->init) &&
                 find_call(library, "hwloc_topology_load", &calls->load) &&
                 find_call(library, "hwloc_topology_destroy", &calls->destroy) &&
                 find_call(library, "hwloc_get_type_depth", &calls->get_type_depth) &&
                 find_call(library, "hwloc_get_nbobjs_by_depth", &calls->get_nbobjs_by_depth) &&
                 find_call(library, "hwloc_get_obj_by_depth", &calls->get_obj_by_depth) &&
                 find_call(library, "hwloc_bitmap_isset", &calls->bitmap_isset);
    if (found) return LS_OK;
    dlclose(library);
    return ls_fail(LS_ERR_UNSUPPORTED, "libhwloc.so.15 lacks a function: no topology");
}

static int count_of(const hwloc_calls *calls, hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int depth = calls->get_type_depth(topology, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return 0;
    return (int)calls->get_nbobjs_by_depth(topology, depth);
}

/* Cores on which this process may run. */
static int count_usable(const hwloc_calls *calls, hwloc_topology_t topology, const ls__cpus *cpus)
{
    int depth = calls->get_type_depth(topology, HWLOC_OBJ_CORE), usable = 0;
    for (int i = 0; i < count_of(calls, topology, HWLOC_OBJ_CORE); i++) {
        hwloc_obj_t core = calls->get_obj_by_depth(topology, depth, (unsigned)i);
        bool may_run = false;
        for (unsigned cpu = 0; cpu < CPU_SETSIZE && !may_run; cpu++)
            may_run = CPU_ISSET(cpu, &cpus->mask) && calls->bitmap_isset(core->cpuset, cpu);
        usable += may_run;
    }
    return usable;
}

static void read_topology(const hwloc_calls *calls, hwloc_topology_t topology, const ls__cpus *cpus,
                          ls__topology *out)
{
    out->cores = count_of(calls, topology, HWLOC_OBJ_CORE);
    out->packages = count_of(calls, topology, HWLOC_OBJ_PACKAGE);
    out->numa_nodes = count_of(calls, topology, HWLOC_OBJ_NUMANODE);
    out->l3_caches = count_of(calls, topology, HWLOC_OBJ_L3CACHE);
    out->usable_cores = count_usable(calls, topology, cpus);
    if (out->l3_caches > 0) {
        int depth = calls->get_type_depth(topology, HWLOC_OBJ_L3CACHE);
        out->l3_bytes = (int64_t)calls->get_obj_by_depth(topology, depth, 0)->attr->cache.size;
    }
}

ls_status ls__topology_discover(const ls__cpus *cpus, ls__topology *out)
{
    memset(out, 0, sizeof *out);
    hwloc_calls calls;
    LS_TRY(open_hwloc(&calls));
    hwloc_topology_t topology;
    if (calls.init(&topology) != 0) {
        dlclose(calls.library);
        return ls_fail(LS_ERR_UNSUPPORTED, "hwloc cannot start: no topology");
    }
    ls_status status = LS_OK;
    if (calls.load(topology) == 0)
        read_topology(&calls, topology, cpus, out);
    else
        status = ls_fail(LS_ERR_UNSUPPORTED, "hwloc cannot read the topology of this machine");
    calls.destroy(topology);
    dlclose(calls.library);
    return status;
}
