/* lockstep devices: what can compute here, and which ranks --devices would make of it. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/devices_gpu.h"
#include "device/device.h"

typedef struct machine {
    ls__cpus cpus;
    ls__topology topology;
    bool has_topology;
    const char *spec; /* of --devices */
    ls__device_plan plan;
    ls__gpus gpus;
} machine;

static ls_status discover(const ls__options *o, machine *m)
{
    memset(m, 0, sizeof *m);
    int64_t threads = 0;
    m->spec = "auto";
    ls__options_string(o, "devices", &m->spec);
    ls__options_int(o, "threads-per-device", &threads);
    LS_TRY(ls__cpus_discover("/", &m->cpus));
    LS_TRY(ls__devices_plan(m->spec, (int)threads, &m->cpus, &m->plan));
    ls__gpus_discover(NULL, &m->gpus);
    m->has_topology = ls__topology_discover(&m->cpus, &m->topology) == LS_OK;
    if (!m->has_topology) ls__log(LS__LOG_WARN, "%s", ls_error_text());
    return LS_OK;
}

/* --- JSON --- */

static json_t *topology_json(const machine *m)
{
    if (!m->has_topology) return json_null();
    const ls__topology *t = &m->topology;
    return json_pack("{s:i,s:i,s:i,s:i,s:i,s:I}", "cores", t->cores, "usable_cores",
                     t->usable_cores, "packages", t->packages, "numa_nodes", t->numa_nodes,
                     "l3_caches", t->l3_caches, "l3_bytes", (json_int_t)t->l3_bytes);
}

static json_t *cpu_json(const machine *m)
{
    char mask[LS__CPU_SET_TEXT];
    ls__cpu_set_text(&m->cpus.mask, mask);
    return json_pack("{s:s,s:s,s:i,s:s,s:o,s:i,s:o}", "model", m->cpus.model, "isa", m->cpus.isa,
                     "usable", m->cpus.usable, "mask", mask, "quota",
                     m->cpus.quota > 0 ? json_real(m->cpus.quota) : json_null(), "in_mask",
                     m->cpus.in_mask, "topology", topology_json(m));
}

static json_t *devices_json(const machine *m)
{
    json_t *list = json_array();
    for (int rank = 0; rank < m->plan.count; rank++) {
        char name[32], text[LS__CPU_SET_TEXT];
        cpu_set_t set;
        ls__device_cpus(&m->plan, &m->cpus, rank, &set);
        ls__cpu_set_text(&set, text);
        const char *kind = ls__device_kind_name(m->plan.kind);
        snprintf(name, sizeof name, "%s:%d", kind, ls__device_of(&m->plan, rank));
        json_array_append_new(list, json_pack("{s:s,s:s,s:i,s:s}", "name", name, "kind", kind,
                                              "threads", m->plan.threads, "cpus", text));
    }
    return list;
}

static json_t *document(const machine *m)
{
    return json_pack(
        "{s:s,s:o,s:{s:I,s:I},s:{s:s,s:i,s:i,s:b,s:s},s:o,s:o}", "schema", "lockstep.devices/1",
        "cpu", cpu_json(m), "memory", "usable_bytes", (json_int_t)m->cpus.memory, "machine_bytes",
        (json_int_t)m->cpus.machine_memory, "plan", "spec", m->spec, "count", m->plan.count,
        "threads_per_device", m->plan.threads, "pinned", (int)m->plan.pin, "text", m->plan.text,
        "devices", devices_json(m), "gpu", ls_cli_gpus_json(&m->gpus));
}

/* --- text --- */

static void print_cpus(const machine *m)
{
    const ls__cpus *c = &m->cpus;
    const ls__topology *t = &m->topology;
    char mask[LS__CPU_SET_TEXT], text[32];
    ls__cpu_set_text(&c->mask, mask);
    printf("CPU      %s, %s\n", c->model, c->isa);
    snprintf(text, sizeof text, "%s", "no cgroup quota");
    if (c->quota > 0) snprintf(text, sizeof text, "cgroup quota of %.2f", c->quota);
    printf("CPUs     %d usable: %d in the affinity mask (%s), %s\n", c->usable, c->in_mask, mask,
           text);
    if (m->has_topology) {
        printf("Cores    %d usable of %d, packages %d, NUMA nodes %d", t->usable_cores, t->cores,
               t->packages, t->numa_nodes);
        ls_cli_bytes(t->l3_bytes, text);
        if (t->l3_caches > 0) printf(", L3 %d x %s", t->l3_caches, text);
        puts("");
    }
    ls_cli_bytes(c->memory, text);
    printf("Memory   %s usable", text);
    ls_cli_bytes(c->machine_memory, text);
    printf(", %s in the machine\n", text);
    ls_cli_gpus_print(&m->gpus);
}

static void print_table(const machine *m)
{
    printf("\n--devices %s: %s\n\n", m->spec, m->plan.text);
    printf("%-10s %7s  %s\n", "device", "threads", m->plan.pin ? "pinned to CPUs" : "on CPUs");
    for (int rank = 0; rank < m->plan.count; rank++) {
        char name[32], text[LS__CPU_SET_TEXT];
        cpu_set_t set;
        ls__device_cpus(&m->plan, &m->cpus, rank, &set);
        ls__cpu_set_text(&set, text);
        snprintf(name, sizeof name, "%s:%d", ls__device_kind_name(m->plan.kind),
                 ls__device_of(&m->plan, rank));
        printf("%-10s %7d  %s\n", name, m->plan.threads, text);
    }
    if (m->plan.note[0]) printf("\n%s\n", m->plan.note);
    if (m->plan.hint[0]) printf("\n%s.\n", m->plan.hint);
}

int ls_cli_devices(int argc, char **argv)
{
    static const char *const only[] = {
        "devices", "threads-per-device", "log-level", "json", "help", "version", NULL
    };
    const ls_world_options program = {
        .summary = "Shows what can compute here, and which ranks --devices would make of it.",
    };
    machine m;
    ls__options *o = ls_cli_options(&argc, &argv, &program, only);
    ls_status status = discover(o, &m);
    if (status == LS_OK && ls__options_wants(o, "json")) {
        status = ls_cli_print_json(document(&m));
    } else if (status == LS_OK) {
        print_cpus(&m);
        print_table(&m);
        status = ls_cli_flush();
    }
    return ls_cli_end(o, status);
}
