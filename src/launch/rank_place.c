/* Where a rank runs: the CPUs and the memory next to its device, and the GPUs that it sees. What the
 * program does later, its threads inherit, so it is settled before exec. Who names a binding gets
 * one, of memory too; what is chosen for them (auto) only prefers memory, so that no job ends for a
 * full node that nobody has asked for. Two rules keep surprises
 * away: every rank sees the same GPUs in the same order unless somebody wants it otherwise, and
 * numbers are those that the user's tools show (PCI order), since many programs cannot read UUIDs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/rank_place.h"

typedef enum binding { AUTO, NODE, SOCKET, EXCLUSIVE, COMPLEX, NONE } binding;

/* --- what is bound --- */

static ls_status read_binding(const char *text, binding *out)
{
    static const char *const names[] = { [AUTO] = "auto",
                                         [NODE] = "node",
                                         [SOCKET] = "socket",
                                         [EXCLUSIVE] = "exclusive",
                                         [COMPLEX] = "core-complex",
                                         [NONE] = "none" };
    *out = AUTO;
    if (!text) return LS_OK;
    for (int i = AUTO; i <= NONE; i++) {
        *out = (binding)i;
        if (strcmp(text, names[i]) == 0) return LS_OK;
    }
    return ls_fail(LS_ERR_CONFIG,
                   "--numa-binding %.64s: must be node, socket, exclusive, core-complex, auto or "
                   "none",
                   text);
}

/* CPUs of the mask for which numbers[cpu] is number. */
static cpu_set_t where(const cpu_set_t *mask, const int16_t *numbers, int number)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask) && numbers[cpu] == number) CPU_SET(cpu, &set);
    return set;
}

/* The different numbers that CPUs of the mask have, in the order of CPUs; returns how many. */
static int list_numbers(const cpu_set_t *mask, const int16_t *numbers, int16_t out[CPU_SETSIZE])
{
    int n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        bool known = !CPU_ISSET(cpu, mask) || numbers[cpu] < 0;
        for (int i = 0; i < n && !known; i++) known = out[i] == numbers[cpu];
        if (!known) out[n++] = numbers[cpu];
    }
    return n;
}

/* The part-th of parts shares of a set, in whole cores where there are enough. */
static cpu_set_t share_of(const cpu_set_t *set, const ls__cpu_places *places, int part, int parts)
{
    int16_t list[CPU_SETSIZE];
    cpu_set_t share;
    CPU_ZERO(&share);
    const int16_t *numbers = places->core;
    int n = list_numbers(set, numbers, list);
    int16_t own[CPU_SETSIZE];
    if (n < parts) { /* CPUs, then */
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) own[cpu] = (int16_t)cpu;
        numbers = own;
        n = list_numbers(set, numbers, list);
    }
    if (n < parts) return *set;
    for (int i = part * n / parts; i < (part + 1) * n / parts; i++) {
        cpu_set_t core = where(set, numbers, list[i]);
        CPU_OR(&share, &share, &core);
    }
    return share;
}

static uint64_t nodes_of(const cpu_set_t *set, const ls__cpu_places *places)
{
    uint64_t nodes = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, set) && places->node[cpu] >= 0 && places->node[cpu] < 64)
            nodes |= 1ull << places->node[cpu];
    return nodes;
}

/* Of the ranks that share rank's node: how many there are, and its place among them. */
static int count_sharers(const int *nodes, int size, int rank, int *place)
{
    int n = 0;
    for (int r = 0; r < size; r++) {
        if (r == rank) *place = n;
        n += nodes[r] == nodes[rank];
    }
    return n;
}

static cpu_set_t choose(binding how, const cpu_set_t *mask, const ls__cpu_places *places,
                        const int *nodes, int size, int rank)
{
    int16_t list[CPU_SETSIZE];
    int place = 0, sharers = count_sharers(nodes, size, rank, &place);
    cpu_set_t set = where(mask, places->node, nodes[rank]);
    if (how == EXCLUSIVE) return share_of(&set, places, place, sharers);
    if (how == COMPLEX) {
        int n = list_numbers(&set, places->complex, list);
        return n > 0 ? where(&set, places->complex, list[place % n]) : set;
    }
    if (how != SOCKET) return set;
    int n = list_numbers(&set, places->package, list);
    return n > 0 ? where(mask, places->package, list[0]) : set;
}

