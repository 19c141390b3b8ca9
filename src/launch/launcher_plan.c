/* From flags to a plan in which nothing is left to guess, so that --dry-run can show all of it.
 * Contradictions are refused with both values rather than settled silently. */
#include "launch/launcher.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "device/device_picks.h"
#include "launch/node_names.h"
#include "launch/nodes_plan.h"
#include "launch/rank_place.h"
#include "record/record.h"
#include "world/child.h"
#include "world/report.h"

ls_status ls__launcher_number(const char *flag, const char *text, int low, int high, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || value < low || value > high)
        return ls_fail(LS_ERR_CONFIG, "--%s %.64s: must be a whole number from %d to %d", flag,
                       text, low, high);
    *out = (int)value;
    return LS_OK;
}

/* --- which devices --- */

/* --nproc-per-node in the words of --devices; *cpu: one per usable CPU, and what that is. */
static ls_status spec_of_nproc(const char *nproc, const ls__cpus *cpus, const ls__gpu_files *gpus,
                               char spec[32])
{
    int count = 0;
    if (strcmp(nproc, "auto") == 0) {
        snprintf(spec, 32, "auto");
    } else if (strcmp(nproc, "cpu") == 0) {
        snprintf(spec, 32, "cpu:%d", cpus->usable);
    } else if (strcmp(nproc, "gpu") == 0 || strcmp(nproc, "cuda") == 0) {
        if (gpus->count == 0)
            return ls_fail(LS_ERR_CONFIG,
                           "--nproc-per-node %s: no GPU is visible here; auto or cpu would start "
                           "CPU processes",
                           nproc);
        snprintf(spec, 32, "gpu:%d", gpus->count);
    } else {
        LS_TRY(ls__launcher_number("nproc-per-node", nproc, 1, LS__DEVICES_MAX, &count));
        snprintf(spec, 32, "%s:%d", count <= gpus->count ? "gpu" : "cpu", count);
    }
    return LS_OK;
}

/* How many processes; NULL = as many as there are devices. */
static const char *nproc_of(const ls__launcher_flags *flags, const ls__launcher_plan *plan,
                            const char *devices)
{
    static char slots[16];
    if (flags->nproc_per_node) return flags->nproc_per_node;
    if (plan->nodes.local_launchers > 1 && !devices) return "1";
    if (!plan->nodes.hosts || plan->nodes.node_rank != 0 || plan->nodes.hosts->hosts[0].slots == 0)
        return NULL;
    snprintf(slots, sizeof slots, "%d", plan->nodes.hosts->hosts[0].slots);
    return slots;
}

typedef struct gpus_here {
    ls__gpu_files files;
    ls__gpus gpus; /* zeros where there are none */
    ls__gpu_names names;
} gpus_here;

/* Processes of other programs bring threads of their own (BLAS, loaders), so the CPUs are shared out
 * among the ranks unless somebody says otherwise: with one thread each most of a large machine
 * would idle, with all of them for each rank the ranks would fight. */
