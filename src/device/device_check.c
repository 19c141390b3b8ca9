/* Before a start: whether the GPUs that a job will use can be used, and are free; and showing them to
 * CUDA. A GPU that somebody else computes on may be meant; one that the driver has lost cannot be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "device/device_picks.h"

static const char variable[] = "CUDA_VISIBLE_DEVICES";

/* The GPU whose name is the entry at place of a list; NULL = unknown. */
static const ls__gpu *gpu_at(const ls__gpus *gpus, const char *list, int place)
{
    while (place-- > 0 && list) {
        list = strchr(list, ',');
        if (list) list++;
    }
    for (int i = 0; list && i < gpus->count; i++) {
        size_t n = strlen(gpus->gpus[i].uuid);
        if (n > 0 && strncmp(list, gpus->gpus[i].uuid, n) == 0) return &gpus->gpus[i];
    }
    return NULL;
}

static const ls__gpu *gpu_of(const ls__device_plan *plan, const ls__gpu_names *names,
                             const ls__gpus *gpus, int rank)
{
    if (plan->picks.count > 0) return gpu_at(gpus, plan->picks.visible, plan->picks.device[rank]);
    int known = rank < names->count ? names->list[rank].known : -1;
    return known >= 0 ? &gpus->gpus[known] : NULL;
}

static bool shared(const ls__device_plan *plan, int rank)
{
    return rank + 1 < plan->picks.count && plan->picks.device[rank] == plan->picks.device[rank + 1];
}

ls_status ls__gpus_check(ls__device_plan *plan, const ls__gpu_names *names, const ls__gpus *gpus)
{
    enum { ONE_PROCESS = 3 };
    const ls__gpu *last = NULL;
    size_t used = strlen(plan->note);
    for (int rank = 0; rank < plan->count; rank++) {
        char text[LS__GPU_REASONS_TEXT];
        const ls__gpu *gpu = gpu_of(plan, names, gpus, rank);
        if (!gpu || gpu == last) continue;
        last = gpu;
        const char *trouble = ls__gpu_trouble(gpu, text);
        if (gpu->lost || gpu->compute_mode == 2)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "GPU %d cannot be used: %s; --devices gpu@... without it goes on",
                           gpu->index, trouble ? trouble : "lost");
        if (gpu->compute_mode == ONE_PROCESS && shared(plan, rank))
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "GPU %d admits one process at a time (nvidia-smi -c 0 changes that, as "
                           "root), and several ranks were to share it",
                           gpu->index);
        if (!trouble || used >= sizeof plan->note) continue;
        used += (size_t)snprintf(plan->note + used, sizeof plan->note - used, "%sGPU %d: %s",
                                 used ? "; " : "", gpu->index, trouble);
    }
    return LS_OK;
}

int ls__device_of(const ls__device_plan *plan, int local_rank)
{
    bool picked = local_rank >= 0 && local_rank < plan->picks.count;
    return picked ? plan->picks.device[local_rank] : local_rank;
}

void ls__device_expose(const ls__device_plan *plan)
{
    if (plan->kind != LS__DEVICE_GPU || !plan->picks.visible[0]) return;
    setenv(variable, plan->picks.visible, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* where numbers stand for UUIDs */
}

void ls__device_expose_own(ls__device_plan *plan, int local_rank)
{
    const char *list = getenv(variable);
    if (plan->kind != LS__DEVICE_GPU || local_rank >= plan->picks.count || !list) return;
    for (int place = plan->picks.device[local_rank]; place > 0 && list; place--) {
        list = strchr(list, ',');
        if (list) list++;
    }
    if (!list || strncmp(list, "MIG-", 4) != 0) return;
    char name[LS__GPU_TEXT];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(list, ","), list);
    setenv(variable, name, 1);
    plan->picks.device[local_rank] = 0;
}
