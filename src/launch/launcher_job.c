/* Watches the ranks of programs that are not ours: starts them, waits for what happens, and hands it to
 * the files that know what it means. One thread, and no polling but for signs of life. Expected: 1
 * to 1,024 ranks that run for seconds to weeks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"
#include "world/oom.h"

static const double give_up_after = 5.0; /* seconds that a killed process may take to go */
static const double drain_seconds = 5.0; /* for a slow reader of a job that failed */
static const int64_t log_limit = (int64_t)64
                                 << 20; /* bytes of a rank's log; the one before it is kept */

enum { TAG_GUARDIAN = LS__CREW_TAGS, TAG_OUTPUT, TAG_METRICS, TAG_NODES };

/* --- starting --- */

/* The first of several machines keeps everybody's output, the others their own. */
static int output_rank(const ls__launcher_job *j, int rank)
{
    return ls__nodes_decides(j) ? ls__job_rank(j, rank) : rank;
}

static ls_status start_rank(ls__launcher_job *j, int rank, int *exit_code)
{
    const ls__launcher_plan *plan = j->plan;
    ls__launcher_start start = { .restarts = j->restarts, .port = j->port, .folder = j->folder };
    ls__rank_variables variables;
    const ls__rank_place *place = &plan->places[rank];
    int out, err;
    LS_TRY(ls__rank_variables_make(plan, &start, rank, &variables));
    ls_status status =
        ls__crew_start(&j->crew, rank,
                       &(ls__child_options) { .path = plan->path,
                                              .argv = plan->argv,
                                              .envp = variables.envp,
                                              .cpus = place->bound ? &place->cpus : NULL,
                                              .memory_nodes = place->memory_nodes,
                                              .memory_bound = place->memory_bound,
                                              .mask = &j->crew.mask_before },
                       &out, &err);
    ls__rank_variables_free(&variables);
    *exit_code = j->crew.children[rank].exit_code;
    if (status == LS_OK) status = ls__output_attach(j->output, output_rank(j, rank), out, err);
    if (status == LS_OK)
        ls__events_write(j, "start",
                         json_pack("{s:i,s:i,s:i}", "rank", ls__job_rank(j, rank), "pid",
                                   (int)j->crew.children[rank].pid, "restart", j->restarts));
    return status;
}

static void remove_error_files(const ls__launcher_job *j)
{
    char path[LS_PATH_MAX];
    for (int r = 0; r < j->plan->size; r++) {
        ls__rank_error_path(j->folder, r, path);
        unlink(path);
    }
}

/* --- watching --- */

void ls__job_take_signal(ls__launcher_job *j, int number)
{
    if (number != SIGCHLD && !ls__nodes_signal(j, number)) return;
    switch (number) {
    case SIGTSTP:
        ls__crew_signal(&j->crew, SIGTSTP);
        /* Here until somebody continues us; SIGCONT follows. Other machines would miss us. */
        if (!j->nodes) raise(SIGSTOP);
        break;
    case SIGCONT:
    case SIGUSR1:
    case SIGUSR2:
        ls__crew_signal(&j->crew, number);
        break;
    case SIGCHLD:
        if (j->owed.count > 0) ls__stack_release(&j->owed);
        ls__crew_reap(&j->crew);
        break;
    default:
        ls__job_request_end(j, number);
    }
}

/* Others pass on what they get and act when the first one says so. */
static void take_own_signal(ls__launcher_job *j, int number)
{
    if (number == SIGCHLD || ls__nodes_decides(j) || !ls__nodes_pass_on(j, number))
        ls__job_take_signal(j, number);
}