static ls_status plan_devices(const ls__launcher_flags *flags, const ls__options *options,
                              const gpus_here *known, ls__launcher_plan *out)
{
    const char *devices = NULL;
    int64_t threads = 0;
    char spec[32];
    ls__gpu_files gpus = known->files;
    ls__options_string(options, "devices", &devices);
    ls__options_int(options, "threads-per-device", &threads);
    LS_TRY(ls__devices_plan_with(devices ? devices : "auto", (int)threads, &out->cpus, &gpus,
                                 &out->devices));
    int count = out->devices.count, others = out->nodes.local_launchers;
    const char *nproc = nproc_of(flags, out, devices);
    if (nproc) {
        LS_TRY(spec_of_nproc(nproc, &out->cpus, &gpus, spec));
        LS_TRY(ls__devices_plan_with(spec, (int)threads, &out->cpus, &gpus, &out->devices));
        if (devices && strcmp(devices, "auto") != 0 && count != out->devices.count)
            return ls_fail(LS_ERR_CONFIG,
                           "--devices %.64s means %d processes and --nproc-per-node %.64s means "
                           "%d: leave one out",
                           devices, count, nproc, out->devices.count);
    }
    if (others > 1 && out->devices.count > 1)
        return ls_fail(LS_ERR_CONFIG,
                       "%s started %d processes on this machine, each for one device, and "
                       "--nproc-per-node or --devices ask for %d: leave them out, or start one "
                       "process per machine",
                       out->nodes.found, others, out->devices.count);
    out->size = out->devices.count;
    out->kind_said = devices && strcmp(devices, "auto") != 0 && out->devices.kind != LS__DEVICE_GPU;
    const char *set = getenv("OMP_NUM_THREADS");
    out->own_threads = set && set[0] && threads == 0;
    out->threads_said = threads > 0;
    if (threads > 0) return LS_OK;
    /* Those who share a machine have CPUs of their own, or all have all. */
    bool all = others > 1 && out->cpus.usable >= sysconf(_SC_NPROCESSORS_ONLN);
    int share = out->cpus.usable / (out->size * (all ? others : 1));
    if (out->devices.kind != LS__DEVICE_CPU) {
        out->devices.threads = share > 0 ? share : 1;
        return LS_OK;
    }
    snprintf(spec, sizeof spec, "cpu:%d", out->size);
    return ls__devices_plan_with(spec, share > 0 ? share : 1, &out->cpus, &gpus, &out->devices);
}

/* --- where the ranks run --- */

static ls_status bind_ranks(const ls__launcher_flags *flags, const gpus_here *known,
                            ls__launcher_plan *out)
{
    bool on_gpus = out->devices.kind == LS__DEVICE_GPU;
    int *nodes = on_gpus ? ls__alloc((size_t)out->size, sizeof *nodes) : NULL;
    ls__cpu_places *places = ls__alloc(1, sizeof *places);
    ls_status status = places && (nodes || !on_gpus) ? LS_OK : LS_ERR_MEMORY;
    if (places) memset(places, 0xFF, sizeof *places); /* nothing is known */
    if (status == LS_OK && (flags->numa_binding || ls__numa_is_here()))
        status = ls__cpu_places_discover(places);
    for (int r = 0; r < out->size && nodes; r++) nodes[r] = ls__rank_gpu_node(out, &known->gpus, r);
    if (status == LS_OK) status = ls__rank_places_bind(flags->numa_binding, places, nodes, out);
    if (status == LS_OK)
        status = ls__rank_places_check(flags->numa_binding, ls__memory_can_be_bound, out);
    ls__free(nodes);
    ls__free(places);
    return status;
}

/* More ranks than GPUs have CPUs in our plan, but a program may share the GPUs out among them. */
static bool nothing_but_cpus(const char *devices, const gpus_here *known,
                             const ls__launcher_plan *plan)
{
    if (plan->devices.kind != LS__DEVICE_CPU) return false;
    if (devices && strncmp(devices, "cpu", 3) == 0) return true;
    return known->files.count == 0 && !ls__other_accelerators("/");
}

static ls_status place_ranks(const ls__launcher_flags *flags, const ls__options *options,
                             const gpus_here *known, ls__launcher_plan *out)
{
    const char *devices = NULL;
    ls__options_string(options, "devices", &devices);
    out->places = ls__alloc((size_t)out->size, sizeof *out->places);
    if (!out->places) return LS_ERR_MEMORY;
    out->on_cpus = nothing_but_cpus(devices, known, out);
    bool alone = out->nodes.local_launchers <= 1;
    if (!alone && flags->isolate_devices)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--isolate-devices: several launchers share this machine; start one of them "
                       "per machine, or leave it out");
    if (alone)
        LS_TRY(ls__rank_places_show(flags->isolate_devices, devices, getenv("CUDA_VISIBLE_DEVICES"),
                                    known->files.count, &known->gpus, out));
    return bind_ranks(flags, known, out);
}

