/* A driver's management library for tests: as many GPUs as FAKE_NVML_GPUS says, each with something
 * of its own, so that what is printed can be told apart:
 *     0  computes for two processes, slowed by heat
 *     1  idle, divided (MIG) into two devices
 *     2  lost
 *     3  knows hardly anything: an old driver's card
 * FAKE_NVML_FAIL is the error that nvmlInit_v2 answers with. Compiled without our prototypes: the
 * declarations here are the interface as NVIDIA documents it, written a second time. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

typedef struct nvmlDevice_st {
    int index;
    int instance; /* of a divided GPU; -1 = the GPU */
} * nvmlDevice_t;
typedef int nvmlReturn_t;

static struct nvmlDevice_st devices[32], parts[2];
static int opened;

static int count_of_gpus(void)
{
    const char *text = getenv("FAKE_NVML_GPUS");
    return text ? atoi(text) : 0;
}

static bool knows(nvmlDevice_t d)
{
    return opened && d->index != 3;
}

#define FAKE(name, ...)                                                                            \
    nvmlReturn_t name(__VA_ARGS__);                                                                \
    nvmlReturn_t name(__VA_ARGS__)

FAKE(nvmlInit_v2, void)
{
    const char *fail = getenv("FAKE_NVML_FAIL");
    if (fail) return atoi(fail);
    for (int i = 0; i < 32; i++) devices[i] = (struct nvmlDevice_st) { i, -1 };
    for (int i = 0; i < 2; i++) parts[i] = (struct nvmlDevice_st) { 1, i };
    opened++;
    return OK;
}

FAKE(nvmlShutdown, void)
{
    opened--;
    return OK;
}

FAKE(nvmlSystemGetDriverVersion, char *out, unsigned length)
{
    snprintf(out, length, "%s", "999.12.34");
    return OK;
}

FAKE(nvmlSystemGetCudaDriverVersion_v2, int *out)
{
    *out = 13020;
    return OK;
}

FAKE(nvmlDeviceGetCount_v2, unsigned *out)
{
    *out = (unsigned)count_of_gpus();
    return opened ? OK : INVALID;
}

FAKE(nvmlDeviceGetHandleByIndex_v2, unsigned index, nvmlDevice_t *out)
{
    if ((int)index >= count_of_gpus()) return INVALID;
    if (index == 2) return LOST;
    *out = &devices[index];
    return OK;
}

FAKE(nvmlDeviceGetName, nvmlDevice_t d, char *out, unsigned length)
{
    snprintf(out, length, "Fake GPU %d", d->index);
    return OK;
}

FAKE(nvmlDeviceGetUUID, nvmlDevice_t d, char *out, unsigned length)
{
    if (d->instance >= 0)
        snprintf(out, length, "MIG-%08d-fake", d->instance);
    else
        snprintf(out, length, "GPU-%08d-fake", d->index);
    return OK;
}

typedef struct nvmlPciInfo_st {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

FAKE(nvmlDeviceGetPciInfo_v3, nvmlDevice_t d, nvmlPciInfo_t *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", 0x3b + d->index);
    return OK;
}

FAKE(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t d, int *major, int *minor)
{
    *major = 9;
    *minor = d->index;
    return knows(d) ? OK : NOT_SUPPORTED;
}

typedef struct nvmlMemory_st {
    unsigned long long total, free, used;
} nvmlMemory_t;

FAKE(nvmlDeviceGetMemoryInfo, nvmlDevice_t d, nvmlMemory_t *out)
{
    out->total = (d->instance >= 0 ? 40ull : 80ull) << 30;
    out->used = d->index == 0 ? 3ull << 30 : 0;
    out->free = out->total - out->used;
    return knows(d) ? OK : NOT_SUPPORTED;
}

typedef struct nvmlUtilization_st {
    unsigned gpu, memory;
} nvmlUtilization_t;

FAKE(nvmlDeviceGetUtilizationRates, nvmlDevice_t d, nvmlUtilization_t *out)
{
    out->gpu = d->index == 0 ? 97 : 0;
    out->memory = 41;
    return knows(d) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetTemperature, nvmlDevice_t d, int sensor, unsigned *out)
{
    *out = d->index == 0 ? 88 : 31;
    return knows(d) && sensor == 0 ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetPowerUsage, nvmlDevice_t d, unsigned *milliwatts)
{
    *milliwatts = d->index == 0 ? 640500 : 71000;
    return knows(d) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetEnforcedPowerLimit, nvmlDevice_t d, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return knows(d) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetClockInfo, nvmlDevice_t d, int which, unsigned *out)
{
    *out = which == 1 ? 1125 : 2619;
    return knows(d) && (which == 1 || which == 2) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetMaxClockInfo, nvmlDevice_t d, int which, unsigned *out)
{
    *out = 1980;
    return knows(d) && which == 1 ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDevice_t d, unsigned long long *out)
{
    *out = d->index == 0 ? 0x4 | 0x40 : 0x1; /* 1: idle, which is no news */
    return knows(d) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetTotalEccErrors, nvmlDevice_t d, int type, int counter, unsigned long long *out)
{
    const char *errors = getenv("FAKE_NVML_ERRORS");
    *out = errors && d->index == 1 ? (unsigned long long)atoi(errors) : 0;
    return knows(d) && type == 1 && counter == 0 ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetComputeMode, nvmlDevice_t d, int *out)
{
    const char *mode = getenv("FAKE_NVML_MODE");
    *out = mode ? atoi(mode) : 0;
    return knows(d) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetMigMode, nvmlDevice_t d, unsigned *current, unsigned *pending)
{
    *current = *pending = d->index == 1;
    return knows(d) ? OK : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t d, unsigned *out)
{
    *out = d->index == 1 ? 7 : 0;
    return OK;
}

/* Places 1 and 4 are taken. */
FAKE(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t d, unsigned index, nvmlDevice_t *out)
{
    if (d->index != 1 || (index != 1 && index != 4)) return NOT_FOUND;
    *out = &parts[index == 4];
    return OK;
}

typedef struct nvmlProcessInfo_st {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

FAKE(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *out)
{
    unsigned there = d->index == 0 ? 2 : 0, room = *n;
    *n = there;
    if (!knows(d)) return NOT_SUPPORTED;
    if (room < there) return TOO_SMALL;
    for (unsigned i = 0; i < there; i++)
        out[i] = (nvmlProcessInfo_t) { 812 + i, i == 0 ? 2ull << 30 : ~0ull, ~0u, ~0u };
    return OK;
}

FAKE(nvmlDeviceGetP2PStatus, nvmlDevice_t a, nvmlDevice_t b, int which, int *status)
{
    bool nvlink = a->index + b->index == 1; /* 0 and 1 */
    *status = nvlink || (which == 0 && knows(a) && knows(b)) ? 0 : 4;
    return OK;
}
