/* From options to a plan: how many ranks, how long they wait, where the report goes. */
#include "world/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/report.h"

/* When this process was started, exec included; to 10 ms, in which the kernel counts. */
static double process_started(void)
{
    double now = ls__now();
    char *text;
    size_t nbytes;
    if (ls__file_read("/proc/self/stat", 4096, &text, &nbytes) != LS_OK) return now;
    unsigned long long ticks = 0;
    char *bracket = strrchr(text, ')');
    bool ok = bracket && sscanf(bracket + 1,
                                " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                                "%*d %*d %*d %llu",
                                &ticks) == 1;
    ls__free(text);
    struct timespec boot;
    if (!ok || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return now;
    double age = (double)boot.tv_sec + (double)boot.tv_nsec * 1e-9 -
                 (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return age >= 0 && age < 3600 ? now - age : now;
}

/* How many devices, as text for the plan. Whoever started us as a rank has decided already; then a
 * count on the command line must be the same one. */
static ls_status plan_devices(const ls__options *options, const ls_world_options *program,
                              const ls__place *place, ls__launch *out)
{
    const char *spec = "auto";
    int64_t threads = 0;
    bool chosen = ls__options_string(options, "devices", &spec) && strcmp(spec, "auto") != 0;
    ls__options_int(options, "threads-per-device", &threads);
    char count[16];
    bool decided = place->by == LS__STARTED_BY_OTHERS || place->world_of_one;
    int devices = program->one_device ? 1 : decided ? place->local_size : 0;
    if (chosen || devices == 0)
        LS_TRY(ls__devices_plan(spec, (int)threads, &out->cpus, &out->plan));
    if (devices == 0) return LS_OK;
    if (chosen && out->plan.count != devices && decided)
        return ls_fail(
            LS_ERR_CONFIG,
            "--devices %s means %d ranks, but the environment says %s=%d: start %d tasks%s, "
            "or leave --devices out",
            spec, out->plan.count, place->local_size_name, place->local_size, out->plan.count,
            place->local_size < place->size ? " on this machine" : "");
    if (chosen && out->plan.count != devices)
        return ls_fail(LS_ERR_CONFIG, "--devices %s: this command uses one device; leave it out",
                       spec);
    if (chosen && out->plan.picks.count > 0) return LS_OK;
    if (!chosen) LS_TRY(ls__devices_plan("1", (int)threads, &out->cpus, &out->plan));
    snprintf(count, sizeof count, "%s:%d", ls__device_kind_name(out->plan.kind), devices);
    return ls__devices_plan(count, (int)threads, &out->cpus, &out->plan);
}

/* Where the report goes comes first, so that it can tell of all that is wrong behind it. */
static ls_status read_report(const ls__options *options, ls__launch *out)
{
    const char *report = NULL;
    out->json = ls__options_wants(options, "json");
    ls__options_string(options, "report", &report);
    if (!report || !report[0]) return LS_OK;
    LS_TRY(ls__report_check_path(report));
    return ls__path_absolute(out->report, report);
}

void ls__launch_guess(int argc, char *const *argv, ls__launch *out)
{
    const char *json = getenv("LOCKSTEP_JSON"), *report = getenv("LOCKSTEP_REPORT");
    out->started = process_started();
    out->json = json && (strcmp(json, "1") == 0 || strcmp(json, "true") == 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) out->json = true;
        if (strncmp(argv[i], "--report=", 9) == 0) report = argv[i] + 9;
        if (strcmp(argv[i], "--report") == 0 && i + 1 < argc) report = argv[i + 1];
    }
    bool usable = report && report[0] && ls__report_check_path(report) == LS_OK;
    if (!usable || ls__path_absolute(out->report, report) != LS_OK) out->report[0] = '\0';
}

static void read_limits(const ls__options *options, ls__launch *out)
{
    double timeout = 300;
    int64_t restarts = 0;
    out->grace = 25;
    ls__options_double(options, "timeout", &timeout);
    ls__options_double(options, "grace-period", &out->grace);
    ls__options_int(options, "max-restarts", &restarts);
    out->timeout_ms = timeout < 0 ? -1 : timeout > 2e6 ? 2000000000 : (int)(timeout * 1000 + 0.999);
    out->max_restarts = (int)restarts;
}

ls_status ls__launch_read(const ls__options *options, const ls_world_options *program,
                          const ls__place *place, ls__launch *out)
{
    memset(out, 0, sizeof *out);
    out->started = place->by == LS__STARTED_BY_US ? place->started : process_started();
    LS_TRY(read_report(options, out));
    read_limits(options, out);
    LS_TRY(ls__cpus_discover("/", &out->cpus));
    if (place->by == LS__STARTED_BY_US) {
        out->plan = place->plan;
        out->crowded = place->crowded;
        return LS_OK;
    }
    ls_status status = plan_devices(options, program, place, out);
    const char *origin = ls__options_origin(options, "devices");
    if (status != LS_OK && origin && strcmp(origin, "flag") != 0)
        return ls_fail(status, "%s (from %s)", ls_error_text(), origin);
    out->crowded = (int64_t)out->plan.count * out->plan.threads > out->cpus.usable;
    return status;
}

/* "--devices cpu:2", "LOCKSTEP_DEVICES", "default". */
static const char *origin_of(const ls__options *options, const char *name, char out[80])
{
    const char *from = ls__options_origin(options, name);
    if (!from)
        snprintf(out, 80, "%s by default", name);
    else if (strcmp(from, "flag") == 0)
        snprintf(out, 80, "%s by flag", name);
    else
        snprintf(out, 80, "%s by %.50s", name, from);
    return out;
}

/* "2 nodes x 4 devices = 8 ranks"; how many nodes there are, and how large others are, is not always
 * known yet. */
static void nodes_text(int devices, const ls__place *place, char out[96])
{
    int ranks = place->by == LS__STARTED_BY_OTHERS ? place->size : devices;
    const char *s = devices == 1 ? "" : "s";
    if (ranks == devices)
        snprintf(out, 96, "1 node x %d device%s = %d rank%s", devices, s, ranks, s);
    else if (place->nodes > 0 && (int64_t)place->nodes * devices == ranks)
        snprintf(out, 96, "%d nodes x %d device%s = %d ranks", place->nodes, devices, s, ranks);
    else
        snprintf(out, 96, "several nodes with %d ranks, %d of them here", ranks, devices);
}

void ls__launch_log(const ls__launch *launch, const ls__options *options, const ls__place *place)
{
    const ls__device_plan *plan = &launch->plan;
    static const char threads_name[] = "threads-per-device";
    char devices[80], threads[80];
    origin_of(options, threads_name, threads);
    if (place->by == LS__STARTED_BY_OTHERS || place->world_of_one)
        snprintf(devices, sizeof devices, "devices by %s", place->local_size_name);
    else
        origin_of(options, "devices", devices);
    char origins[164];
    if (strcmp(devices, "devices by default") == 0 && !ls__options_origin(options, threads_name))
        snprintf(origins, sizeof origins, "by default");
    else
        snprintf(origins, sizeof origins, "%s, %s", devices, threads);
    char nodes[96];
    if (plan->note[0]) ls__log(LS__LOG_WARN, "%s", plan->note);
    nodes_text(plan->count, place, nodes);
    ls__log(LS__LOG_INFO, "%s: %s (%s)%s%s", nodes, plan->text, origins, plan->hint[0] ? "; " : "",
            plan->hint);
}

char **ls__command_line(void)
{
    char *text;
    size_t nbytes;
    if (ls__file_read("/proc/self/cmdline", 16 << 20, &text, &nbytes) != LS_OK) return NULL;
    size_t count = 0;
    for (size_t i = 0; i < nbytes; i++) count += text[i] == '\0';
    char **argv = ls__alloc(count + 2, sizeof *argv);
    if (!argv) {
        ls__free(text);
        return NULL;
    }
    char *word = text;
    for (size_t i = 0; i < count; i++) {
        argv[i] = word;
        word += strlen(word) + 1;
    }
    /* Words lie in one block; without words that block is kept in the place behind the end. */
    if (count == 0) argv[1] = text;
    return argv;
}

void ls__command_line_free(char **argv)
{
    if (!argv) return;
    ls__free(argv[0] ? argv[0] : argv[1]);
    ls__free(argv);
}
