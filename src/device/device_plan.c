/* From --devices and what is here to the ranks of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "device/device.h"

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

/* What a later version or another build knows, and what nobody does. */
static ls_status fail_spec(const char *spec, const ls__cpus *cpus)
{
    bool known = begins(spec, "gpu") || begins(spec, "GPU-") || begins(spec, "MIG-") ||
                 begins(spec, "sim:") || begins(spec, "cpu@") || read_count(spec) >= 0 ||
                 (spec[0] && spec[strspn(spec, "0123456789,")] == '\0');
    if (known)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--devices %.64s: this version computes on CPUs only, by count: use "
                       "--devices auto or cpu:N (usable here: %d)",
                       spec, cpus->usable);
    return ls_fail(LS_ERR_CONFIG,
                   "--devices %.64s: must be auto, a number of devices, or cpu:N (usable here: %d)",
                   spec, cpus->usable);
}

static ls_status read_spec(const char *spec, const ls__cpus *cpus, int *count)
{
    if (strcmp(spec, "auto") == 0) {
        *count = cpus->usable < AUTO_MAX ? cpus->usable : AUTO_MAX;
        return LS_OK;
    }
    *count = read_count(begins(spec, "cpu:") ? spec + 4 : spec);
    if (*count < 0 && begins(spec, "cpu:"))
        return ls_fail(LS_ERR_CONFIG, "--devices %.64s: must be a whole number behind cpu:", spec);
    if (*count < 0) return fail_spec(spec, cpus);
    if (*count == 0)
        return ls_fail(LS_ERR_CONFIG, "--devices %.64s: must be at least 1 (usable here: %d)", spec,
                       cpus->usable);
    if (*count > LS__DEVICES_MAX)
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: at most %d devices on one machine (usable here: %d)", spec,
                       LS__DEVICES_MAX, cpus->usable);
    if (*count > LS__DEVICES_PER_CPU * cpus->usable)
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: at most %d devices here, %d for each usable CPU", spec,
                       LS__DEVICES_PER_CPU * cpus->usable, LS__DEVICES_PER_CPU);
    return LS_OK;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void describe(ls__device_plan *plan, const ls__cpus *cpus)
{
    snprintf(plan->text, sizeof plan->text, "%d CPU device%s with %d thread%s%s", plan->count,
             plural(plan->count), plan->threads, plural(plan->threads),
             plan->count == 1 ? "" : " each");
    int used = plan->count * plan->threads;
    int threads = cpus->usable / plan->count;
    if (used < cpus->usable && threads > plan->threads)
        snprintf(plan->hint, sizeof plan->hint, "%d of %d CPUs; --threads-per-device %d", used,
                 cpus->usable, threads);
}

ls_status ls__devices_plan(const char *spec, int threads, const ls__cpus *cpus,
                           ls__device_plan *out)
{
    memset(out, 0, sizeof *out);
    int count;
    LS_TRY(read_spec(spec, cpus, &count));
    if (threads <= 0) threads = cpus->usable > AUTO_MAX ? cpus->usable / count : 1;
    out->kind = LS__DEVICE_CPU;
    out->count = count;
    out->threads = threads > 0 ? threads : 1;
    /* Only who has all CPUs to itself may choose among them: two jobs must not both sit on the
     * first ones. */
    out->pin = (int64_t)count * out->threads == cpus->in_mask && cpus->usable == cpus->in_mask;
    describe(out, cpus);
    return LS_OK;
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
