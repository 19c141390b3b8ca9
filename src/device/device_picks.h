/* Picks: which GPU each rank computes on, where --devices names them: gpu@0,2  gpu@0*2  0,2
 * GPU-6e5c41a2  MIG-...  sim@0*2. */
#ifndef LS_DEVICE_PICKS_H
#define LS_DEVICE_PICKS_H

#include "device/device.h"
#include "device/nvml.h"

enum { LS__NAMES_MAX = 64 };

/* What CUDA will show to this process, in its order: index i of a pick is list[i]. */
typedef struct ls__gpu_name {
    char name
        [LS__GPU_TEXT]; /* for CUDA_VISIBLE_DEVICES: a UUID, or a number where no UUID is known */
    int known;          /* place in ls__gpus; -1 = unknown */
    bool divided;       /* MIG is on: only its parts can be used */
} ls__gpu_name;

typedef struct ls__gpu_names {
    int count;
    bool listed; /* by CUDA_VISIBLE_DEVICES: what is not in it may not be chosen */
    ls__gpu_name list[LS__NAMES_MAX];
} ls__gpu_names;

/* visible, order: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, NULL when not set. files: devices that
 * the driver made files for, for a machine whose NVML says nothing; then gpus may be NULL. */
void ls__gpu_names_find(const char *visible, const char *order, const ls__gpus *gpus, int files,
                        ls__gpu_names *out);

/* Whether spec is one of names and numbers rather than a count. */
bool ls__picks_are(const char *spec);
/* Strictly; *kind is GPU or SIM. Errors name the entry. names: of GPUs; not read for SIM. */
ls_status ls__picks_read(const char *spec, const ls__gpu_names *names, ls__device_kind *kind,
                         ls__picks *out);

/* GPUs of the plan that cannot be used are an error; those that are busy or unwell get into its
 * note. Which GPUs a plan without picks uses: the first ones of names. */
ls_status ls__gpus_check(ls__device_plan *plan, const ls__gpu_names *names, const ls__gpus *gpus);

#endif
