/* Watches the ranks of programs that are not ours. The rule for every end: the first failure counts,
 * is told once, and its code is the job's; what fails after we have begun to end the others is our
 * doing. One thread, no polling. Expected: 1 to 1,024 ranks that run for seconds to weeks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher.h"
#include "world/crew.h"
#include "world/oom.h"
#include "world/output.h"
#include "world/report.h"

static const double failure_grace = 5.0; /* for the others, after SIGTERM, when one rank failed */
static const double one_request = 1.0;   /* signals within so many seconds are one request */
static const double give_up_after = 5.0; /* seconds that a killed process may take to go */
static const double drain_seconds = 5.0; /* for a slow reader of a job that failed */

enum { TAG_GUARDIAN = LS__CREW_TAGS, TAG_OUTPUT };

typedef enum phase {
    RUNNING,
    FAILING,  /* a rank failed: the others were asked to end */
    STOPPING, /* a signal asked for the end */
    KILLED    /* everybody was sent SIGKILL */
} phase;

typedef struct launcher_job {
    const ls__launcher_plan *plan;
    const char *folder;
    int guardian_fd, port_fd, port;
    ls__crew crew;
    ls__output *output;
    int restarts;

    phase phase;     /* of the current start */
    double deadline; /* of the phase, ls__now() scale; negative = none */
    bool orphaned;   /* the guardian is gone */
    int stop_signal;
    double stop_at;
    int stop_code; /* of the first rank that ended with one after a signal */
    bool failed;   /* end says how */
    ls__end end;
    int64_t oom_kills; /* before the ranks started */
} launcher_job;

/* --- starting --- */

static ls_status start_rank(launcher_job *j, int rank, int *exit_code)
{
    const ls__launcher_plan *plan = j->plan;
    ls__launcher_start start = { .restarts = j->restarts, .port = j->port, .folder = j->folder };
    ls__rank_variables variables;
    cpu_set_t cpus;
    int out, err;
    LS_TRY(ls__rank_variables_make(plan, &start, rank, &variables));
    ls__device_cpus(&plan->devices, &plan->cpus, rank, &cpus);
    ls_status status =
        ls__crew_start(&j->crew, rank,
                       &(ls__child_options) { .path = plan->path,
                                              .argv = plan->argv,
                                              .envp = variables.envp,
                                              .cpus = plan->devices.pin ? &cpus : NULL,
                                              .mask = &j->crew.mask_before },
                       &out, &err);
    ls__rank_variables_free(&variables);
    *exit_code = j->crew.children[rank].exit_code;
    return status == LS_OK ? ls__output_attach(j->output, rank, out, err) : status;
}

static void remove_error_files(const launcher_job *j)
{
    char path[LS_PATH_MAX];
    for (int r = 0; r < j->plan->size; r++) {
        ls__rank_error_path(j->folder, r, path);
        unlink(path);
    }
}

/* --- ending --- */

static void kill_all(launcher_job *j)
{
    ls__crew_signal(&j->crew, SIGKILL);
    j->phase = KILLED;
    j->deadline = ls__now() + give_up_after;
}

static double deadline_in(double seconds)
{
    return seconds < 0 ? -1 : ls__now() + seconds;
}

/* The others get a chance to leave; what they do with it is no failure of theirs. */
static void fail(launcher_job *j, const ls__end *end)
{
    if (j->failed) return;
    j->failed = true;
    j->end = *end;
    if (j->phase == KILLED) return;
    double grace = j->plan->grace;
    ls__crew_signal(&j->crew, SIGTERM);
    ls__crew_signal(&j->crew, SIGCONT); /* a stopped process would never hear of it */
    j->phase = FAILING;
    j->deadline = deadline_in(grace >= 0 && grace < failure_grace ? grace : failure_grace);
}