static void read_signals(ls__launcher_job *j)
{
    struct signalfd_siginfo info;
    while (read(j->crew.signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        take_own_signal(j, (int)info.ssi_signo);
}

static double earlier(double a, double b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

/* Milliseconds until something is due; -1 = nothing is. */
static int next_wait(const ls__launcher_job *j)
{
    double at = j->deadline;
    if (j->phase == LS__JOB_RUNNING)
        at = earlier(at, earlier(ls__lives_due(j), ls__injection_due(j)));
    at = earlier(at, ls__nodes_due(j));
    if (at < 0) return -1;
    double left = at - ls__now();
    return left <= 0 ? 0 : left > 3600 ? 3600000 : (int)(left * 1000) + 1;
}

static void handle(ls__launcher_job *j, uint64_t tag)
{
    if (tag == LS__CREW_SIGNALS) {
        read_signals(j);
    } else if (tag == TAG_GUARDIAN) {
        epoll_ctl(j->crew.epoll_fd, EPOLL_CTL_DEL, j->guardian_fd, NULL);
        ls__job_guardian_died(j);
    } else if (tag == TAG_OUTPUT) {
        ls__output_serve(j->output);
    } else if (tag == TAG_METRICS) {
        ls__foreign_metrics_read(j);
    } else if (tag == TAG_NODES) {
        ls__nodes_serve(j);
    } else if (ls__crew_ended(&j->crew, (int)tag)) {
        ls__job_rank_ended(j, (int)tag);
    }
}

static bool is_due(double at)
{
    return at >= 0 && ls__now() >= at;
}

/* Waits once and acts on all that has happened. */
static void step(ls__launcher_job *j)
{
    struct epoll_event events[64];
    int n = epoll_wait(j->crew.epoll_fd, events, 64, next_wait(j));
    for (int i = 0; i < n; i++) handle(j, events[i].data.u64);
    if (is_due(ls__nodes_due(j))) ls__nodes_serve(j);
    if (j->phase == LS__JOB_RUNNING && is_due(ls__injection_due(j))) ls__injection_fire(j);
    if (j->phase == LS__JOB_RUNNING && is_due(ls__lives_due(j))) ls__lives_check(j);
}

static void watch_ranks(ls__launcher_job *j)
{
    while (j->crew.alive > 0 || ls__nodes_busy(j)) {
        step(j);
        if (!is_due(j->deadline)) continue;
        if (j->phase == LS__JOB_KILLED) return; /* what is left cannot be killed */
        ls__job_deadline_passed(j);
    }
}

/* One start of all ranks, until no process of it is left. */
static void run_once(ls__launcher_job *j)
{
    int exit_code = 0;
    j->phase = LS__JOB_RUNNING;
    j->deadline = -1;
    j->failed = false;
    j->nfailures = 0;
    j->oom_kills = ls__oom_kills("");
    ls__crew_reset(&j->crew);
    remove_error_files(j);
    ls_status status = ls__lives_begin(j);
    for (int r = 0; r < j->plan->size && status == LS_OK; r++)
        status = start_rank(j, r, &exit_code);
    if (status != LS_OK) {
        ls__end end = {
            .kind = LS__END_STATUS, .rank = -1, .status = status, .exit_code = exit_code
        };
        snprintf(end.said, sizeof end.said, "%s", ls_error_text());
        ls__job_ended_by(j, &end);
        ls__job_kill(j);
    }
    if (status == LS_OK) ls__job_write_state(j, "running");
    watch_ranks(j);
    ls__crew_clear(&j->crew, give_up_after);
    ls__lives_read_beats(j);
    ls__foreign_metrics_read(j);
    if (!ls__nodes_decides(j)) ls__output_drain(j->output, 0, -1);
    ls__job_close(j);
}

/* --- several machines --- */

static double limit_of(const ls__launcher_job *j)
{
    return j->plan->nodes.timeout < 0 ? -1 : ls__now() + j->plan->nodes.timeout;
}

/* Until all are there, or this one has its place, or it is over. */
static ls_status meet(ls__launcher_job *j)
{
    bool ready = false;
    ls_status status = LS_OK;
    if (!j->nodes) return LS_OK;
    j->phase = LS__JOB_WAITING;
    j->deadline = limit_of(j);
    ls__nodes_wait_told(j);
    for (;;) {
        status = ls__nodes_ready(j, &ready);
        if (status != LS_OK || ready || j->stop_signal || j->orphaned) break;
        if (is_due(j->deadline)) {
            status = ls__nodes_late(j);
            break;
        }
        step(j);
    }
    return status == LS_OK && ready ? ls__nodes_start(j) : status;
}

/* The first one of several decides what comes after this start. */
static bool await_decision(ls__launcher_job *j)
{
    bool placed = false;
    ls__nodes_tell_ended(j);
    j->phase = LS__JOB_WAITING;
    j->deadline = -1;
    for (;;) {
        ls__nodes_await_first(j);
        if (ls__nodes_over(j) || j->orphaned) break;
        if (ls__nodes_ready(j, &placed) != LS_OK || placed) break;
        step(j);
    }
    if (!placed || ls__nodes_start(j) != LS_OK) return false;
    ls__log(LS__LOG_INFO, "starting again (%d of %d)", j->restarts, j->plan->max_restarts);
    j->best_step = -1;
    return true;
}

/* Whoever was lost may come back before ranks start again. */
static bool meet_again(ls__launcher_job *j)
{
    if (!j->nodes) return true;
    ls__nodes_call_back(j);
    ls_status status = meet(j);
    if (status == LS_OK) return !j->stop_signal && !j->orphaned;
    ls__log(LS__LOG_ERROR, "not started again: %s", ls_error_text());
    return false;
}

/* Between two starts; false = a signal came, or the guardian is gone. */
static bool wait_for_restart(ls__launcher_job *j)
{
    j->phase = LS__JOB_WAITING;
    j->deadline = ls__now() + j->delay;
    while (!is_due(j->deadline) && !j->stop_signal && !j->orphaned) step(j);
    return !j->stop_signal && !j->orphaned;
}

static void run_job(ls__launcher_job *j)
{
    for (;;) {
        run_once(j);
        if (!ls__nodes_decides(j)) {
            if (!await_decision(j)) return;
            ls__output_restart(j->output);
            ls__foreign_metrics_restart(j);
            continue;
        }
        if (!ls__job_may_restart(j)) return;
        ls__output_drain(j->output, 0, -1);
        ls__report report = ls__job_report_of(j);
        char text[LS__REPORT_TEXT], after[48] = "";
        ls__report_text(&report, text);
        if (j->delay > 0) snprintf(after, sizeof after, " in %g s", j->delay);
        ls__log(LS__LOG_WARN, "%s; starting again%s (%d of %d)", text, after, j->restarts + 1,
                j->plan->max_restarts);
        ls__events_write(
            j, "restart",
            json_pack("{s:i,s:f,s:s}", "count", j->restarts + 1, "delay", j->delay, "why", text));
        if (!wait_for_restart(j)) return;
        j->restarts++;
        if (!meet_again(j)) return;
        ls__output_restart(j->output);
        ls__foreign_metrics_restart(j);
    }
}

/* --- all of it --- */

static void on_line(void *user, int rank, int which, const char *text, size_t nbytes)
{
    ls__launcher_job *j = user;
    int local = ls__nodes_decides(j) ? ls__job_local(j, rank) : rank;
    if (local >= 0) ls__lives_line(j, local, text, nbytes);
    if (local >= 0) ls__nodes_tell_line(j, ls__job_rank(j, local), which, text, nbytes);
}

static ls_status open_output(ls__launcher_job *j)
{
    const ls__launcher_plan *plan = j->plan;
    char folder[LS_PATH_MAX], logs[LS_PATH_MAX] = "";
    ls__output_options options = { .shown = plan->shown,
                                   .fold = true,
                                   .drop = true,
                                   .log_limit = log_limit,
                                   .line = on_line,
                                   .user = j };
    bool all = ls__nodes_decides(j);
    if (all && plan->place.nodes > 1) options.host_of = ls__nodes_host_of;
    if (!all) options.first = plan->place.first_rank;
    int size = all ? plan->place.world_size : plan->size;
    LS_TRY(ls__nodes_plan_shown(j));
    options.shown = plan->shown;
    LS_TRY(ls__output_create(size, &options, &j->output));
    if (plan->log_dir[0]) {
        snprintf(logs, sizeof logs, "%s", plan->log_dir);
    } else if (plan->name[0] && !plan->no_logs && all) {
        LS_TRY(ls__path_join(folder, plan->runs_dir, plan->name));
        LS_TRY(ls__path_join(logs, folder, "logs"));
    }
    ls__output_set_logs(j->output, logs[0] ? logs : NULL);
    return ls__crew_watch(&j->crew, ls__output_fd(j->output), TAG_OUTPUT);
}

static ls_status prepare(ls__launcher_job *j)
{
    static const int signals[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                   SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD };
    const ls__launcher_plan *plan = j->plan;
    j->port = plan->master_port;
    j->ranks = ls__alloc((size_t)plan->size + 1, sizeof *j->ranks);
    j->failures = ls__alloc(LS__FAILURES_MAX, sizeof *j->failures);
    if (!j->ranks || !j->failures) return LS_ERR_MEMORY;
    LS_TRY(ls__crew_begin(&j->crew, plan->size, signals, sizeof signals / sizeof signals[0]));
    LS_TRY(ls__master_port_hold(&j->port, &j->port_fd));
    if (j->guardian_fd >= 0) LS_TRY(ls__crew_watch(&j->crew, j->guardian_fd, TAG_GUARDIAN));
    LS_TRY(ls__events_open(j));
    LS_TRY(ls__nodes_open(j));
    if (j->nodes) LS_TRY(ls__crew_watch(&j->crew, ls__nodes_fd(j), TAG_NODES));
    LS_TRY(meet(j));
    if (j->stop_signal || j->orphaned) return LS_OK;
    LS_TRY(open_output(j));
    LS_TRY(ls__foreign_metrics_open(j));
    return ls__crew_watch(&j->crew, j->metrics_fd, TAG_METRICS);
}

static void release(ls__launcher_job *j)
{
    ls__nodes_close(j);
    ls__output_destroy(j->output);
    ls__foreign_metrics_close(j);
    if (j->events_fd >= 0) close(j->events_fd);
    if (j->port_fd >= 0) close(j->port_fd);
    if (j->guardian_fd >= 0) close(j->guardian_fd);
    ls__crew_end(&j->crew);
    ls__free(j->ranks);
    ls__rank_stacks_free(j);
    ls__free(j->failures);
}

static void tell_start(ls__launcher_job *j)
{
    const ls__launcher_plan *plan = j->plan;
    int all = plan->place.world_size, nodes = plan->place.nodes;
    int first = plan->place.first_rank;
    char ranks[64];
    if (plan->size == 1)
        snprintf(ranks, sizeof ranks, "rank %d", first);
    else
        snprintf(ranks, sizeof ranks, "ranks %d-%d", first, first + plan->size - 1);
    if (!ls__nodes_decides(j))
        ls__log(LS__LOG_INFO, "node %d of %d: %s of %d: %s; led by %s; rank 0 at %s:%d",
                plan->place.node, nodes, ranks, all, plan->devices.text, plan->place.host,
                plan->place.master_addr, j->port);
    else if (j->nodes)
        ls__log(LS__LOG_INFO, "%d node%s, %d ranks; rank 0 at %s:%d%s%s", nodes,
                nodes == 1 ? "" : "s", all, plan->place.master_addr, j->port,
                plan->name[0] ? "; run " : "", plan->name);
    else
        ls__log(LS__LOG_INFO, "1 node x %d process%s = %d rank%s: %s; rank 0 at %s:%d%s%s",
                plan->size, plan->size == 1 ? "" : "es", plan->size, plan->size == 1 ? "" : "s",
                plan->devices.text, plan->master_addr, j->port, plan->name[0] ? "; run " : "",
                plan->name);
    ls__events_write(j, "plan", ls__launcher_json(plan));
}

/* Results are waited for as a lone program would wait for their reader; a signal ends that. */
static void finish_output(ls__launcher_job *j)
{
    bool well = ls__report_exit_code(&j->end) == 0;
    read_signals(j);
    ls__output_drain(j->output, well ? -1 : drain_seconds, j->crew.signal_fd);
    int error = ls__output_error(j->output);
    if (!well || !error) return;
    j->end = (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_IO };
    snprintf(j->end.said, sizeof j->end.said, LS__STDOUT_LOST, strerror(error));
}

int ls__launcher_supervise(ls__launcher_plan *plan, int guardian_fd, const char *folder)
{
    ls__launcher_job j = { .plan = plan,
                           .folder = folder,
                           .guardian_fd = guardian_fd,
                           .port_fd = -1,
                           .events_fd = -1,
                           .metrics_fd = -1,
                           .run_folder.lock = -1,
                           .end.rank = -1,
                           .before.rank = -1,
                           .best_step = -1,
                           .before_step = -1 };
    j.crew.epoll_fd = j.crew.signal_fd = j.crew.null_fd = -1;
    ls_status status = prepare(&j);
    int code = ls__exit_code(status);
    if (status == LS_OK && (j.stop_signal || j.orphaned)) {
        code = j.orphaned ? 69 : 128 + j.stop_signal;
        ls__log(LS__LOG_ERROR, "ended while waiting for the other nodes");
        ls__nodes_finish(&j);
    } else if (status == LS_OK) {
        tell_start(&j);
        ls__mpi_check_program(&j);
        run_job(&j);
        ls__nodes_finish(&j);
        finish_output(&j);
        code = ls__job_tell_end(&j);
    } else {
        ls__log(LS__LOG_ERROR, "%s", ls_error_text());
        ls__nodes_finish(&j);
    }
    release(&j);
    return code;
}
