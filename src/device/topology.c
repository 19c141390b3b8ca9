/* Cores, packages, NUMA nodes and caches, by hwloc. Discovery takes some ten milliseconds, so that
 * only `lockstep devices` asks for it, and launchers where there are NUMA nodes to tell apart; having
 * the library linked costs a start 0.3 ms. */
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "device/device.h"

static int count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);
    return n > 0 ? n : 0; /* negative: at several depths */
}

/* Cores on which this process may run. */
static int count_usable(hwloc_topology_t topology, const ls__cpus *cpus)
{
    int usable = 0;
    for (int i = 0; i < count_of(topology, HWLOC_OBJ_CORE); i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        bool may_run = false;
        for (unsigned cpu = 0; cpu < CPU_SETSIZE && !may_run; cpu++)
            may_run = CPU_ISSET(cpu, &cpus->mask) && hwloc_bitmap_isset(core->cpuset, cpu);
        usable += may_run;
    }
    return usable;
}

static void read_topology(hwloc_topology_t topology, const ls__cpus *cpus, ls__topology *out)
{
    out->cores = count_of(topology, HWLOC_OBJ_CORE);
    out->packages = count_of(topology, HWLOC_OBJ_PACKAGE);
    out->numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    out->l3_caches = count_of(topology, HWLOC_OBJ_L3CACHE);
    out->usable_cores = count_usable(topology, cpus);
    if (out->l3_caches > 0) {
        hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0);
        out->l3_bytes = (int64_t)cache->attr->cache.size;
    }
}

ls_status ls__topology_discover(const ls__cpus *cpus, ls__topology *out)
{
    memset(out, 0, sizeof *out);
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "hwloc cannot start: no topology");
    ls_status status = LS_OK;
    if (hwloc_topology_load(topology) == 0)
        read_topology(topology, cpus, out);
    else
        status = ls_fail(LS_ERR_UNSUPPORTED, "hwloc cannot read the topology of this machine");
    hwloc_topology_destroy(topology);
    return status;
}

/* --- where each CPU sits --- */

/* The number of the first object of this type above a CPU; -1 = there is none. */
static int16_t number_above(hwloc_obj_t unit, hwloc_obj_type_t type)
{
    for (hwloc_obj_t o = unit; o; o = o->parent)
        if (o->type == type) return (int16_t)o->logical_index;
    return -1;
}

/* NUMA nodes hang beside the tree of CPUs; the kernel's number of the one around this CPU. */
static int16_t node_of(hwloc_topology_t topology, hwloc_obj_t unit)
{
    for (int i = 0; i < count_of(topology, HWLOC_OBJ_NUMANODE); i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
        if (hwloc_bitmap_isincluded(unit->cpuset, node->cpuset)) return (int16_t)node->os_index;
    }
    return -1;
}

static void read_places(hwloc_topology_t topology, ls__cpu_places *out)
{
    memset(out, 0xFF, sizeof *out); /* -1 */
    for (int i = 0; i < count_of(topology, HWLOC_OBJ_PU); i++) {
        hwloc_obj_t unit = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)i);
        unsigned cpu = unit->os_index;
        if (cpu >= CPU_SETSIZE) continue;
        out->node[cpu] = node_of(topology, unit);
        out->package[cpu] = number_above(unit, HWLOC_OBJ_PACKAGE);
        out->core[cpu] = number_above(unit, HWLOC_OBJ_CORE);
        out->complex[cpu] = number_above(unit, HWLOC_OBJ_L3CACHE);
    }
}

ls_status ls__cpu_places_discover(ls__cpu_places *out)
{
    hwloc_topology_t topology;
    memset(out, 0xFF, sizeof *out);
    if (hwloc_topology_init(&topology) != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "hwloc cannot start: no topology");
    bool loaded = hwloc_topology_load(topology) == 0;
    if (loaded) read_places(topology, out);
    hwloc_topology_destroy(topology);
    if (loaded) return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED, "hwloc cannot read the topology of this machine");
}

bool ls__numa_is_here(void)
{
    return getenv("HWLOC_XMLFILE") || getenv("HWLOC_SYNTHETIC") ||
           access("/sys/devices/system/node/node1", F_OK) == 0;
}
