/* Device: what can compute here. CPUs from the affinity mask and the cgroup's quota; GPUs that the
 * driver shows; simulated ones. */
#ifndef LS_DEVICE_H
#define LS_DEVICE_H

#include <sched.h>

#include <lockstep/base.h>

typedef struct ls__cpus {
    cpu_set_t mask; /* this process may run on; CPUs from 1024 on are left out */
    int in_mask;    /* CPUs in it */
    double quota;   /* CPUs' worth of time by cgroup v1 or v2, the tightest on the path to the
                       root; 0 = no limit */
    int usable;     /* whole CPUs to plan for: min(in_mask, ceil(quota)), at least 1 */
    int64_t memory; /* bytes this process may use: the smaller of the machine's and the cgroup's */
    int64_t machine_memory; /* bytes */
    char model[96];         /* "AMD EPYC 9655" */
    char isa[32];           /* "avx512", "avx2", "sse2", "neon" */
} ls__cpus;

/* root: "/" (tests give a folder with proc/self and sys/fs/cgroup below it). Takes some tens of
 * microseconds: every start of a program pays for it. */
ls_status ls__cpus_discover(const char *root, ls__cpus *out);

/* "0-3,8": as taskset writes it; a set too scattered for the buffer ends with "...". */
enum { LS__CPU_SET_TEXT = 256 };
void ls__cpu_set_text(const cpu_set_t *set, char out[LS__CPU_SET_TEXT]);

/* How the machine is built, by hwloc. Takes some ten milliseconds: not for the start of a program.
 * LS_ERR_UNSUPPORTED when hwloc cannot tell. */
typedef struct ls__topology {
    int cores, packages, numa_nodes;
    int64_t l3_bytes; /* of one L3 cache; 0 = none or unknown */
    int l3_caches;    /* how many of them */
    int usable_cores; /* with at least one CPU in this process's mask */
} ls__topology;
ls_status ls__topology_discover(const ls__cpus *cpus, ls__topology *out);

/* Where each CPU sits, by the numbers that the kernel (nodes) or hwloc gives; -1 = unknown. */
typedef struct ls__cpu_places {
    int16_t node[CPU_SETSIZE], package[CPU_SETSIZE], core[CPU_SETSIZE];
    int16_t complex[CPU_SETSIZE]; /* CPUs that share an L3 cache */
} ls__cpu_places;
ls_status ls__cpu_places_discover(ls__cpu_places *out);
/* Whether there is more than one NUMA node: without hwloc, unless one of its variables replaces the
 * machine's topology. */
bool ls__numa_is_here(void);

/* GPUs as far as a start needs to know: no library is loaded for it. */
typedef struct ls__gpu_files {
    int count;   /* devices that the driver shows to this process, after CUDA_VISIBLE_DEVICES */
    bool plugin; /* lockstep_cuda.so is there */
    bool sim;    /* lockstep_sim.so is there */
    const struct ls__gpu_names *names; /* what picks are looked up in; NULL = "0", "1", ... */
} ls__gpu_files;
/* root: as for ls__cpus_discover, with dev below it. */
void ls__gpu_files_discover(const char *root, ls__gpu_files *out);
/* Whether root has devices that other programs may compute on and we do not know. */
bool ls__other_accelerators(const char *root);

typedef enum ls__device_kind { LS__DEVICE_CPU, LS__DEVICE_GPU, LS__DEVICE_SIM } ls__device_kind;

/* Which device a rank computes on, where --devices said it. */
enum { LS__PICKS_MAX = 256, LS__VISIBLE_TEXT = 6144 };
typedef struct ls__picks {
    int count; /* ranks; 0 = not said: local rank r has device r */
    int16_t
        device[LS__PICKS_MAX]; /* of a local rank: place in visible; a number of the simulation */
    char visible[LS__VISIBLE_TEXT]; /* what CUDA_VISIBLE_DEVICES becomes; "" = what it is */
} ls__picks;

/* The devices of one machine that a job uses. */
typedef struct ls__device_plan {
    ls__device_kind kind;
    int count;      /* ranks */
    int threads;    /* per rank */
    bool pin;       /* the job fills the whole mask: rank r gets CPUs [r * threads, ...) of it */
    char text[64];  /* "2 CPU devices with 1 thread each" */
    char hint[96];  /* of a job that leaves CPUs idle: what to type; else "" */
    char note[512]; /* of one that leaves GPUs idle because they cannot be used, or whose GPUs are
                       busy or unwell; else "" */
    ls__picks picks;
} ls__device_plan;

/* Far more ranks than CPUs are fine for tests; a thousand on two CPUs take the machine with them. */
enum { LS__DEVICES_MAX = 1024, LS__DEVICES_PER_CPU = 32 };

/* spec: "auto", "N", "cpu:N", "gpu:N", "sim:N", or picks (device_picks.h); auto is every GPU, and
 * where there is none, CPUs. threads 0 = the default. Errors say what is there. GPUs that cannot be
 * used are an error, busy ones a note. */
ls_status ls__devices_plan(const char *spec, int threads, const ls__cpus *cpus,
                           ls__device_plan *out);
/* The same with these GPUs instead of the machine's. */
ls_status ls__devices_plan_with(const char *spec, int threads, const ls__cpus *cpus,
                                const ls__gpu_files *gpus, ls__device_plan *out);
const char *ls__device_kind_name(ls__device_kind kind); /* "cpu": as --devices has it */
/* The device of a local rank, for the backend. */
int ls__device_of(const ls__device_plan *plan, int local_rank);
/* Shows CUDA the GPUs that were picked, here and in children: before CUDA is loaded, while the
 * process has one thread. */
void ls__device_expose(const ls__device_plan *plan);
/* A rank's part of that: of parts of GPUs (MIG) CUDA shows a process only one. */
void ls__device_expose_own(ls__device_plan *plan, int local_rank);
/* The CPUs of a local rank; the whole mask when the plan does not pin. */
void ls__device_cpus(const ls__device_plan *plan, const ls__cpus *cpus, int local_rank,
                     cpu_set_t *out);

#endif
