/* Any text behind --devices: an error with a text, or a plan that can be carried out. */
#include "fuzzing.h"

#include "device/device.h"
#include "device/device_picks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    ls__cpus cpus = { .in_mask = 6, .usable = 4, .quota = 3.5 };
    for (int i = 0; i < 6; i++) CPU_SET(2 * i, &cpus.mask);
    char *spec = malloc(nbytes + 1);
    if (!spec) return 0;
    if (nbytes) memcpy(spec, data, nbytes);
    spec[nbytes] = '\0';
    static ls__gpu_names names;
    if (names.count == 0) ls__gpu_names_find("GPU-6e5c41a2,1,MIG-7f", NULL, NULL, 0, &names);
    for (int threads = 0; threads < 9; threads += 4) {
        ls__device_plan plan;
        const ls__gpu_files gpus = {
            .count = threads / 4, .plugin = threads > 4, .sim = true, .names = &names
        };
        if (ls__devices_plan_with(spec, threads, &cpus, &gpus, &plan) != LS_OK) {
            if (!ls_error_text()[0]) abort();
            continue;
        }
        if (plan.count < 1 || plan.count > LS__DEVICES_MAX || plan.threads < 1) abort();
        if (!memchr(plan.text, '\0', sizeof plan.text)) abort();
        if (!memchr(plan.hint, '\0', sizeof plan.hint)) abort();
        for (int r = 0; r < plan.count; r++) {
            int device = ls__device_of(&plan, r);
            if (device < 0 || device >= (plan.picks.count ? LS__PICKS_MAX : plan.count)) abort();
        }
        cpu_set_t mine, outside;
        ls__device_cpus(&plan, &cpus, plan.count - 1, &mine);
        CPU_AND(&outside, &mine, &cpus.mask);
        if (CPU_COUNT(&mine) < 1 || !CPU_EQUAL(&outside, &mine)) abort();
    }
    free(spec);
    return 0;
}
