/* The CPUs this process may use. On the start path of every program, so it asks the kernel and the
 * CPU directly: /proc/cpuinfo alone takes milliseconds on a large machine. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/check.h"
#include "device/cgroup.h"
#include "device/device.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { CPUS_ASKED_FOR = 16384 };

/* The kernel refuses a set smaller than its own number of CPUs, so a large one is asked for. */
static ls_status read_mask(ls__cpus *out)
{
    size_t size = CPU_ALLOC_SIZE(CPUS_ASKED_FOR);
    cpu_set_t *all = CPU_ALLOC(CPUS_ASKED_FOR);
    if (!all) return ls_fail(LS_ERR_MEMORY, "out of memory: could not get a set of CPUs");
    CPU_ZERO_S(size, all);
    int result = sched_getaffinity(0, size, all);
    memcpy(&out->mask, all, sizeof out->mask);
    CPU_FREE(all);
    if (result != 0) return ls__fail_errno(LS_ERR_INTERNAL, "cannot read the CPU affinity mask");
    out->in_mask = CPU_COUNT(&out->mask);
    if (out->in_mask == 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "none of the first %d CPUs is in the affinity mask",
                       CPU_SETSIZE);
    return LS_OK;
}

static void trim(char *text)
{
    size_t begin = strspn(text, " ");
    memmove(text, text + begin, strlen(text + begin) + 1);
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\n')) text[--n] = '\0';
}

#if defined(__x86_64__)

/* The brand string: leaves 0x80000002 to 0x80000004, 16 characters each. */
static void read_model(ls__cpus *out)
{
    unsigned int words[12], highest = __get_cpuid_max(0x80000000u, NULL);
    snprintf(out->model, sizeof out->model, "x86-64 CPU");
    if (highest < 0x80000004u) return;
    for (unsigned int i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                    &words[4 * i + 3]);
    memcpy(out->model, words, sizeof words);
    out->model[sizeof words] = '\0';
    trim(out->model);
}

static const char *instruction_set(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
    return "sse2";
}

#else

/* Arm has no brand string; the main id register names implementer, part and revision. */
static void read_model(ls__cpus *out)
{
    static const char path[] = "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
    char id[32] = "";
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(id, sizeof id, file)) id[0] = '\0';
        fclose(file);
    }
    trim(id);
    snprintf(out->model, sizeof out->model, "arm64 CPU%s%s", id[0] ? " " : "", id);
}

static const char *instruction_set(void)
{
    return "neon";
}

#endif

static void read_memory(ls__cpus *out, int64_t limit)
{
    struct sysinfo info;
    if (sysinfo(&info) == 0) out->machine_memory = (int64_t)info.totalram * info.mem_unit;
    out->memory = out->machine_memory;
    if (limit > 0 && (out->memory == 0 || limit < out->memory)) out->memory = limit;
}

ls_status ls__cpus_discover(const char *root, ls__cpus *out)
{
    memset(out, 0, sizeof *out);
    LS_TRY(read_mask(out));
    ls__cgroup_limits limits;
    ls__cgroup_read(root, &limits);
    out->quota = limits.cpus;
    double usable = limits.cpus > 0 ? ceil(limits.cpus) : out->in_mask;
    out->usable = usable < out->in_mask ? (int)usable : out->in_mask;
    read_memory(out, limits.memory);
    read_model(out);
    snprintf(out->isa, sizeof out->isa, "%s", instruction_set());
    return LS_OK;
}

void ls__cpu_set_text(const cpu_set_t *set, char out[LS__CPU_SET_TEXT])
{
    size_t used = 0;
    out[0] = '\0';
    for (int first = 0; first < CPU_SETSIZE; first++) {
        if (!CPU_ISSET(first, set)) continue;
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
        if (used > LS__CPU_SET_TEXT - 24) {
            snprintf(out + used, LS__CPU_SET_TEXT - used, ",...");
            return;
        }
        used += (size_t)snprintf(out + used, LS__CPU_SET_TEXT - used,
                                 last > first ? "%s%d-%d" : "%s%d", used ? "," : "", first, last);
        first = last;
    }
}
