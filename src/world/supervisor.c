/* The supervisor. One thread, one epoll set: exits come by pidfd, signals by signalfd, the ranks'
 * words by socket pairs and their output by pipes, so nothing is polled and an idle job costs
 * nothing. Expected: 1 to 1,024 ranks. */
#include "world/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/crew.h"
#include "world/job.h"
#include "world/oom.h"
#include "world/output.h"
#include "world/signals.h"

extern char **environ;

static const double kill_after = 1.0;    /* seconds from the first failure */
static const double give_up_after = 5.0; /* seconds that a killed process may take to go */
static const double drain_seconds = 5.0; /* for a slow reader of a job that failed */

enum { TAG_SERVER = LS__CREW_TAGS, TAG_OUTPUT };

typedef struct supervisor {
    const ls__launch *launch;
    int size;
    char **argv;
    ls__crew crew;
    sigset_t mask_of_ranks;
    ls__output *output;
    int restarts;

    ls__job job; /* of the current start */
    bool killed;
    double killed_at;
    int64_t oom_kills; /* before the ranks started */
} supervisor;

static ls_status prepare(supervisor *s)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGTSTP, SIGCONT };
    s->argv = ls__command_line();
    if (!s->argv) return LS_ERR_MEMORY;
    LS_TRY(ls__crew_begin(&s->crew, s->size, signals, sizeof signals / sizeof signals[0]));
    /* A rank that is asked to stop before it has handlers shall not die of it. */
    s->mask_of_ranks = s->crew.mask_before;
    for (int i = 0; i < LS__SIGNALS; i++) sigaddset(&s->mask_of_ranks, ls__signals[i]);
    LS_TRY(ls__output_create(s->size, NULL, &s->output));
    return ls__crew_watch(&s->crew, ls__output_fd(s->output), TAG_OUTPUT);
}

static void release(supervisor *s)
{
    ls__output_destroy(s->output);
    ls__command_line_free(s->argv);
    ls__crew_end(&s->crew);
}

/* The environment of a rank: ours with the variables for OpenMP, and its place behind the last. */
static char **make_environment(char *place)
{
    size_t count = 0;
    while (environ[count]) count++;
    char **envp = ls__alloc(count + 2, sizeof *envp);
    if (!envp) return NULL;
    memcpy(envp, environ, count * sizeof *envp);
    envp[count] = place;
    return envp;
}

static ls_status start_process(supervisor *s, int rank, int socket_fd, int *out, int *err)
{
    const ls__launch *launch = s->launch;
    ls__place place = { .by = LS__STARTED_BY_US,
                        .rank = rank,
                        .size = s->size,
                        .socket_fd = socket_fd,
                        .memory_fd = ls__shm_fd(s->job.shm),
                        .board_fd = ls__board_fd(s->job.board),
                        .restarts = s->restarts,
                        .terminal = isatty(STDERR_FILENO),
                        .crowded = launch->crowded,
                        .started = launch->started,
                        .plan = launch->plan };
    cpu_set_t cpus;
    ls__device_cpus(&launch->plan, &launch->cpus, rank, &cpus);
    char *variable = ls__environment_for_child(&place);
    char **envp = variable ? make_environment(variable) : NULL;
    ls_status status = LS_ERR_MEMORY;
    if (envp)
        status = ls__crew_start(
            &s->crew, rank,
            &(ls__child_options) { .argv = s->argv,
                                   .envp = envp,
                                   .keep = { socket_fd, place.memory_fd, place.board_fd },
                                   .nkeep = 3,
                                   .cpus = launch->plan.pin ? &cpus : NULL,
                                   .mask = &s->mask_of_ranks },
            out, err);
    ls__free(envp);
    ls__free(variable);
    return status;
}

static ls_status start_rank(supervisor *s, int rank)
{
    int pair[2], out, err;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return ls__fail_errno(LS_ERR_MEMORY, "cannot start rank %d of %d", rank, s->size);
    ls_status status = start_process(s, rank, pair[1], &out, &err);
    close(pair[1]);
    if (status == LS_OK) status = ls__output_attach(s->output, rank, out, err);
    if (status == LS_OK) return ls__server_add(s->job.server, pair[0], rank);
    close(pair[0]);
    return status;
}

