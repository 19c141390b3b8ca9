/* From --devices and what is here to the ranks of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "device/device.h"
#include "device/device_picks.h"

enum { AUTO_MAX = 8 };

/* "12": a count of at least 1; 0 when text is not a plain number. Larger ones than allowed stay
 * larger. */
static int read_count(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits] != '\0') return -1;
    long n = digits > 9 ? 1000000000 : strtol(text, NULL, 10);
    return (int)n;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

const char *ls__device_kind_name(ls__device_kind kind)
{
    static const char *const names[] = {
        [LS__DEVICE_CPU] = "cpu", [LS__DEVICE_GPU] = "gpu", [LS__DEVICE_SIM] = "sim"
    };
    return names[kind];
}

/* --- what was asked for --- */

static ls_status fail_spec(const char *spec, const ls__cpus *cpus)
{
    if (begins(spec, "cpu@"))
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: CPUs are chosen by number: cpu:N, and taskset says which "
                       "(usable here: %d)",
                       spec, cpus->usable);
    return ls_fail(LS_ERR_CONFIG,
                   "--devices %.64s: must be auto, a number of devices, cpu:N, gpu:N, sim:N, or "
                   "GPUs as gpu@0,2 (usable here: %d)",
                   spec, cpus->usable);
}

/* "gpu:3": the kind and the count behind it; "3": of GPUs where there are some. */
static ls_status read_spec(const char *spec, const ls__cpus *cpus, ls__device_kind *kind,
                           int *count)
{
    static const ls__device_kind kinds[] = { LS__DEVICE_CPU, LS__DEVICE_GPU, LS__DEVICE_SIM };
    *count = read_count(spec);
    if (*count >= 0) return LS_OK;
    for (int i = 0; i < 3; i++) {
        const char *name = ls__device_kind_name(kinds[i]);
        size_t n = strlen(name);
        if (!begins(spec, name) || spec[n] != ':') continue;
        *kind = kinds[i];
        *count = read_count(spec + n + 1);
        return *count >= 0
                   ? LS_OK
                   : ls_fail(LS_ERR_CONFIG,
                             "--devices %.64s: must be a whole number behind %s:", spec, name);
    }
    return fail_spec(spec, cpus);
}

/* --- whether it is here --- */

static ls_status check_count(const char *spec, const ls__cpus *cpus, int count)
{
    if (count == 0)
        return ls_fail(LS_ERR_CONFIG, "--devices %.64s: must be at least 1 (usable here: %d)", spec,
                       cpus->usable);
    if (count > LS__DEVICES_MAX)
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: at most %d devices on one machine (usable here: %d)", spec,
                       LS__DEVICES_MAX, cpus->usable);
    if (count > LS__DEVICES_PER_CPU * cpus->usable)
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: at most %d devices here, %d for each usable CPU", spec,
                       LS__DEVICES_PER_CPU * cpus->usable, LS__DEVICES_PER_CPU);
    return LS_OK;
}

static ls_status check_gpus(const char *spec, const ls__cpus *cpus, const ls__gpu_files *gpus,
                            int distinct)
{
    if (gpus->count == 0)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--devices %.64s: no GPU can be used here: is the driver loaded "
                       "(nvidia-smi), was the container started with --gpus, does "
                       "CUDA_VISIBLE_DEVICES hide them? --devices auto or cpu:N uses CPUs (usable "
                       "here: %d)",
                       spec, cpus->usable);
    if (!gpus->plugin)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--devices %.64s: lockstep_cuda.so is not installed; build Lockstep where "
                       "nvcc is (docs/gpu.md), or use cpu:N (usable here: %d)",
                       spec, cpus->usable);
    if (distinct > gpus->count)
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: %d GPU%s can be used here; at most so many, or cpu:N "
                       "(usable here: %d)",
                       spec, gpus->count, plural(gpus->count), cpus->usable);
    return LS_OK;
}

static ls_status check_kind(const char *spec, const ls__cpus *cpus, const ls__gpu_files *gpus,
                            ls__device_kind kind, int count, bool picked)
{
    LS_TRY(check_count(spec, cpus, count));
    if (kind == LS__DEVICE_GPU) return check_gpus(spec, cpus, gpus, picked ? 1 : count);
    if (kind == LS__DEVICE_SIM && !gpus->sim)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--devices %.64s: lockstep_sim.so, the simulation of a GPU, is not "
                       "installed; use auto or cpu:N (usable here: %d)",
                       spec, cpus->usable);
    return LS_OK;
}

/* --- the plan --- */

static void describe(ls__device_plan *plan, const ls__cpus *cpus)
{
    snprintf(plan->text, sizeof plan->text, "%d CPU device%s with %d thread%s%s", plan->count,
             plural(plan->count), plan->threads, plural(plan->threads),
             plan->count == 1 ? "" : " each");
    int used = plan->count * plan->threads;
    int threads = cpus->usable / plan->count;
    if (used < cpus->usable && threads > plan->threads)
        snprintf(plan->hint, sizeof plan->hint,
                 "%d of %d CPUs in use; --threads-per-device %d would use more", used, cpus->usable,
                 threads);
}

