/* GPUs by NVML. The library belongs to the driver, so it is there or not when we run, whatever was
 * there when we were built: it is opened by name, and its functions have prototypes of our own. A
 * function that an old driver lacks leaves its field unknown.
 *
 * Asked once, before a job starts and by `lockstep devices`. */
#include "device/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* --- NVML's interface, as far as we ask it --- */

typedef struct nvml_device *device;

typedef enum nvml_code {
    NVML_OK = 0,
    NVML_NOT_FOUND = 6,
    NVML_TOO_SMALL = 7,
    NVML_NO_DRIVER = 9,
    NVML_LOST = 15,
    NVML_MISMATCH = 18,
} nvml_code;

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0, UNCORRECTED = 1, SINCE_LOAD = 0 };
enum { PEER_READ = 0, PEER_NVLINK = 2 };

typedef struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} pci_info;

typedef struct memory_info {
    unsigned long long total, available, used;
} memory_info;

typedef struct utilization {
    unsigned gpu, memory;
} utilization;

typedef struct process_info {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
} process_info;

/* X(field, symbol, parameters); each returns an nvml_code */
#define NVML_MAP(X)                                                                                \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(shutdown, nvmlShutdown, (void))                                                              \
    X(driver, nvmlSystemGetDriverVersion, (char *, unsigned))                                      \
    X(cuda, nvmlSystemGetCudaDriverVersion_v2, (int *))                                            \
    X(count, nvmlDeviceGetCount_v2, (unsigned *))                                                  \
    X(by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned, device *))                               \
    X(name, nvmlDeviceGetName, (device, char *, unsigned))                                         \
    X(uuid, nvmlDeviceGetUUID, (device, char *, unsigned))                                         \
    X(pci, nvmlDeviceGetPciInfo_v3, (device, pci_info *))                                          \
    X(capability, nvmlDeviceGetCudaComputeCapability, (device, int *, int *))                      \
    X(memory, nvmlDeviceGetMemoryInfo, (device, memory_info *))                                    \
    X(utilization, nvmlDeviceGetUtilizationRates, (device, utilization *))                         \
    X(temperature, nvmlDeviceGetTemperature, (device, int, unsigned *))                            \
    X(power, nvmlDeviceGetPowerUsage, (device, unsigned *))                                        \
    X(power_limit, nvmlDeviceGetEnforcedPowerLimit, (device, unsigned *))                          \
    X(clock, nvmlDeviceGetClockInfo, (device, int, unsigned *))                                    \
    X(clock_max, nvmlDeviceGetMaxClockInfo, (device, int, unsigned *))                             \
    X(reasons, nvmlDeviceGetCurrentClocksThrottleReasons, (device, unsigned long long *))          \
    X(errors, nvmlDeviceGetTotalEccErrors, (device, int, int, unsigned long long *))               \
    X(compute_mode, nvmlDeviceGetComputeMode, (device, int *))                                     \
    X(mig, nvmlDeviceGetMigMode, (device, unsigned *, unsigned *))                                 \
    X(mig_count, nvmlDeviceGetMaxMigDeviceCount, (device, unsigned *))                             \
    X(mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex, (device, unsigned, device *))             \
    X(processes, nvmlDeviceGetComputeRunningProcesses_v3, (device, unsigned *, process_info *))    \
    X(peers, nvmlDeviceGetP2PStatus, (device, device, int, int *))

typedef struct nvml {
    void *handle;
#define FIELD(field, symbol, parameters) nvml_code(*field) parameters;
    NVML_MAP(FIELD)
#undef FIELD
    device devices[LS__GPUS_MAX];
} nvml;

/* Whether the function is there and succeeded. */
#define ASK(lib, function, ...) ((lib)->function && (lib)->function(__VA_ARGS__) == NVML_OK)

static void find_functions(nvml *lib)
{
    /* Object and function pointers have one form wherever there is a dlsym (POSIX). */
#define FIND(field, symbol, parameters) *(void **)&lib->field = dlsym(lib->handle, #symbol);
    NVML_MAP(FIND)
#undef FIND
}

/* --- one GPU --- */

static void read_memory(const nvml *lib, device d, ls__gpu *gpu)
{
    memory_info memory;
    utilization used;
    if (ASK(lib, memory, d, &memory)) {
        gpu->memory = (int64_t)memory.total;
        gpu->memory_used = (int64_t)memory.used;
    }
    if (ASK(lib, utilization, d, &used)) gpu->utilization = (int)used.gpu;
}

