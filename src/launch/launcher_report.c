/* How the end is told: the report in its files, the failed rank's last lines and a sentence on stderr. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launch_state.h"
#include "launch/launcher_job.h"

enum { TERMINATION_LOG_MAX = 4096 }; /* bytes that Kubernetes keeps */

static const char termination_log[] = "/dev/termination-log";

ls__report ls__job_report_of(ls__launcher_job *j)
{
    int local = ls__job_local(j, j->end.rank);
    int64_t step = local >= 0 ? j->ranks[local].step : j->best_step;
    ls__report report = { .end = j->end,
                          .size = j->plan->place.world_size,
                          .restarts = j->restarts,
                          .step = step,
                          .checkpoint = "",
                          .stacks = j->stacks,
                          .nstacks = j->nstacks,
                          .seconds = ls__now() - j->plan->started };
    if (j->nodes && j->end_host[0]) report.host = j->end_host;
    if (j->end.rank >= 0 && (local >= 0 || ls__nodes_decides(j)))
        report.tail =
            ls__output_tail(j->output, ls__nodes_decides(j) ? j->end.rank : local, &report.ntail);
    return report;
}

/* A failed rank's last lines, unless they are what stands above anyhow. */
static void print_tail(const ls__launcher_job *j, const ls__report *report)
{
    int rank = report->end.rank;
    bool seen = j->plan->place.world_size == 1 && (j->plan->shown[0] & LS__SHOW_STDERR);
    if (rank < 0 || seen) return;
    int unseen = 0;
    for (int i = 0; i < report->ntail; i++) unseen += !ls__output_tail_seen(j->output, rank, i);
    if (unseen == 0) return;
    ls__log(LS__LOG_ERROR, "the last lines of rank %d%s:", rank,
            unseen < report->ntail ? " that are not shown above" : "");
    for (int i = 0; i < report->ntail; i++)
        if (!ls__output_tail_seen(j->output, rank, i))
            dprintf(STDERR_FILENO, "    %s\n", report->tail[i]);
}

/* The oldest of the last lines give way where there is little room. */
static ls__report shortened(const ls__report *report)
{
    ls__report shorter = *report;
    shorter.nstacks = 0;
    while (shorter.ntail > 0) {
        json_t *document = ls__report_json(&shorter);
        char *line = document ? ls__json_line(document) : NULL;
        bool fits = !line || strlen(line) <= TERMINATION_LOG_MAX;
        ls__free(line);
        json_decref(document);
        if (fits) break;
        shorter.tail++;
        shorter.ntail--;
    }
    return shorter;
}

static void write_report(const ls__launcher_job *j, const ls__report *report,
                         char where[LS_PATH_MAX])
{
    const char *paths[2] = { j->plan->report, "" };
    char in_folder[LS_PATH_MAX], folder[LS_PATH_MAX];
    where[0] = '\0';
    if (j->plan->name[0] && ls__path_join(folder, j->plan->runs_dir, j->plan->name) == LS_OK &&
        ls__path_join(in_folder, folder, "report.json") == LS_OK)
        paths[1] = in_folder;
    for (int i = 0; i < 2; i++) {
        if (!paths[i][0]) continue;
        ls__report written = strcmp(paths[i], termination_log) == 0 ? shortened(report) : *report;
        if (ls__report_write(&written, paths[i]) != LS_OK)
            ls__log(LS__LOG_WARN, "the report could not be written: %s", ls_error_text());
        else if (!where[0])
            snprintf(where, LS_PATH_MAX, "%s", paths[i]);
    }
}

static const char *status_of(const ls__end *end)
{
    return end->kind == LS__END_FINISHED  ? "finished"
           : end->kind == LS__END_STOPPED ? "stopped"
                                          : "failed";
}

void ls__job_write_state(ls__launcher_job *j, const char *status)
{
    const ls__launcher_plan *plan = j->plan;
    char folder[LS_PATH_MAX], logs[LS_PATH_MAX], since[32];
    if (!plan->name[0] || ls__path_join(folder, plan->runs_dir, plan->name) != LS_OK) return;
    bool running = strcmp(status, "running") == 0;
    json_t *argv = json_array(), *pids = json_array();
    for (char **word = plan->argv; *word; word++) json_array_append_new(argv, json_string(*word));
    for (int r = 0; running && r < plan->size; r++)
        json_array_append_new(pids, json_integer(j->crew.children[r].pid));
    snprintf(logs, sizeof logs, "%s", plan->log_dir);
    if (!logs[0] && ls__path_join(logs, folder, "logs") != LS_OK) logs[0] = '\0';
    ls__wall_text(ls__wall_time() - (ls__now() - plan->started), since);
    json_t *document = json_pack(
        "{s:s,s:s,s:s,s:s,s:i,s:o,s:i,s:o,s:i,s:s,s:s,s:s,s:o}", "schema", "lockstep.launch-state/1",
        "name", plan->name, "status", status, "host", plan->host, "pid",
        (int)(j->guardian_fd >= 0 ? plan->pid : getpid()), "argv", argv, "world_size",
        plan->place.world_size, "ranks", pids, "restarts", j->restarts, "started", since, "log_dir",
        logs, "job_folder", j->folder, "exit_code", running ? json_null() : json_integer(ls__report_exit_code(&j->end)));
    if (ls__launch_state_write(folder, document) != LS_OK)
        ls__log(LS__LOG_WARN, "%s", ls_error_text());
}

int ls__job_tell_end(ls__launcher_job *j)
{
    char where[LS_PATH_MAX];
    ls__report report = ls__job_report_of(j);
    int code = ls__report_exit_code(&report.end);
    write_report(j, &report, where);
    ls__events_write(j, "end", ls__report_json(&report));
    ls__job_write_state(j, status_of(&j->end));
    if (report.end.kind != LS__END_FINISHED) {
        if (ls__nodes_decides(j)) print_tail(j, &report);
        bool told = j->plan->nodes.by_agent && j->end.rank >= 0; /* by who started the agent */
        if (!told) ls__report_print(&report, where);
    }
    if (j->plan->json) ls__report_show(&report);
    return code;
}