/* SIGTERM and its like: relayed to every rank's group, and a time limit. */
static void request_stop(launcher_job *j, int number)
{
    double now = ls__now();
    char name[32];
    ls__signal_name(number, name);
    if (j->phase == RUNNING) {
        j->phase = STOPPING;
        j->stop_signal = number;
        j->stop_at = now;
        j->deadline = deadline_in(j->plan->grace);
        ls__crew_signal(&j->crew, number);
        ls__log(LS__LOG_INFO, "%s was passed on to every rank%s", name,
                number == SIGINT ? "; once more to end them now" : "");
    } else if (j->phase == STOPPING && now - j->stop_at > one_request) {
        j->failed = true;
        j->end = (ls__end) { .kind = LS__END_SECOND, .rank = -1, .signal = number };
        kill_all(j);
    }
}

/* How a rank ended, seen by itself. */
static ls__end end_of(launcher_job *j, int rank)
{
    const ls__child *child = &j->crew.children[rank];
    ls__end end = { .kind = child->signal ? LS__END_SIGNAL : LS__END_EXIT,
                    .rank = rank,
                    .pid = (int)child->pid,
                    .exit_code = child->exit_code,
                    .signal = child->signal,
                    .foreign = true };
    end.out_of_memory = child->signal == SIGKILL && j->phase != KILLED && j->oom_kills >= 0 &&
                        ls__oom_kills("") > j->oom_kills;
    if (!child->signal) ls__rank_error_read(j->folder, rank, end.said, sizeof end.said);
    return end;
}

static bool asked_for(const launcher_job *j, int signal)
{
    return signal == j->stop_signal || signal == SIGTERM;
}

static void rank_ended(launcher_job *j, int rank)
{
    const ls__child *child = &j->crew.children[rank];
    if (!ls__crew_ended(&j->crew, rank)) return;
    int code = child->signal ? 128 + child->signal : child->exit_code;
    if (code == 0 || j->phase == FAILING || j->phase == KILLED) return;
    if (j->phase == STOPPING && (!child->signal || asked_for(j, child->signal))) {
        if (j->stop_code == 0) j->stop_code = code;
        return;
    }
    ls__end end = end_of(j, rank);
    fail(j, &end);
}

static void deadline_passed(launcher_job *j)
{
    if (j->phase == STOPPING) {
        j->failed = true;
        j->end = (ls__end) { .kind = LS__END_GRACE_OVER,
                             .rank = -1,
                             .signal = j->stop_signal,
                             .grace = j->plan->grace };
    }
    kill_all(j);
}

/* All ranks are gone and none has failed. */
static void conclude(launcher_job *j)
{
    if (j->failed) return;
    j->end = (ls__end) { .kind = LS__END_FINISHED, .rank = -1, .foreign = true };
    if (j->stop_code == 0) return;
    j->end.kind = LS__END_STOPPED;
    j->end.signal = j->stop_signal;
    j->end.exit_code = j->stop_code;
}

/* --- watching --- */

static void take_signal(launcher_job *j, int number)
{
    switch (number) {
    case SIGTSTP:
        ls__crew_signal(&j->crew, SIGTSTP);
        raise(SIGSTOP); /* here until somebody continues us; SIGCONT follows */
        break;
    case SIGCONT:
    case SIGUSR1:
    case SIGUSR2:
        ls__crew_signal(&j->crew, number);
        break;
    case SIGCHLD:
        ls__crew_reap(&j->crew);
        break;
    default:
        request_stop(j, number);
    }
}