/* The driver's library takes a tenth of a second to wake up: only machines with GPUs wait for it. */
static ls_status plan_ranks(const ls__launcher_flags *flags, const ls__options *options,
                            ls__launcher_plan *out)
{
    gpus_here *known = ls__alloc(1, sizeof *known);
    if (!known) return LS_ERR_MEMORY;
    ls__gpu_files_discover("/", &known->files);
    known->files.plugin = true; /* of ours, for training; other programs bring their own */
    if (known->files.count > 0) {
        ls__gpus_discover(NULL, &known->gpus);
        ls__gpu_names_find(getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"),
                           &known->gpus, known->files.count, &known->names);
        known->files.names = &known->names;
    }
    ls_status status = plan_devices(flags, options, known, out);
    if (status == LS_OK) status = place_ranks(flags, options, known, out);
    ls__free(known);
    return status;
}

/* --- where rank 0 listens --- */

/* Whether this machine has the address: a socket can be bound to it. */
static ls_status check_address(const char *address)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    int error = ls__address_find(address, NULL, &hints, &list);
    if (error != 0)
        return ls_fail(LS_ERR_CONFIG, "--master-addr %.200s: %s", address, gai_strerror(error));
    bool ours = false;
    for (const struct addrinfo *a = list; a && !ours; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ours = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(list);
    if (ours) return LS_OK;
    return ls_fail(
        LS_ERR_CONFIG,
        "--master-addr %.200s is not an address of this machine, which is the only one; leave it "
        "out, or say how many there are (--nnodes)",
        address);
}

static ls_status plan_master(const ls__launcher_flags *flags, ls__launcher_plan *out)
{
    if (out->nodes.role != LS__NODES_NONE) return LS_OK; /* known when all have met */
    /* Numeric: names are looked up in IPv6 first, and fail noisily where there is none. */
    snprintf(out->master_addr, sizeof out->master_addr, "%s",
             flags->master_addr && flags->master_addr[0] ? flags->master_addr : "127.0.0.1");
    if (flags->master_port)
        LS_TRY(ls__launcher_number("master-port", flags->master_port, 0, 65535, &out->master_port));
    return check_address(out->master_addr);
}

/* --- the rest --- */

static ls_status plan_places(const ls__launcher_flags *flags, const ls__options *options,
                             ls__launcher_plan *out)
{
    const char *name = NULL, *runs_dir = "runs", *report = NULL;
    bool named = ls__options_string(options, "name", &name);
    bool placed = ls__options_string(options, "runs-dir", &runs_dir);
    ls__options_string(options, "report", &report);
    if (name) LS_TRY(ls__run_name_check(name));
    snprintf(out->name, sizeof out->name, "%s", name ? name : "");
    LS_TRY(ls__path_absolute(out->runs_dir, runs_dir));
    out->named = named || placed;
    out->no_logs = flags->log_dir && strcmp(flags->log_dir, "none") == 0;
    if (flags->log_dir && !out->no_logs) LS_TRY(ls__path_absolute(out->log_dir, flags->log_dir));
    if (!report || !report[0]) return LS_OK;
    LS_TRY(ls__report_check_path(report));
    return ls__path_absolute(out->report, report);
}

/* "30s" or "none"; *out stays when nothing is given. */
static ls_status read_duration(const char *flag, const char *text, double *out)
{
    if (!text) return LS_OK;
    if (strcmp(text, "none") == 0) {
        *out = 0;
        return LS_OK;
    }
    if (ls__duration_parse(text, out) && *out > 0) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "--%s %.64s: must be a time above 0 (30s, 5min, 2h) or none",
                   flag, text);
}