/* Every GPU computes at the pace of its own program: a rank's CPU threads only feed it. */
static void describe_gpus(ls__device_plan *plan)
{
    const char *what = plan->kind == LS__DEVICE_SIM ? "simulated " : "";
    int distinct = plan->count;
    for (int i = 1; i < plan->picks.count; i++) /* a device's ranks are neighbours */
        distinct -= plan->picks.device[i] == plan->picks.device[i - 1];
    if (distinct == plan->count)
        snprintf(plan->text, sizeof plan->text, "%d %sGPU%s", distinct, what, plural(distinct));
    else
        snprintf(plan->text, sizeof plan->text, "%d ranks on %d %sGPU%s", plan->count, distinct,
                 what, plural(distinct));
}

static ls_status read_picks(const char *spec, const ls__cpus *cpus, const ls__gpu_files *gpus,
                            ls__device_kind *kind, ls__device_plan *out)
{
    *kind = begins(spec, "sim@") ? LS__DEVICE_SIM : LS__DEVICE_GPU;
    LS_TRY(check_kind(spec, cpus, gpus, *kind, 1, true));
    ls__gpu_names numbers;
    if (!gpus->names) ls__gpu_names_find(NULL, NULL, NULL, gpus->count, &numbers);
    return ls__picks_read(spec, gpus->names ? gpus->names : &numbers, kind, &out->picks);
}

ls_status ls__devices_plan_with(const char *spec, int threads, const ls__cpus *cpus,
                                const ls__gpu_files *gpus, ls__device_plan *out)
{
    memset(out, 0, sizeof *out);
    bool gpus_here = gpus->count > 0 && gpus->plugin;
    ls__device_kind kind = gpus_here ? LS__DEVICE_GPU : LS__DEVICE_CPU;
    int count = gpus_here ? gpus->count : cpus->usable < AUTO_MAX ? cpus->usable : AUTO_MAX;
    bool picked = ls__picks_are(spec);
    if (picked) {
        LS_TRY(read_picks(spec, cpus, gpus, &kind, out));
        count = out->picks.count;
    } else if (strcmp(spec, "auto") != 0) {
        LS_TRY(read_spec(spec, cpus, &kind, &count));
    }
    LS_TRY(check_kind(spec, cpus, gpus, kind, count, picked));
    out->kind = kind;
    out->count = count;
    if (kind == LS__DEVICE_CPU && gpus->count > 0 && !begins(spec, "cpu:"))
        snprintf(out->note, sizeof out->note,
                 "%d GPU%s here, but lockstep_cuda.so is not installed: CPUs compute; build "
                 "Lockstep where nvcc is (docs/gpu.md), or choose cpu:N",
                 gpus->count, gpus->count == 1 ? " is" : "s are");
    if (kind != LS__DEVICE_CPU) {
        out->threads = threads > 0 ? threads : 1;
        describe_gpus(out);
        return LS_OK;
    }
    if (threads <= 0) threads = cpus->usable > AUTO_MAX ? cpus->usable / count : 1;
    out->threads = threads > 0 ? threads : 1;
    /* Only who has all CPUs to itself may choose among them: two jobs must not both sit on the
     * first ones. */
    out->pin = (int64_t)count * out->threads == cpus->in_mask && cpus->usable == cpus->in_mask;
    describe(out, cpus);
    return LS_OK;
}

/* With what the driver knows of the GPUs: their names, and whether they are well. */
static ls_status plan_gpus(const char *spec, int threads, const ls__cpus *cpus,
                           ls__gpu_files *files, ls__device_plan *out)
{
    ls__gpu_names names;
    ls__gpus *gpus = ls__alloc(1, sizeof *gpus);
    if (!gpus) return LS_ERR_MEMORY;
    ls__gpus_discover(NULL, gpus);
    ls__gpu_names_find(getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"), gpus,
                       files->count, &names);
    files->names = &names;
    ls_status status = ls__devices_plan_with(spec, threads, cpus, files, out);
    if (status == LS_OK && out->kind == LS__DEVICE_GPU) status = ls__gpus_check(out, &names, gpus);
    ls__free(gpus);
    return status;
}

ls_status ls__devices_plan(const char *spec, int threads, const ls__cpus *cpus,
                           ls__device_plan *out)
{
    ls__gpu_files files;
    ls__gpu_files_discover("/", &files);
    /* The driver's library takes a moment: only those who will use a GPU wait for it. */
    bool others = begins(spec, "cpu") || begins(spec, "sim");
    if (files.count > 0 && files.plugin && !others)
        return plan_gpus(spec, threads, cpus, &files, out);
    return ls__devices_plan_with(spec, threads, cpus, &files, out);
}

void ls__device_cpus(const ls__device_plan *plan, const ls__cpus *cpus, int local_rank,
                     cpu_set_t *out)
{
    if (!plan->pin) {
        *out = cpus->mask;
        return;
    }
    CPU_ZERO(out);
    int first = local_rank * plan->threads, seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &cpus->mask)) continue;
        if (seen >= first && seen < first + plan->threads) CPU_SET(cpu, out);
        seen++;
    }
}