static void kill_all(supervisor *s)
{
    ls__crew_signal(&s->crew, SIGKILL);
    s->killed = true;
    s->killed_at = ls__now();
}

static void on_frame(void *user, int rank, const ls__frame *frame)
{
    supervisor *s = user;
    ls__job_frame(&s->job, rank, frame);
}

/* A rank whose socket is closed has exited or will: its end says more. */
static void on_closed(void *user, int rank)
{
    (void)user;
    (void)rank;
}

static void read_end_of(supervisor *s, int rank)
{
    const ls__child *child = &s->crew.children[rank];
    if (!ls__crew_ended(&s->crew, rank)) return;
    ls__server_drain(s->job.server, rank); /* its last words come before its end */
    bool oom = child->signal == SIGKILL && !s->killed && s->oom_kills >= 0 &&
               ls__oom_kills("") > s->oom_kills;
    if (!s->killed) ls__job_exited(&s->job, rank, child->exit_code, child->signal, oom);
}

static void take_signal(supervisor *s, int number)
{
    switch (number) {
    case SIGTSTP:
        ls__crew_signal(&s->crew, SIGTSTP);
        raise(SIGSTOP); /* here until somebody continues us; SIGCONT follows */
        break;
    case SIGCONT:
        ls__crew_signal(&s->crew, SIGCONT);
        break;
    case SIGCHLD:
        ls__crew_reap(&s->crew);
        break;
    default:
        ls__job_request_stop(&s->job, number);
    }
}

static void read_signals(supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->crew.signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(s, (int)info.ssi_signo);
}

static void react(supervisor *s)
{
    double now = ls__now();
    ls__job_tick(&s->job);
    char logs[LS_PATH_MAX];
    if (s->job.new_folder && ls__path_join(logs, s->job.folder, "logs") == LS_OK)
        ls__output_set_logs(s->output, logs);
    if (s->job.new_progress) ls__statusline_set(s->job.progress);
    s->job.new_folder = s->job.new_progress = false;
    if (s->killed) return;
    if (s->job.stop_now || (s->job.failing && now >= s->job.failed_at + kill_after)) kill_all(s);
}

/* Milliseconds until something is due; -1 = nothing is. */
static int next_wait(const supervisor *s)
{
    double at = s->killed        ? s->killed_at + give_up_after
                : s->job.failing ? s->job.failed_at + kill_after
                                 : ls__job_deadline(&s->job);
    if (at < 0) return -1;
    double left = at - ls__now();
    return left <= 0 ? 0 : left > 3600 ? 3600000 : (int)(left * 1000) + 1;
}

static void watch_ranks(supervisor *s)
{
    while (s->crew.alive > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(s->crew.epoll_fd, events, 64, next_wait(s));
        for (int i = 0; i < n; i++) {
            uint64_t tag = events[i].data.u64;
            if (tag == LS__CREW_SIGNALS)
                read_signals(s);
            else if (tag == TAG_SERVER)
                ls__server_serve(s->job.server);
            else if (tag == TAG_OUTPUT)
                ls__output_serve(s->output);
            else
                read_end_of(s, (int)tag);
        }
        react(s);
        if (s->killed && ls__now() > s->killed_at + give_up_after) return;
    }
}

/* One start of the whole job, until no process of it is left. */
static ls_status run_once(supervisor *s)
{
    ls__server_hooks hooks = { .user = s, .frame = on_frame, .closed = on_closed };
    s->killed = false;
    ls__crew_reset(&s->crew);
    s->oom_kills = ls__oom_kills("");
    LS_TRY(ls__job_begin(&s->job, s->size, s->size, s->launch->grace, &hooks));
    s->job.njoined = s->size;
    ls_status status = ls__crew_watch(&s->crew, ls__server_fd(s->job.server), TAG_SERVER);
    for (int r = 0; r < s->size && status == LS_OK; r++) status = start_rank(s, r);
    if (status == LS_OK)
        watch_ranks(s);
    else
        kill_all(s);
    ls__crew_clear(&s->crew, give_up_after);
    return status;
}