static void read_clocks(const nvml *lib, device d, ls__gpu *gpu)
{
    unsigned value;
    if (ASK(lib, temperature, d, SENSOR_GPU, &value)) gpu->temperature = (int)value;
    if (ASK(lib, power, d, &value)) gpu->watts = value / 1000.0;
    if (ASK(lib, power_limit, d, &value)) gpu->watts_limit = value / 1000.0;
    if (ASK(lib, clock, d, CLOCK_SM, &value)) gpu->clock_mhz = (int)value;
    if (ASK(lib, clock_max, d, CLOCK_SM, &value)) gpu->clock_max_mhz = (int)value;
    if (ASK(lib, clock, d, CLOCK_MEMORY, &value)) gpu->memory_clock_mhz = (int)value;
}

/* The bits of nvmlDeviceGetCurrentClocksThrottleReasons; an idle GPU is no news. */
static const struct reason {
    unsigned bit;
    bool slowed;
    const char *text;
} reasons[] = {
    { 0x2, false, "clocks set by a program" },
    { 0x4, false, "power limit" },
    { 0x8, true, "hardware slowdown" },
    { 0x10, false, "synchronized boost" },
    { 0x20, true, "heat (software)" },
    { 0x40, true, "heat (hardware)" },
    { 0x80, true, "power brake" },
    { 0x100, false, "display clocks" },
};

static void read_reasons(const nvml *lib, device d, ls__gpu *gpu)
{
    unsigned long long bits;
    if (!ASK(lib, reasons, d, &bits)) return;
    size_t used = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (!(bits & reasons[i].bit)) continue;
        gpu->slowed |= reasons[i].slowed;
        if (used >= sizeof gpu->throttled) break;
        used += (size_t)snprintf(gpu->throttled + used, sizeof gpu->throttled - used, "%s%s",
                                 used ? ", " : "", reasons[i].text);
    }
}

static void read_instances(const nvml *lib, device d, ls__gpu *gpu)
{
    unsigned current, pending, most = 0;
    if (!ASK(lib, mig, d, &current, &pending) || current != 1) return;
    gpu->divided = true;
    if (!ASK(lib, mig_count, d, &most)) return;
    for (unsigned i = 0; i < most && gpu->ninstances < LS__GPU_INSTANCES_MAX; i++) {
        device part;
        memory_info memory;
        ls__gpu_instance *instance = &gpu->instances[gpu->ninstances];
        if (!ASK(lib, mig_by_index, d, i, &part)) continue; /* a place that is not taken */
        if (!ASK(lib, uuid, part, instance->uuid, sizeof instance->uuid)) continue;
        if (ASK(lib, memory, part, &memory)) instance->memory = (int64_t)memory.total;
        gpu->ninstances++;
    }
}

/* Their number first, then the list with some room, since it may grow between the two. */
static void read_processes(const nvml *lib, device d, ls__gpu *gpu)
{
    unsigned n = 0;
    if (!lib->processes) return;
    nvml_code code = lib->processes(d, &n, NULL);
    if (code == NVML_OK) gpu->nprocesses = 0;
    if (code != NVML_TOO_SMALL || n > 65536) return;
    n += 16;
    process_info *list = ls__alloc(n, sizeof *list);
    if (list && lib->processes(d, &n, list) == NVML_OK) {
        gpu->nprocesses = (int)n;
        for (unsigned i = 0; i < n && i < LS__GPU_PROCESSES_MAX; i++) {
            bool known = list[i].memory != ~0ull;
            gpu->processes[i] =
                (ls__gpu_process) { .pid = list[i].pid,
                                    .memory = known ? (int64_t)list[i].memory : LS_NONE };
        }
    }
    ls__free(list);
}

static void read_identity(const nvml *lib, device d, ls__gpu *gpu)
{
    pci_info pci;
    unsigned long long errors;
    if (!ASK(lib, name, d, gpu->name, sizeof gpu->name)) gpu->name[0] = 0;
    if (!ASK(lib, uuid, d, gpu->uuid, sizeof gpu->uuid)) gpu->uuid[0] = 0;
    if (ASK(lib, pci, d, &pci))
        snprintf(gpu->bus, sizeof gpu->bus, "%.*s", (int)sizeof pci.text - 1, pci.text);
    ls__gpu_locality("/", gpu->bus, &gpu->numa_node, gpu->cpus);
    if (!ASK(lib, capability, d, &gpu->major, &gpu->minor)) gpu->major = gpu->minor = LS_NONE;
    if (ASK(lib, errors, d, UNCORRECTED, SINCE_LOAD, &errors)) gpu->errors = (int64_t)errors;
    if (!ASK(lib, compute_mode, d, &gpu->compute_mode)) gpu->compute_mode = LS_NONE;
}