/* Of ranks on CPUs: the nodes are dealt out in blocks. */
static int node_of_cpu_rank(const cpu_set_t *mask, const ls__cpu_places *places, int rank, int size)
{
    int16_t list[CPU_SETSIZE];
    int n = list_numbers(mask, places->node, list);
    return n > 0 ? list[rank * n / size] : -1;
}

static void bind_rank(binding how, const ls__launcher_plan *plan, const ls__cpu_places *places,
                      const int *nodes, int rank, ls__rank_place *out)
{
    bool sliced = how == AUTO && plan->devices.kind == LS__DEVICE_CPU;
    cpu_set_t set;
    if (sliced && !plan->devices.pin) return;
    if (sliced)
        ls__device_cpus(&plan->devices, &plan->cpus, rank, &set);
    else
        set = choose(how, &plan->cpus.mask, places, nodes, plan->size, rank);
    if (CPU_COUNT(&set) == 0) return; /* none of the node's CPUs is ours */
    /* Threads that a program has besides those that compute (PyTorch's for Gloo, loaders of data)
     * would wait for these on the only CPU. */
    if (sliced && CPU_COUNT(&set) == 1) return;
    out->cpus = set;
    out->bound = true;
    out->memory_nodes = nodes_of(&set, places);
    out->memory_bound = how != AUTO && out->memory_nodes != 0;
}

ls_status ls__rank_places_bind(const char *text, const ls__cpu_places *places, const int *gpu_nodes,
                               ls__launcher_plan *plan)
{
    binding how;
    LS_TRY(read_binding(text, &how));
    int *nodes = ls__alloc((size_t)plan->size, sizeof *nodes);
    if (!nodes) return LS_ERR_MEMORY;
    for (int r = 0; r < plan->size; r++) {
        nodes[r] =
            gpu_nodes ? gpu_nodes[r] : node_of_cpu_rank(&plan->cpus.mask, places, r, plan->size);
        plan->places[r].cpus = plan->cpus.mask;
    }
    for (int r = 0; r < plan->size && how != NONE; r++)
        bind_rank(how, plan, places, nodes, r, &plan->places[r]);
    ls__free(nodes);
    return LS_OK;
}

ls_status ls__rank_places_check(const char *text, bool (*can_be_bound)(uint64_t nodes),
                                ls__launcher_plan *plan)
{
    binding how;
    char loose[200] = "";
    bool said = false;
    LS_TRY(read_binding(text, &how));
    if (how == AUTO || how == NONE) return LS_OK;
    for (int r = 0; r < plan->size; r++) {
        ls__rank_place *place = &plan->places[r];
        size_t used = strlen(loose);
        if (!place->bound)
            snprintf(loose + used, sizeof loose - used, "%s%d", used ? ", " : "",
                     plan->place.first_rank + r);
        if (!place->memory_bound || can_be_bound(place->memory_nodes)) continue;
        place->memory_bound = false;
        if (!said)
            ls__log(LS__LOG_WARN,
                    "--numa-binding %s: the memory of rank %d cannot be bound (%s%s): it is taken "
                    "first from where the rank runs, here and where else that is so",
                    text, plan->place.first_rank + r, strerror(errno),
                    errno == EPERM ? "; in a container it takes CAP_SYS_NICE" : "");
        said = true;
    }
    if (loose[0])
        ls__log(LS__LOG_WARN,
                "--numa-binding %s: not bound, because nobody knows the node of their device or "
                "its CPUs are not ours: ranks %s",
                text, loose);
    return LS_OK;
}

/* --- which GPUs are seen --- */

/* Entry number place of a list with commas. */
static bool entry_of(const char *list, int place, char out[LS__GPU_TEXT])
{
    for (; place > 0 && list; place--) {
        list = strchr(list, ',');
        if (list) list++;
    }
    if (!list || !*list || *list == ',') return false;
    snprintf(out, LS__GPU_TEXT, "%.*s", (int)strcspn(list, ","), list);
    return true;
}

