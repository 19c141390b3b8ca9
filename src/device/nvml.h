/* The GPUs that NVIDIA's driver knows, by its management library (NVML). It is opened at run time
 * and only asked, never changed, so nothing here makes a CUDA context or takes a GPU's memory. */
#ifndef LS_DEVICE_NVML_H
#define LS_DEVICE_NVML_H

#include <lockstep/base.h>

enum {
    LS__GPUS_MAX = 32,
    LS__GPU_PROCESSES_MAX = 16,
    LS__GPU_INSTANCES_MAX = 8,
    LS__GPU_TEXT = 96,
    LS__GPU_REASONS_TEXT = 160
};

/* Part of a GPU that is divided (MIG): a device of its own. */
typedef struct ls__gpu_instance {
    char uuid[LS__GPU_TEXT]; /* "MIG-..." */
    int64_t memory;          /* bytes; 0 = unknown */
} ls__gpu_instance;

typedef struct ls__gpu_process {
    int64_t pid;    /* as the driver sees it: of the host, not of a container */
    int64_t memory; /* bytes; LS_NONE = the driver does not say */
} ls__gpu_process;

/* What the driver does not tell is LS_NONE, a text empty. */
typedef struct ls__gpu {
    int index; /* as nvidia-smi counts */
    char name[LS__GPU_TEXT];
    char uuid[LS__GPU_TEXT];     /* "GPU-..." */
    char bus[32];                /* "00000000:3B:00.0" */
    int numa_node;               /* of the machine, that it is next to */
    char cpus[LS__GPU_TEXT];     /* of that node: "0-31,64-95" */
    int major, minor;            /* compute capability */
    int64_t memory, memory_used; /* bytes */
    int utilization;             /* percent of the last moments in which a kernel ran */
    int temperature;             /* degrees Celsius */
    double watts, watts_limit;
    int clock_mhz, clock_max_mhz; /* of the multiprocessors */
    int memory_clock_mhz;
    char throttled
        [LS__GPU_REASONS_TEXT]; /* why the clock is lower than it could be; "" = it isn't */
    bool slowed;                /* among the reasons: heat or power that something is wrong with */
    int64_t errors;             /* of memory, not corrected, since the driver was loaded */
    int compute_mode;           /* 0 = any process, 2 = none, 3 = one at a time */
    bool divided;               /* MIG is on */
    ls__gpu_instance instances[LS__GPU_INSTANCES_MAX];
    int ninstances;
    ls__gpu_process processes[LS__GPU_PROCESSES_MAX];
    int nprocesses; /* that compute; LS_NONE = unknown; may be more than are listed */
    bool lost;      /* the driver cannot reach it: nothing else is known */
} ls__gpu;

/* How two GPUs reach each other. */
typedef enum ls__gpu_link {
    LS__GPU_LINK_NONE,   /* through the host's memory */
    LS__GPU_LINK_PCIE,   /* directly, over PCIe */
    LS__GPU_LINK_NVLINK, /* directly, over NVLink */
} ls__gpu_link;

typedef struct ls__gpus {
    int count;
    char note[LS__GPU_REASONS_TEXT]; /* why none can be used: "no NVIDIA driver"; "" = they can */
    char driver[LS__GPU_TEXT];       /* "580.65.06" */
    int cuda;                        /* newest CUDA that the driver runs, 13000 for 13.0 */
    ls__gpu gpus[LS__GPUS_MAX];
    ls__gpu_link links[LS__GPUS_MAX][LS__GPUS_MAX];
} ls__gpus;

/* library: NULL = libnvidia-ml.so.1 (tests give one of their own). Some hundred milliseconds on a
 * machine with many GPUs: not for the start of a rank. Where there is no driver, or a broken one,
 * count is 0 and the note says why. */
void ls__gpus_discover(const char *library, ls__gpus *out);
/* Where a device sits, by the kernel's files; bus as NVML writes it. root: "/", or a test's folder
 * with sys below it. */
void ls__gpu_locality(const char *root, const char *bus, int *numa_node, char cpus[LS__GPU_TEXT]);
/* Why a job should not start on it: "busy: process 812 uses 3.1 GiB", "lost", "slowed by heat". NULL
 * when nothing is wrong. */
const char *ls__gpu_trouble(const ls__gpu *gpu, char out[LS__GPU_REASONS_TEXT]);

#endif
