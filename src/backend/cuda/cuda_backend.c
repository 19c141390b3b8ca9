/* The table by which the library finds this plugin. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"
#include "backend/cuda/cuda_resident.h"

/* Of every GPU from compute capability 8.0 on, and older ones are refused. */
static bool has_tensor_cores(void)
{
    return true;
}

#ifdef LS_SIM
#define NAME "sim"
#else
#define NAME "cuda"
#endif

const ls__backend ls__backend_table = {
    .name = NAME,
    .open = ls__cuda_open,
    .compile = ls__cuda_compile,
    .destroy = ls__cuda_destroy,
    .arena_bytes = ls__cuda_arena_bytes,
    .device_bytes = ls__cuda_device_bytes,
    .device_own_bytes = ls__cuda_own_bytes,
    .device_peak_bytes = ls__cuda_peak_bytes,
    .run = ls__cuda_run,
    .read = ls__cuda_read,
    .profile_begin = ls__cuda_profile_begin,
    .profile_read = ls__cuda_profile_read,
    .multiplies_bf16 = has_tensor_cores,
    .multiplies_tf32 = has_tensor_cores,
    .copies_ahead = true,
    .parallel = ls__parallel_serial,
    .resident = &ls__cuda_resident_table,
    .description = ls__cuda_description_text,
};