static const ls__gpu *known_gpu(const ls__gpus *gpus, const char *entry)
{
    char *end;
    long index = strtol(entry, &end, 10);
    bool number = end > entry && *end == '\0';
    for (int i = 0; gpus && i < gpus->count; i++) {
        const ls__gpu *gpu = &gpus->gpus[i];
        if (number ? gpu->index == index
                   : gpu->uuid[0] && strncmp(entry, gpu->uuid, strlen(entry)) == 0)
            return gpu;
        for (int k = 0; k < gpu->ninstances; k++)
            if (strcmp(entry, gpu->instances[k].uuid) == 0) return gpu;
    }
    return NULL;
}

/* A UUID that nobody has written becomes nvidia-smi's number. */
static void by_number(const ls__gpus *gpus, const char *said, char entry[LS__GPU_TEXT])
{
    const ls__gpu *gpu = known_gpu(gpus, entry);
    bool wanted = said && strstr(said, "GPU-");
    if (strncmp(entry, "GPU-", 4) == 0 && gpu && !wanted)
        snprintf(entry, LS__GPU_TEXT, "%d", gpu->index);
}

/* The entry of one rank, as CUDA_VISIBLE_DEVICES would have it. */
static void find_entry(const ls__launcher_plan *plan, const ls__gpus *gpus, const char *found,
                       const char *spec, int rank, char out[LS__GPU_TEXT])
{
    const ls__picks *picks = &plan->devices.picks;
    if (picks->count > 0 && entry_of(picks->visible, picks->device[rank], out)) {
        by_number(gpus, spec && strstr(spec, "GPU-") ? spec : found, out);
        return;
    }
    if (!found || !entry_of(found, rank, out)) snprintf(out, LS__GPU_TEXT, "%d", rank);
}

static int count_entries(const char *list)
{
    int n = list && *list ? 1 : 0;
    for (; list && *list; list++) n += *list == ',';
    return n;
}

/* Parts of GPUs, of which CUDA shows a process one only, and several ranks on one GPU. */
static bool must_isolate(const ls__launcher_plan *plan)
{
    for (int r = 0; r < plan->size; r++) {
        if (plan->size > 1 && strncmp(plan->places[r].gpu, "MIG-", 4) == 0) return true;
        for (int k = 0; k < r; k++)
            if (strcmp(plan->places[k].gpu, plan->places[r].gpu) == 0) return true;
    }
    return false;
}

ls_status ls__rank_places_show(bool isolate, const char *spec, const char *found, int here,
                               const ls__gpus *gpus, ls__launcher_plan *plan)
{
    if (plan->devices.kind != LS__DEVICE_GPU) {
        if (!isolate) return LS_OK;
        return ls_fail(LS_ERR_CONFIG,
                       "--isolate-devices: the ranks have CPUs, not GPUs; leave it out");
    }
    if (found && !*found) found = NULL;
    for (int r = 0; r < plan->size; r++)
        find_entry(plan, gpus, found, spec, r, plan->places[r].gpu);
    plan->isolate = isolate || must_isolate(plan);
    bool all =
        plan->devices.picks.count == 0 && plan->size >= (found ? count_entries(found) : here);
    plan->by_number = !found || plan->devices.picks.count > 0;
    if (plan->isolate || all) return LS_OK;
    size_t used = 0;
    for (int r = 0; r < plan->size && used < sizeof plan->visible; r++)
        used += (size_t)snprintf(plan->visible + used, sizeof plan->visible - used, "%s%s",
                                 r > 0 ? "," : "", plan->places[r].gpu);
    return LS_OK;
}

int ls__rank_gpu_node(const ls__launcher_plan *plan, const ls__gpus *gpus, int rank)
{
    const ls__gpu *gpu = known_gpu(gpus, plan->places[rank].gpu);
    return gpu && gpu->numa_node >= 0 ? gpu->numa_node : -1;
}
