/* lockstep runs: the runs of a folder, newest first. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "launch/launch_state.h"

typedef struct list {
    int count, room;
    ls__run_state *runs;
} list;

static ls_status add(list *l, const ls__run_state *run)
{
    if (l->count == l->room) {
        int room = l->room > 0 ? l->room * 2 : 32;
        ls__run_state *runs = ls__realloc(l->runs, (size_t)room, sizeof *runs);
        if (!runs) return LS_ERR_MEMORY;
        l->runs = runs;
        l->room = room;
    }
    l->runs[l->count++] = *run;
    return LS_OK;
}

static int newest_first(const void *a, const void *b)
{
    double x = ((const ls__run_state *)a)->time, y = ((const ls__run_state *)b)->time;
    return (x < y) - (x > y);
}

static ls_status find_runs(const char *runs_dir, bool live, list *out)
{
    DIR *folder = opendir(runs_dir);
    if (!folder) return LS_OK; /* nothing was run here */
    ls_status status = LS_OK;
    for (const struct dirent *e; status == LS_OK && (e = readdir(folder));) {
        ls__run_state run;
        if (e->d_name[0] == '.' || ls__run_state_read(runs_dir, e->d_name, &run) != LS_OK) continue;
        if (live && !run.live) {
            ls__run_state_free(&run);
            continue;
        }
        status = add(out, &run);
        if (status != LS_OK) ls__run_state_free(&run);
    }
    closedir(folder);
    if (out->count > 0) qsort(out->runs, (size_t)out->count, sizeof *out->runs, newest_first);
    return status;
}

/* "3 min ago" */
static void age_text(double seconds, char out[32])
{
    if (seconds < 120)
        snprintf(out, 32, "%.0f s ago", seconds < 0 ? 0 : seconds);
    else if (seconds < 7200)
        snprintf(out, 32, "%.0f min ago", seconds / 60);
    else if (seconds < 48 * 3600.0)
        snprintf(out, 32, "%.0f h ago", seconds / 3600);
    else
        snprintf(out, 32, "%.0f d ago", seconds / 86400);
}

static void print_table(const list *l, const char *runs_dir)
{
    if (l->count == 0) ls__log(LS__LOG_INFO, "no runs in %s (--runs-dir)", runs_dir);
    if (l->count == 0) return;
    printf("%-24s %-9s %5s %10s  %-11s %s\n", "run", "status", "ranks", "step", "changed",
           "command");
    for (int i = 0; i < l->count; i++) {
        const ls__run_state *run = &l->runs[i];
        char age[32], step[24] = "", ranks[16] = "";
        age_text(ls__wall_time() - run->time, age);
        if (run->step >= 0) snprintf(step, sizeof step, "%lld", (long long)run->step);
        if (run->world_size > 0) snprintf(ranks, sizeof ranks, "%d", run->world_size);
        printf("%-24s %-9s %5s %10s  %-11s %.60s\n", run->name, run->status, ranks, step, age,
               run->command ? run->command : "");
    }
}

static json_t *document(const list *l)
{
    json_t *runs = json_array();
    for (int i = 0; i < l->count; i++) {
        const ls__run_state *run = &l->runs[i];
        char time[32];
        ls__wall_text(run->time, time);
        json_array_append_new(
            runs,
            json_pack("{s:s,s:s,s:s,s:b,s:o,s:o,s:s,s:s?}", "name", run->name, "folder",
                      run->folder, "status", run->status, "live", (int)run->live, "world_size",
                      run->world_size > 0 ? json_integer(run->world_size) : json_null(), "step",
                      run->step >= 0 ? json_integer(run->step) : json_null(), "changed", time,
                      "command", run->command));
    }
    return json_pack("{s:s,s:o}", "schema", "lockstep.runs/1", "runs", runs);
}

int ls_cli_runs(int argc, char **argv)
{
    static const char *const only[] = { "runs-dir", "log-level", "json", "help", "version", NULL };
    bool live = false;
    const ls_flag flags[] = { { "live", 'b', &live, "only those that run now" }, { 0 } };
    const ls_world_options program = {
        .summary = "Lists the runs of this folder, newest first.",
        .flags = flags,
    };
    const char *runs_dir = "runs";
    list l = { 0 };
    ls__options *o = ls_cli_options(&argc, &argv, &program, only);
    ls__options_string(o, "runs-dir", &runs_dir);
    ls_status status = find_runs(runs_dir, live, &l);
    if (status == LS_OK && ls__options_wants(o, "json")) {
        status = ls_cli_print_json(document(&l));
    } else if (status == LS_OK) {
        print_table(&l, runs_dir);
        status = ls_cli_flush();
    }
    for (int i = 0; i < l.count; i++) ls__run_state_free(&l.runs[i]);
    ls__free(l.runs);
    return ls_cli_end(o, status);
}