static ls_status plan_watch(const ls__launcher_flags *flags, ls__launcher_plan *out)
{
    out->silence_warning = 600;
    LS_TRY(read_duration("hang-timeout", flags->hang_timeout, &out->hang_timeout));
    LS_TRY(read_duration("silence-warning", flags->silence_warning, &out->silence_warning));
    if (flags->events && flags->events[0]) LS_TRY(ls__path_absolute(out->events, flags->events));
    bool one = out->nodes.role == LS__NODES_NONE;
    return ls__launcher_injections(flags->inject, one ? out->size : LS__WORLD_MAX, out);
}

/* What one machine is; of several, a guess for --dry-run until they have met. */
static void plan_place(ls__launcher_plan *out)
{
    const ls__nodes_plan *nodes = &out->nodes;
    int launchers = nodes->launchers > 0 ? nodes->launchers : 1, size = out->size;
    int launcher = nodes->node_rank > 0 ? nodes->node_rank : 0;
    int machines = launchers / nodes->local_launchers;
    if (machines < 1) machines = 1;
    out->place = (ls__node_place) { .launcher = launcher,
                                    .launchers = launchers,
                                    .node = launcher / nodes->local_launchers,
                                    .nodes = machines,
                                    .first_rank = launcher * size,
                                    .world_size = launchers * size,
                                    .local_rank = launcher % nodes->local_launchers * size,
                                    .local_size = nodes->local_launchers * size };
    if (nodes->role == LS__NODES_FIRST && nodes->node_rank < 0) out->size = 0;
}

static ls_status make(const ls__launcher_flags *flags, const ls__options *options,
                      const ls__launcher_words *words, ls__launcher_plan *out, int *exit_code)
{
    int64_t restarts = 0;
    out->grace = 25;
    out->started = ls__now();
    out->pid = (int)getpid();
    out->json = ls__options_wants(options, "json");
    ls__options_double(options, "grace-period", &out->grace);
    ls__options_int(options, "max-restarts", &restarts);
    out->max_restarts = (int)restarts;
    out->flags = flags;
    out->words = words;
    gethostname(out->host, sizeof out->host - 1);
    LS_TRY(ls__cpus_discover("/", &out->cpus));
    LS_TRY(plan_places(flags, options, out));
    LS_TRY(ls__nodes_plan_make(flags, options, out));
    LS_TRY(plan_ranks(flags, options, out));
    plan_place(out);
    LS_TRY(plan_master(flags, out));
    LS_TRY(plan_watch(flags, out));
    if (flags->standalone && (flags->master_addr || flags->master_port))
        return ls_fail(LS_ERR_CONFIG, "--standalone chooses --master-addr and --master-port "
                                      "itself: leave one of them out");
    snprintf(out->run_id, sizeof out->run_id, "%s", flags->rdzv_id ? flags->rdzv_id : "");
    snprintf(out->role, sizeof out->role, "%s", flags->role ? flags->role : "default");
    out->shown = ls__alloc((size_t)out->size + 1, sizeof *out->shown);
    if (!out->shown) return LS_ERR_MEMORY;
    LS_TRY(ls__launcher_shown(flags, out->size, true, out->shown));
    return ls__launcher_program(flags, words->program, out, exit_code);
}

ls_status ls__launcher_plan_make(const ls__launcher_flags *flags, const ls__options *options,
                                 const ls__launcher_words *words, ls__launcher_plan *out,
                                 int *exit_code)
{
    memset(out, 0, sizeof *out);
    *exit_code = 0;
    ls_status status = make(flags, options, words, out, exit_code);
    if (status == LS_OK) return LS_OK;
    if (*exit_code == 0) *exit_code = ls__exit_code(status);
    if (words->variables[0] && *exit_code == 2)
        ls_fail(status, "%s (with %s from the environment)", ls_error_text(), words->variables);
    ls__launcher_plan_free(out);
    return status;
}

void ls__launcher_plan_free(ls__launcher_plan *plan)
{
    ls__nodes_plan_free(plan);
    ls__free(plan->argv);
    ls__free(plan->shown);
    ls__free(plan->places);
    plan->places = NULL;
    plan->argv = NULL;
    plan->shown = NULL;
}
