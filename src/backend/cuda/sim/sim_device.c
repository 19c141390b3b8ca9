/* Which simulated devices there are, and which one a thread uses. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sim/sim_internal.h"

static int asked_count; /* by ls__sim_set_devices; 0 = not asked */
static __thread int current_device;

long long ls__sim_setting(const char *variable, long long least, long long most,
                          long long otherwise)
{
    const char *text = getenv(variable);
    if (!text || !*text) return otherwise;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    return errno || *end || value < least || value > most ? otherwise : value;
}

void ls__sim_set_devices(int count)
{
    asked_count = count < SIM_MAX_DEVICES ? count : SIM_MAX_DEVICES;
}

int ls__sim_device_count(void)
{
    return (int)ls__sim_setting("LOCKSTEP_SIM_DEVICES", 0, SIM_MAX_DEVICES,
                                asked_count > 0 ? asked_count : 8);
}

int ls__sim_device(void)
{
    return current_device;
}

int ls__sim_workers(void)
{
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return (int)ls__sim_setting("LOCKSTEP_SIM_WORKERS", 1, 64, count < 4 ? count : 4);
}

size_t ls__sim_memory_limit(void)
{
    return (size_t)ls__sim_setting("LOCKSTEP_SIM_MEMORY", 1, 1LL << 46, 16LL << 30);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = ls__sim_device_count();
    return cudaSuccess;
}

static cudaError_t check_device(int device)
{
    int count = ls__sim_device_count();
    if (device >= 0 && device < count) return cudaSuccess;
    return ls__sim_error(cudaErrorInvalidDevice, "device %d of %d simulated ones", device, count);
}

cudaError_t cudaSetDevice(int device)
{
    SIM_TRY(check_device(device));
    current_device = device;
    return ls__sim_known(device);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    SIM_TRY(check_device(device));
    *out = (struct cudaDeviceProp) {
        .totalGlobalMem = ls__sim_memory_limit(),
        .sharedMemPerBlock = SIM_SHARED,
        .sharedMemPerBlockOptin = SIM_SHARED_MOST,
        .warpSize = SIM_WARP,
        .maxThreadsPerBlock = SIM_MAX_BLOCK,
        .major = 9,
        .multiProcessorCount = ls__sim_workers(),
        .l2CacheSize = 1 << 20,
        .pciBusID = device + 1,
    };
    snprintf(out->name, sizeof(out->name), "simulated GPU");
    memcpy(out->uuid.bytes, "lockstep sim", 12);
    out->uuid.bytes[15] = (char)device;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 12000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 12000;
    return cudaSuccess;
}