static void read_signals(launcher_job *j)
{
    struct signalfd_siginfo info;
    while (read(j->crew.signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(j, (int)info.ssi_signo);
}

static void guardian_died(launcher_job *j)
{
    j->orphaned = true;
    epoll_ctl(j->crew.epoll_fd, EPOLL_CTL_DEL, j->guardian_fd, NULL);
    if (!j->failed) {
        j->failed = true;
        j->end = (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_PEER };
        snprintf(j->end.said, sizeof j->end.said,
                 "the process that was started as lockstep run was killed");
    }
    kill_all(j);
}

static int next_wait(const launcher_job *j)
{
    if (j->phase == RUNNING || j->deadline < 0) return -1;
    double left = j->deadline - ls__now();
    return left <= 0 ? 0 : left > 3600 ? 3600000 : (int)(left * 1000) + 1;
}

static void handle(launcher_job *j, uint64_t tag)
{
    if (tag == LS__CREW_SIGNALS)
        read_signals(j);
    else if (tag == TAG_GUARDIAN)
        guardian_died(j);
    else if (tag == TAG_OUTPUT)
        ls__output_serve(j->output);
    else
        rank_ended(j, (int)tag);
}

static void watch_ranks(launcher_job *j)
{
    while (j->crew.alive > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(j->crew.epoll_fd, events, 64, next_wait(j));
        for (int i = 0; i < n; i++) handle(j, events[i].data.u64);
        if (j->phase == RUNNING || j->deadline < 0 || ls__now() < j->deadline) continue;
        if (j->phase == KILLED) return; /* what is left cannot be killed */
        deadline_passed(j);
    }
}

static void run_once(launcher_job *j)
{
    int exit_code = 0;
    j->phase = RUNNING;
    j->failed = false;
    j->stop_signal = j->stop_code = 0;
    j->deadline = -1;
    j->oom_kills = ls__oom_kills("");
    ls__crew_reset(&j->crew);
    remove_error_files(j);
    ls_status status = LS_OK;
    for (int r = 0; r < j->plan->size && status == LS_OK; r++)
        status = start_rank(j, r, &exit_code);
    if (status != LS_OK) {
        j->failed = true;
        j->end = (ls__end) {
            .kind = LS__END_STATUS, .rank = -1, .status = status, .exit_code = exit_code
        };
        snprintf(j->end.said, sizeof j->end.said, "%s", ls_error_text());
        kill_all(j);
    }
    watch_ranks(j);
    ls__crew_clear(&j->crew, give_up_after);
    conclude(j);
}

/* --- the report --- */

static ls__report report_of(launcher_job *j)
{
    ls__report report = { .end = j->end,
                          .size = j->plan->size,
                          .restarts = j->restarts,
                          .step = -1,
                          .checkpoint = "",
                          .seconds = ls__now() - j->plan->started };
    if (j->end.rank >= 0) report.tail = ls__output_tail(j->output, j->end.rank, &report.ntail);
    return report;
}

/* A failed rank's last lines, unless they are what stands above anyhow. */
static void print_tail(const launcher_job *j, const ls__report *report)
{
    int rank = report->end.rank;
    bool seen = j->plan->size == 1 && (j->plan->shown[0] & LS__SHOW_STDERR);
    if (rank < 0 || report->ntail == 0 || seen) return;
    ls__log(LS__LOG_ERROR, "the last lines of rank %d:", rank);
    for (int i = 0; i < report->ntail; i++) dprintf(STDERR_FILENO, "    %s\n", report->tail[i]);
}

static void write_report(const launcher_job *j, const ls__report *report, char where[LS_PATH_MAX])
{
    const char *paths[2] = { j->plan->report, "" };
    char in_folder[LS_PATH_MAX], folder[LS_PATH_MAX];
    where[0] = '\0';
    if (j->plan->name[0] && ls__path_join(folder, j->plan->runs_dir, j->plan->name) == LS_OK &&
        ls__path_join(in_folder, folder, "report.json") == LS_OK)
        paths[1] = in_folder;
    for (int i = 0; i < 2; i++) {
        if (!paths[i][0]) continue;
        if (ls__report_write(report, paths[i]) != LS_OK)
            ls__log(LS__LOG_WARN, "the report could not be written: %s", ls_error_text());
        else if (!where[0])
            snprintf(where, LS_PATH_MAX, "%s", paths[i]);
    }
}

static int tell_the_end(launcher_job *j)
{
    char where[LS_PATH_MAX];
    ls__report report = report_of(j);
    int code = ls__report_exit_code(&report.end);
    write_report(j, &report, where);
    if (report.end.kind != LS__END_FINISHED) {
        print_tail(j, &report);
        ls__report_print(&report, where);
    }
    if (j->plan->json) ls__report_show(&report);
    return code;
}

static bool may_restart(const launcher_job *j)
{
    static const int final[] = { 2, 126, 127 }; /* the same command line would fail the same way */
    int code = ls__report_exit_code(&j->end);
    if (!j->failed || j->orphaned || j->stop_signal || j->restarts >= j->plan->max_restarts)
        return false;
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
        if (code == final[i]) return false;
    return true;
}

static void run_job(launcher_job *j)
{
    for (;;) {
        run_once(j);
        if (!may_restart(j)) return;
        ls__output_drain(j->output, 0, -1);
        j->restarts++;
        ls__report report = report_of(j);
        char text[LS__REPORT_TEXT];
        ls__report_text(&report, text);
        ls__log(LS__LOG_WARN, "%s; starting again (%d of %d)", text, j->restarts,
                j->plan->max_restarts);
        ls__output_restart(j->output);
    }
}

static ls_status prepare(launcher_job *j)
{
    static const int signals[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                   SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD };
    const ls__launcher_plan *plan = j->plan;
    char folder[LS_PATH_MAX];
    j->port = plan->master_port;
    LS_TRY(ls__crew_begin(&j->crew, plan->size, signals, sizeof signals / sizeof signals[0]));
    LS_TRY(ls__master_port_hold(&j->port, &j->port_fd));
    LS_TRY(ls__output_create(plan->size, &j->output));
    ls__output_set_shown(j->output, plan->shown);
    if (plan->name[0] && !plan->no_logs) {
        LS_TRY(ls__path_join(folder, plan->runs_dir, plan->name));
        ls__output_set_folder(j->output, folder);
    }
    if (j->guardian_fd >= 0) LS_TRY(ls__crew_watch(&j->crew, j->guardian_fd, TAG_GUARDIAN));
    return ls__crew_watch(&j->crew, ls__output_fd(j->output), TAG_OUTPUT);
}

static void tell_start(const launcher_job *j)
{
    const ls__launcher_plan *plan = j->plan;
    const char *s = plan->size == 1 ? "" : "s";
    ls__log(LS__LOG_INFO, "1 node x %d process%s = %d rank%s: %s; rank 0 at %s:%d%s%s", plan->size,
            plan->size == 1 ? "" : "es", plan->size, s, plan->devices.text, plan->master_addr,
            j->port, plan->name[0] ? "; run " : "", plan->name);
}

int ls__launcher_supervise(const ls__launcher_plan *plan, int guardian_fd, const char *folder)
{
    launcher_job j = {
        .plan = plan, .folder = folder, .guardian_fd = guardian_fd, .port_fd = -1, .end.rank = -1
    };
    j.crew.epoll_fd = j.crew.signal_fd = j.crew.null_fd = -1;
    ls_status status = prepare(&j);
    int code = ls__exit_code(status);
    if (status == LS_OK) {
        tell_start(&j);
        run_job(&j);
        bool well = ls__report_exit_code(&j.end) == 0;
        read_signals(&j);
        ls__output_drain(j.output, well ? -1 : drain_seconds, j.crew.signal_fd);
        int error = ls__output_error(j.output);
        if (well && error) {
            j.end = (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_IO };
            snprintf(j.end.said, sizeof j.end.said, LS__STDOUT_LOST, strerror(error));
        }
        code = tell_the_end(&j);
    } else {
        ls__log(LS__LOG_ERROR, "%s", ls_error_text());
    }
    ls__output_destroy(j.output);
    if (j.port_fd >= 0) close(j.port_fd);
    if (guardian_fd >= 0) close(guardian_fd);
    ls__crew_end(&j.crew);
    return code;
}
