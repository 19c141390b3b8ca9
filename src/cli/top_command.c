/* lockstep top RUN: what each rank of this host is doing, once or again and again. It looks from outside,
 * by /proc, the driver and the ranks' heartbeats, so a job pays nothing for being watched. Two looks a
 * moment apart make the rates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "device/nvml.h"
#include "launch/launch_state.h"
#include "launch/launcher_job.h"

enum { MOMENT_MS = 500, BEHIND_STEPS = 2 };
static const double late_seconds = 10, slow_share = 1.5; /* of the median */

typedef struct look {
    int pid;
    char state;
    double at, cpu_seconds, beat_at; /* wall time of the last heartbeat; 0 = never */
    int64_t memory, step;            /* bytes; -1 = unknown */
    int gpu;                         /* percent; -1 = none known */
} look;

typedef struct row {
    look now;
    double cpus, step_seconds; /* -1 = unknown */
    const char *mark;          /* "" */
} row;

static int64_t memory_of(int pid)
{
    char path[64];
    long long pages = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%lld %lld", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void read_beat(const char *folder, int rank, look *out)
{
    char path[LS_PATH_MAX];
    struct stat info;
    ls__rank_heartbeat_path(folder, rank, path);
    if (!folder[0] || stat(path, &info) != 0) return;
    out->beat_at = (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec * 1e-9;
    out->step = ls__rank_beat_step(path);
}

static int gpu_of(const ls__gpus *gpus, int pid)
{
    for (int i = 0; i < gpus->count; i++)
        for (int k = 0; k < gpus->gpus[i].nprocesses && k < LS__GPU_PROCESSES_MAX; k++)
            if (gpus->gpus[i].processes[k].pid == pid) return gpus->gpus[i].utilization;
    return -1;
}

/* (n) looks at the ranks of a run's state. */
static void look_at(const json_t *state, const ls__gpus *gpus, look *looks, int n)
{
    const char *folder = json_string_value(json_object_get(state, "job_folder"));
    const json_t *pids = json_object_get(state, "ranks");
    for (int r = 0; r < n; r++) {
        look *l = &looks[r];
        *l = (look) { .pid = (int)json_integer_value(json_array_get(pids, (size_t)r)),
                      .step = -1,
                      .gpu = -1 };
        ls__activity a = ls__activity_of(l->pid);
        l->at = ls__wall_time();
        l->state = a.state;
        l->cpu_seconds = a.cpu_seconds;
        l->memory = memory_of(l->pid);
        l->gpu = gpu_of(gpus, l->pid);
        read_beat(folder ? folder : "", r, l);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Who holds the others up: by heartbeats, since everybody waits for a straggler at the same place. */
static void mark(row *rows, int n)
{
    double times[LS__DEVICES_MAX];
    int known = 0;
    int64_t furthest = -1;
    for (int r = 0; r < n; r++) {
        if (rows[r].step_seconds > 0) times[known++] = rows[r].step_seconds;
        if (rows[r].now.step > furthest) furthest = rows[r].now.step;
    }
    qsort(times, (size_t)known, sizeof *times, by_value);
    for (int r = 0; r < n; r++) {
        const look *l = &rows[r].now;
        bool slow = known > 2 && rows[r].step_seconds > slow_share * times[known / 2];
        bool behind = l->step >= 0 && furthest - l->step >= BEHIND_STEPS;
        bool late = l->beat_at > 0 && l->at - l->beat_at > late_seconds;
        rows[r].mark = l->state == '?' || l->state == 'Z'   ? "ended"
                       : l->state == 'T' || l->state == 't' ? "stopped"
                       : behind                             ? "behind"
                       : late                               ? "no heartbeat"
                       : slow                               ? "slow"
                                                            : "";
    }
}

static void make_rows(const look *before, const look *now, row *rows, int n)
{
    for (int r = 0; r < n; r++) {
        const look *a = &before[r], *b = &now[r];
        double seconds = b->at - a->at;
        bool same = a->pid == b->pid && seconds > 0;
        bool steps = same && a->step >= 0 && b->step > a->step && b->beat_at > a->beat_at;
        rows[r].now = *b;
        rows[r].cpus = same ? (b->cpu_seconds - a->cpu_seconds) / seconds : -1;
        rows[r].step_seconds = steps ? (b->beat_at - a->beat_at) / (double)(b->step - a->step) : -1;
    }
    mark(rows, n);
}

static json_t *number(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

static json_t *rows_json(const ls__run_state *run, const row *rows, int n)
{
    json_t *ranks = json_array();
    for (int r = 0; r < n; r++) {
        const row *w = &rows[r];
        const look *l = &w->now;
        char state[2] = { l->state, '\0' };
        json_array_append_new(
            ranks, json_pack("{s:i,s:i,s:s,s:o,s:I,s:o,s:o,s:o,s:o,s:s}", "rank", r, "pid", l->pid,
                             "state", state, "cpus", number(w->cpus >= 0, w->cpus), "memory",
                             (json_int_t)l->memory, "gpu_percent", number(l->gpu >= 0, l->gpu),
                             "heartbeat_age", number(l->beat_at > 0, l->at - l->beat_at), "step",
                             l->step >= 0 ? json_integer(l->step) : json_null(), "step_seconds",
                             number(w->step_seconds > 0, w->step_seconds), "mark", w->mark));
    }
    return json_pack("{s:s,s:s,s:s,s:o}", "schema", "lockstep.top/1", "run", run->name, "status",
                     run->status, "ranks", ranks);
}

static void print_number(const char *format, int width, bool known, double value)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    printf("  %*s", width, known ? text : "-");
}

static void print_rows(const ls__run_state *run, const row *rows, int n)
{
    printf("%s: %s, %d rank%s\n", run->name, run->status, n, n == 1 ? "" : "s");
    printf("%4s  %8s  %5s  %6s  %10s  %5s  %9s  %8s  %9s\n", "rank", "process", "state", "CPU",
           "memory", "GPU", "heartbeat", "step", "step time");
    for (int r = 0; r < n; r++) {
        const row *w = &rows[r];
        const look *l = &w->now;
        char memory[32];
        ls_cli_bytes(l->memory, memory);
        printf("%4d  %8d  %5c", r, l->pid, l->state);
        print_number("%.0f %%", 6, w->cpus >= 0, w->cpus * 100);
        printf("  %10s", memory);
        print_number("%.0f %%", 5, l->gpu >= 0, l->gpu);
        print_number("%.1f s", 9, l->beat_at > 0, l->at - l->beat_at);
        print_number("%.0f", 8, l->step >= 0, (double)l->step);
        print_number("%.3f s", 9, w->step_seconds > 0, w->step_seconds);
        printf("%s%s\n", w->mark[0] ? "  " : "", w->mark);
    }
}

/* One table; *live: whether the run goes on. */
static ls_status show(const char *runs_dir, const char *name, bool json, bool redraw,
                      look *looks[2], row *rows, ls__gpus *gpus, bool *live)
{
    ls__run_state run;
    LS_TRY(ls__run_state_read(runs_dir, name, &run));
    json_t *state = ls__launch_state_read(run.folder);
    int n = (int)json_array_size(json_object_get(state, "ranks"));
    ls_status status = LS_OK;
    *live = run.live;
    if (n > LS__DEVICES_MAX) n = LS__DEVICES_MAX;
    if (!run.live || !state)
        status = ls_fail(LS_ERR_CONFIG, "run \"%s\" is not running under lockstep run (%s)",
                         run.name, run.status);
    if (status == LS_OK) {
        look_at(state, gpus, looks[0], n);
        ls__sleep_ms(MOMENT_MS);
        if (gpus->count > 0) ls__gpus_discover(NULL, gpus);
        look_at(state, gpus, looks[1], n);
        make_rows(looks[0], looks[1], rows, n);
        if (redraw) fputs("\033[H\033[J", stdout);
        if (json)
            status = ls_cli_print_json(rows_json(&run, rows, n));
        else
            print_rows(&run, rows, n);
        if (status == LS_OK) status = ls_cli_flush();
    }
    json_decref(state);
    ls__run_state_free(&run);
    return status;
}

static ls_status top(const char *runs_dir, const char *name, bool json, bool once)
{
    bool redraw = !json && !once && isatty(STDOUT_FILENO), live = true;
    look *looks[2] = { ls__alloc(LS__DEVICES_MAX, sizeof(look)),
                       ls__alloc(LS__DEVICES_MAX, sizeof(look)) };
    row *rows = ls__alloc(LS__DEVICES_MAX, sizeof *rows);
    ls__gpus *gpus = ls__alloc(1, sizeof *gpus);
    ls_status status = looks[0] && looks[1] && rows && gpus ? LS_OK : LS_ERR_MEMORY;
    if (status == LS_OK) ls__gpus_discover(NULL, gpus);
    bool shown = false;
    do {
        if (status == LS_OK) status = show(runs_dir, name, json, redraw, looks, rows, gpus, &live);
        if (status != LS_OK && shown && !live) status = LS_OK; /* it has ended while we looked */
        shown = true;
        if (redraw && live) ls__sleep_ms(MOMENT_MS);
    } while (status == LS_OK && redraw && live);
    ls__free(gpus);
    ls__free(rows);
    ls__free(looks[0]);
    ls__free(looks[1]);
    return status;
}

int ls_cli_top(int argc, char **argv)
{
    static const char *const only[] = { "runs-dir", "log-level", "json", "help", "version", NULL };
    bool once = false;
    const ls_flag flags[] = {
        { "once", 'b', &once, "one table, also on a terminal" },
        { 0 },
    };
    const ls_world_options program = {
        .summary = "Shows what each rank of a run is doing: state, CPUs, memory, GPU, heartbeat, "
                   "step. On a terminal again and again.",
        .arguments = "RUN",
        .flags = flags,
    };
    const char *runs_dir = "runs";
    ls__options *o = ls_cli_options(&argc, &argv, &program, only);
    ls__options_string(o, "runs-dir", &runs_dir);
    ls_status status = argc == 2 ? top(runs_dir, argv[1], ls__options_wants(o, "json"), once)
                                 : ls_fail(LS_ERR_CONFIG, "which run? lockstep top RUN");
    return ls_cli_end(o, status);
}
