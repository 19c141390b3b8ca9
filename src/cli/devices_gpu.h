/* The GPUs in `lockstep devices`: as text and in its document. */
#ifndef LS_CLI_DEVICES_GPU_H
#define LS_CLI_DEVICES_GPU_H

#include <jansson.h>

#include "device/nvml.h"

void ls_cli_gpus_print(const ls__gpus *gpus);
json_t *ls_cli_gpus_json(const ls__gpus *gpus);

#endif
