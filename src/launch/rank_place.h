/* Places of ranks: CPUs, memory, GPUs; see rank_place.c. */
#ifndef LS_LAUNCH_RANK_PLACE_H
#define LS_LAUNCH_RANK_PLACE_H

#include "device/nvml.h"
#include "launch/launcher.h"

/* --numa-binding; text NULL = auto: ranks on GPUs to their GPU's node, ranks on CPUs to the CPUs that
 * they have to themselves. gpu_nodes: (size) the node of each rank's GPU, -1 = unknown; NULL: ranks on
 * CPUs. Fills plan->places. */
ls_status ls__rank_places_bind(const char *text, const ls__cpu_places *places, const int *gpu_nodes,
                               ls__launcher_plan *plan);
/* After that: what was asked for and cannot be is said in the log. can_be_bound: asks the kernel. */
ls_status ls__rank_places_check(const char *text, bool (*can_be_bound)(uint64_t nodes),
                                ls__launcher_plan *plan);
/* --isolate-devices. spec: of --devices; found: CUDA_VISIBLE_DEVICES as it is, NULL = not set; here:
 * GPUs of the machine. */
ls_status ls__rank_places_show(bool isolate, const char *spec, const char *found, int here,
                               const ls__gpus *gpus, ls__launcher_plan *plan);
/* After that: the NUMA node of a rank's GPU; -1 = unknown. */
int ls__rank_gpu_node(const ls__launcher_plan *plan, const ls__gpus *gpus, int rank);

#endif