static ls__report report_of(supervisor *s)
{
    const ls__end *end = &s->job.end;
    ls__report report = { .end = *end,
                          .size = s->size,
                          .restarts = s->restarts,
                          .step = end->rank >= 0 ? ls__board_step(s->job.board, end->rank)
                                                 : ls__board_last_step(s->job.board),
                          .checkpoint = s->job.checkpoint,
                          .seconds = ls__now() - s->launch->started };
    report.tail = ls__output_tail(s->output, end->rank >= 0 ? end->rank : 0, &report.ntail);
    return report;
}

/* Not what a person must mend first, and not what would only happen again. */
static bool may_restart(const supervisor *s, const ls__end *before, int64_t step_before)
{
    static const int final[] = { 2, 3, 74, 75, 76, 130 };
    const ls__end *end = &s->job.end;
    if (!s->job.failing || s->job.stop_signal || s->restarts >= s->launch->max_restarts)
        return false;
    int code = ls__report_exit_code(end);
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
        if (code == final[i]) return false;
    int64_t step = end->rank >= 0 ? ls__board_step(s->job.board, end->rank) : -1;
    bool again = s->restarts > 0 && before->rank == end->rank && step_before == step &&
                 ls__report_exit_code(before) == code;
    if (again)
        ls__log(LS__LOG_WARN,
                "not started again: it failed twice in the same way at the same step");
    return !again;
}

static void write_report(const supervisor *s, const ls__report *report, char where[LS_PATH_MAX])
{
    const char *paths[2] = { s->launch->report, "" };
    char in_folder[LS_PATH_MAX];
    if (s->job.folder[0] && ls__path_join(in_folder, s->job.folder, "report.json") == LS_OK)
        paths[1] = in_folder;
    ls__report_write_both(report, paths, where);
}

/* The report goes to its files, to stderr, and with --json a failure's to stdout. */
static int tell_the_end(supervisor *s)
{
    char where[LS_PATH_MAX];
    ls__report report = report_of(s);
    int code = ls__report_exit_code(&report.end);
    write_report(s, &report, where);
    if (report.end.kind != LS__END_FINISHED) ls__report_print(&report, where);
    if (s->launch->json && code != 0 && report.end.kind != LS__END_STOPPED)
        ls__report_show(&report);
    return code;
}

static ls_status run_job(supervisor *s, int *exit_code)
{
    ls__end before = { .rank = -1 };
    int64_t step_before = -1;
    for (;;) {
        ls_status status = run_once(s);
        if (status != LS_OK) {
            ls__job_end(&s->job);
            return status;
        }
        ls__job_conclude(&s->job);
        ls__statusline_set(NULL);
        if (!may_restart(s, &before, step_before)) break;
        ls__output_drain(s->output, 0, -1);
        s->restarts++;
        ls__report report = report_of(s);
        char text[LS__REPORT_TEXT];
        ls__report_text(&report, text);
        ls__log(LS__LOG_WARN, "%s; starting again (%d of %d)", text, s->restarts,
                s->launch->max_restarts);
        before = s->job.end;
        step_before = report.step;
        if (s->job.folder[0]) ls__environment_set_folder(s->job.folder);
        ls__job_end(&s->job);
        ls__output_restart(s->output);
    }
    /* Results are waited for as a lone program would wait for their reader; a signal ends that. */
    bool well = ls__report_exit_code(&s->job.end) == 0;
    read_signals(s);
    ls__output_drain(s->output, well ? -1 : drain_seconds, s->crew.signal_fd);
    int error = ls__output_error(s->output);
    if (well && error) {
        s->job.end = (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = LS_ERR_IO };
        snprintf(s->job.end.said, sizeof s->job.end.said, LS__STDOUT_LOST, strerror(error));
    }
    *exit_code = tell_the_end(s);
    ls__job_end(&s->job);
    return LS_OK;
}

ls_status ls__supervise(const ls__launch *launch, int *exit_code)
{
    supervisor s = { .launch = launch, .size = launch->plan.count };
    s.crew.epoll_fd = s.crew.signal_fd = s.crew.null_fd = -1;
    ls__variable variables[LS__OPENMP_VARIABLES];
    ls__openmp_variables(launch->plan.threads, launch->crowded, variables);
    for (int i = 0; i < LS__OPENMP_VARIABLES; i++) setenv(variables[i].name, variables[i].value, 1);
    ls_status status = prepare(&s);
    if (status == LS_OK) status = run_job(&s, exit_code);
    release(&s);
    return status;
}