static void read_gpu(nvml *lib, int index, ls__gpu *gpu)
{
    *gpu = (ls__gpu) { .index = index,
                       .numa_node = LS_NONE,
                       .major = LS_NONE,
                       .minor = LS_NONE,
                       .memory = LS_NONE,
                       .memory_used = LS_NONE,
                       .utilization = LS_NONE,
                       .temperature = LS_NONE,
                       .watts = LS_NONE,
                       .watts_limit = LS_NONE,
                       .clock_mhz = LS_NONE,
                       .clock_max_mhz = LS_NONE,
                       .memory_clock_mhz = LS_NONE,
                       .errors = LS_NONE,
                       .compute_mode = LS_NONE,
                       .nprocesses = LS_NONE };
    device d;
    memory_info unused;
    gpu->lost = lib->by_index((unsigned)index, &d) != NVML_OK ||
                (lib->memory && lib->memory(d, &unused) == NVML_LOST);
    if (gpu->lost) return;
    lib->devices[index] = d;
    read_identity(lib, d, gpu);
    read_memory(lib, d, gpu);
    read_clocks(lib, d, gpu);
    read_reasons(lib, d, gpu);
    read_instances(lib, d, gpu);
    read_processes(lib, d, gpu);
}

/* --- all of them --- */

static ls__gpu_link link_between(const nvml *lib, device a, device b)
{
    int status;
    if (!a || !b) return LS__GPU_LINK_NONE;
    if (ASK(lib, peers, a, b, PEER_NVLINK, &status) && status == 0) return LS__GPU_LINK_NVLINK;
    if (ASK(lib, peers, a, b, PEER_READ, &status) && status == 0) return LS__GPU_LINK_PCIE;
    return LS__GPU_LINK_NONE;
}

static void read_links(const nvml *lib, ls__gpus *out)
{
    for (int i = 0; i < out->count; i++)
        for (int k = 0; k < out->count; k++)
            if (i != k) out->links[i][k] = link_between(lib, lib->devices[i], lib->devices[k]);
}

static void note_failure(nvml_code code, ls__gpus *out)
{
    const char *why = "the driver's management library (NVML) answers with error";
    if (code == NVML_NO_DRIVER) why = "the NVIDIA driver is not loaded: error";
    if (code == NVML_MISMATCH)
        why = "the NVIDIA driver was updated and needs a restart of the machine: error";
    snprintf(out->note, sizeof out->note, "%s %d", why, (int)code);
}

static void read_all(nvml *lib, ls__gpus *out)
{
    unsigned count = 0;
    if (!ASK(lib, driver, out->driver, sizeof out->driver)) out->driver[0] = 0;
    if (!ASK(lib, cuda, &out->cuda)) out->cuda = 0;
    nvml_code code = lib->count(&count);
    if (code != NVML_OK) {
        note_failure(code, out);
        return;
    }
    out->count = count < LS__GPUS_MAX ? (int)count : LS__GPUS_MAX;
    if (count == 0) snprintf(out->note, sizeof out->note, "the NVIDIA driver finds no GPU");
    for (int i = 0; i < out->count; i++) read_gpu(lib, i, &out->gpus[i]);
    read_links(lib, out);
}

void ls__gpus_discover(const char *library, ls__gpus *out)
{
    nvml lib = { 0 };
    memset(out, 0, sizeof *out);
    lib.handle = dlopen(library ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib.handle) {
        snprintf(out->note, sizeof out->note, "no NVIDIA driver (libnvidia-ml.so.1 is not here)");
        return;
    }
    find_functions(&lib);
    if (!lib.init || !lib.shutdown || !lib.count || !lib.by_index) {
        snprintf(out->note, sizeof out->note, "the NVIDIA driver is too old for its GPUs' list");
    } else {
        nvml_code code = lib.init();
        if (code == NVML_OK) {
            read_all(&lib, out);
            lib.shutdown();
        } else {
            note_failure(code, out);
        }
    }
    dlclose(lib.handle);
}

const char *ls__gpu_trouble(const ls__gpu *gpu, char out[LS__GPU_REASONS_TEXT])
{
    const double gib = 1024.0 * 1024 * 1024;
    if (gpu->lost) return "lost: the driver cannot reach it (see dmesg; restart the machine)";
    if (gpu->compute_mode == 2) return "closed for computing (nvidia-smi -c 0 opens it, as root)";
    if (gpu->errors > 0)
        snprintf(out, LS__GPU_REASONS_TEXT,
                 "%lld memory errors that were not corrected (nvidia-smi -q -d ECC)",
                 (long long)gpu->errors);
    else if (gpu->nprocesses > 0 && gpu->memory_used > 0)
        snprintf(out, LS__GPU_REASONS_TEXT, "busy: process %lld%s computes on it, %.1f GiB in use",
                 (long long)gpu->processes[0].pid, gpu->nprocesses > 1 ? " and others" : "",
                 (double)gpu->memory_used / gib);
    else if (gpu->slowed)
        snprintf(out, LS__GPU_REASONS_TEXT, "slowed: %.150s", gpu->throttled);
    else
        return NULL;
    return out;
}
