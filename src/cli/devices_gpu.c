/* The GPUs in `lockstep devices`: what each is and does, what is wrong with it, how they reach each
 * other. */
#include "cli/devices_gpu.h"

#include <stdio.h>

#include "cli/cli.h"

static const char *link_text(ls__gpu_link link)
{
    return link == LS__GPU_LINK_NVLINK ? "nvlink" : link == LS__GPU_LINK_PCIE ? "pcie" : "host";
}

/* --- text --- */

/* "31 %", "-" where the driver does not say */
static const char *number_text(double value, const char *unit, char out[32])
{
    if (value < 0) return "-";
    snprintf(out, 32, "%.0f %s", value, unit);
    return out;
}

static void print_gpu(const ls__gpu *gpu)
{
    char text[LS__GPU_REASONS_TEXT], memory[32] = "-", used[32] = "-", part[6][32];
    const char *trouble = ls__gpu_trouble(gpu, text);
    printf("GPU %-4d %s", gpu->index, gpu->lost ? "not reached" : gpu->name);
    if (gpu->major >= 0) printf(", compute capability %d.%d", gpu->major, gpu->minor);
    puts("");
    if (gpu->memory >= 0) ls_cli_bytes(gpu->memory, memory);
    if (gpu->memory_used >= 0) ls_cli_bytes(gpu->memory_used, used);
    if (!gpu->lost) {
        printf("         %s at %s", gpu->uuid, gpu->bus);
        if (gpu->numa_node >= 0) printf(", NUMA node %d", gpu->numa_node);
        if (gpu->cpus[0]) printf(", near CPUs %s", gpu->cpus);
        puts("");
        printf("         memory %s of %s in use, utilization %s, %s, %s of %s, %s of %s\n", used,
               memory, number_text(gpu->utilization, "%", part[0]),
               number_text(gpu->temperature, "C", part[1]), number_text(gpu->watts, "W", part[2]),
               number_text(gpu->watts_limit, "W", part[3]),
               number_text(gpu->clock_mhz, "MHz", part[4]),
               number_text(gpu->clock_max_mhz, "MHz", part[5]));
    }
    if (gpu->throttled[0]) printf("         clock held down by: %s\n", gpu->throttled);
    for (int i = 0; i < gpu->ninstances; i++) {
        ls_cli_bytes(gpu->instances[i].memory, memory);
        printf("         %s, %s\n", gpu->instances[i].uuid, memory);
    }
    if (trouble) printf("         not free: %s\n", trouble);
}

static void print_links(const ls__gpus *gpus)
{
    if (gpus->count < 2) return;
    printf("Links   ");
    for (int k = 0; k < gpus->count; k++) printf(" %6d", k);
    for (int i = 0; i < gpus->count; i++) {
        printf("\n%8d", i);
        for (int k = 0; k < gpus->count; k++)
            printf(" %6s", i == k ? "-" : link_text(gpus->links[i][k]));
    }
    puts("");
}

void ls_cli_gpus_print(const ls__gpus *gpus)
{
    if (gpus->note[0]) {
        printf("GPUs     none: %s\n", gpus->note);
        return;
    }
    printf("GPUs     %d, driver %s, CUDA up to %d.%d\n", gpus->count, gpus->driver,
           gpus->cuda / 1000, gpus->cuda % 1000 / 10);
    for (int i = 0; i < gpus->count; i++) print_gpu(&gpus->gpus[i]);
    print_links(gpus);
}

/* --- JSON --- */

/* null where the driver does not say */
static json_t *integer(int64_t value)
{
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static json_t *real(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

static json_t *instances_json(const ls__gpu *gpu)
{
    json_t *list = json_array();
    for (int i = 0; i < gpu->ninstances; i++)
        json_array_append_new(list,
                              json_pack("{s:s,s:I}", "uuid", gpu->instances[i].uuid, "memory_bytes",
                                        (json_int_t)gpu->instances[i].memory));
    return list;
}

static json_t *processes_json(const ls__gpu *gpu)
{
    json_t *list = json_array();
    for (int i = 0; i < gpu->nprocesses && i < LS__GPU_PROCESSES_MAX; i++)
        json_array_append_new(list, json_pack("{s:I,s:o}", "pid", (json_int_t)gpu->processes[i].pid,
                                              "memory_bytes", integer(gpu->processes[i].memory)));
    return list;
}

static json_t *gpu_json(const ls__gpu *gpu)
{
    char text[LS__GPU_REASONS_TEXT], capability[32] = "";
    if (gpu->major >= 0) snprintf(capability, sizeof capability, "%d.%d", gpu->major, gpu->minor);
    json_t *out = json_pack(
        "{s:i,s:o,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:b,s:o}", "index", gpu->index, "name",
        text_or_null(gpu->name), "uuid", text_or_null(gpu->uuid), "bus", text_or_null(gpu->bus),
        "compute_capability", text_or_null(capability), "lost", (int)gpu->lost, "memory_bytes",
        integer(gpu->memory), "memory_used_bytes", integer(gpu->memory_used), "utilization_percent",
        integer(gpu->utilization), "mig", (int)gpu->divided, "mig_devices", instances_json(gpu));
    json_t *more = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "numa_node", integer(gpu->numa_node),
        "near_cpus", text_or_null(gpu->cpus), "temperature_celsius", integer(gpu->temperature),
        "power_watts", real(gpu->watts), "power_limit_watts", real(gpu->watts_limit), "clock_mhz",
        integer(gpu->clock_mhz), "clock_max_mhz", integer(gpu->clock_max_mhz), "memory_clock_mhz",
        integer(gpu->memory_clock_mhz), "throttled", text_or_null(gpu->throttled),
        "uncorrected_errors", integer(gpu->errors), "processes", processes_json(gpu), "trouble",
        text_or_null(ls__gpu_trouble(gpu, text)));
    if (out && more) json_object_update(out, more);
    json_decref(more);
    return out;
}

static json_t *links_json(const ls__gpus *gpus)
{
    json_t *rows = json_array();
    for (int i = 0; i < gpus->count; i++) {
        json_t *row = json_array();
        for (int k = 0; k < gpus->count; k++)
            json_array_append_new(row,
                                  i == k ? json_null() : json_string(link_text(gpus->links[i][k])));
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *ls_cli_gpus_json(const ls__gpus *gpus)
{
    json_t *list = json_array();
    for (int i = 0; i < gpus->count; i++) json_array_append_new(list, gpu_json(&gpus->gpus[i]));
    char cuda[32] = "";
    if (gpus->cuda > 0)
        snprintf(cuda, sizeof cuda, "%d.%d", gpus->cuda / 1000, gpus->cuda % 1000 / 10);
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "note", text_or_null(gpus->note), "driver",
                     text_or_null(gpus->driver), "cuda", text_or_null(cuda), "gpus", list, "links",
                     links_json(gpus));
}
