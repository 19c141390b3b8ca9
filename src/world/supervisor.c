/* The supervisor. One thread, one epoll set: exits come by pidfd, signals by signalfd, the ranks'
 * words by socket pairs and their output by pipes, so nothing is polled and an idle job costs
 * nothing. Ranks are not reaped before the job's end: until then their process ids cannot become
 * somebody else's, and killing a group cannot hit a stranger. Expected: 1 to 1,024 ranks. */
#include "world/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/child.h"
#include "world/job.h"
#include "world/oom.h"
#include "world/output.h"
#include "world/signals.h"

extern char **environ;

static const double kill_after = 1.0;    /* seconds from the first failure */
static const double give_up_after = 5.0; /* seconds that a killed process may take to go */
static const double drain_seconds = 5.0; /* for a slow reader of a job that failed */

enum { TAG_SIGNALS = 1 << 20, TAG_SERVER, TAG_OUTPUT }; /* below: ranks */

typedef struct supervisor {
    const ls__launch *launch;
    int size;
    char **argv;
    int epoll_fd, signal_fd, null_fd;
    sigset_t mask_of_ranks;
    struct rlimit files_before;
    ls__pids strangers; /* children that this process had before */
    ls__output *output;
    int restarts;

    ls__job job; /* of the current start */
    ls__child *children;
    int alive;
    bool killed;
    double killed_at;
    int64_t oom_kills; /* before the ranks started */
} supervisor;

static void watch(supervisor *s, int fd, uint64_t tag, ls_status *status)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = tag };
    if (*status == LS_OK && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        *status = ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
}

/* Each rank takes four descriptors here. */
static void raise_file_limit(supervisor *s)
{
    getrlimit(RLIMIT_NOFILE, &s->files_before);
    struct rlimit more = s->files_before;
    rlim_t need = (rlim_t)s->size * 6 + 64;
    if (more.rlim_cur >= need) return;
    more.rlim_cur = need < more.rlim_max ? need : more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

static ls_status take_signals(supervisor *s)
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGTSTP, SIGCONT };
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        signal(numbers[i], SIG_DFL); /* an ignored one would never come, or reap children */
        sigaddset(&mask, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &mask, &s->mask_of_ranks);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigdelset(&s->mask_of_ranks, numbers[i]);
    /* A rank that is asked to stop before it has handlers shall not die of it. */
    for (int i = 0; i < LS__SIGNALS; i++) sigaddset(&s->mask_of_ranks, ls__signals[i]);
    s->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signal_fd >= 0 ? LS_OK : ls__fail_errno(LS_ERR_INTERNAL, "signalfd");
}

static ls_status prepare(supervisor *s)
{
    ls_status status = LS_OK;
    raise_file_limit(s);
    s->argv = ls__command_line();
    s->children = ls__alloc((size_t)s->size, sizeof *s->children);
    if (!s->argv || !s->children) return LS_ERR_MEMORY;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) /* rare: exec by a shell */
        LS_TRY(ls__children_list(&s->strangers));
    LS_TRY(take_signals(s));
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (s->epoll_fd < 0 || s->null_fd < 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "cannot open /dev/null");
    LS_TRY(ls__output_create(s->size, &s->output));
    watch(s, s->signal_fd, TAG_SIGNALS, &status);
    watch(s, ls__output_fd(s->output), TAG_OUTPUT, &status);
    return status;
}

static void release(supervisor *s)
{
    ls__output_destroy(s->output);
    ls__pids_free(&s->strangers);
    ls__command_line_free(s->argv);
    ls__free(s->children);
    if (s->signal_fd >= 0) close(s->signal_fd);
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    if (s->null_fd >= 0) close(s->null_fd);
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

static ls_status start_process(supervisor *s, int rank, int socket_fd, int out_fd, int err_fd)
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
        status = ls__child_start(
            &(ls__child_options) { .argv = s->argv,
                                   .envp = envp,
                                   .null_fd = s->null_fd,
                                   .out_fd = out_fd,
                                   .err_fd = err_fd,
                                   .keep = { socket_fd, place.memory_fd, place.board_fd },
                                   .cpus = launch->plan.pin ? &cpus : NULL,
                                   .mask = &s->mask_of_ranks,
                                   .files = &s->files_before },
            &s->children[rank]);
    ls__free(envp);
    ls__free(variable);
    return status;
}

static ls_status start_rank(supervisor *s, int rank)
{
    int pair[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 };
    ls_status status = LS_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        status = ls__fail_errno(LS_ERR_MEMORY, "cannot start rank %d of %d", rank, s->size);
    if (status == LS_OK) status = start_process(s, rank, pair[1], out[1], err[1]);
    if (status == LS_OK) {
        status = ls__output_attach(s->output, rank, out[0], err[0]);
        out[0] = err[0] = -1;
    }
    if (status == LS_OK) {
        status = ls__server_add(s->job.server, pair[0], rank);
        pair[0] = -1;
        s->alive++;
        watch(s, s->children[rank].pid_fd, (uint64_t)rank, &status);
    }
    int fds[6] = { pair[0], pair[1], out[0], out[1], err[0], err[1] };
    for (int i = 0; i < 6; i++)
        if (fds[i] >= 0) close(fds[i]);
    return status;
}

static void signal_all(supervisor *s, int number)
{
    for (int r = 0; r < s->size; r++) ls__child_signal(&s->children[r], number);
}

static void kill_all(supervisor *s)
{
    signal_all(s, SIGKILL);
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
    ls__child *child = &s->children[rank];
    ls__child_read_end(child);
    if (!child->ended) return;
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, child->pid_fd, NULL);
    s->alive--;
    ls__server_drain(s->job.server, rank); /* its last words come before its end */
    bool oom = child->signal == SIGKILL && !s->killed && s->oom_kills >= 0 &&
               ls__oom_kills("") > s->oom_kills;
    if (!s->killed) ls__job_exited(&s->job, rank, child->exit_code, child->signal, oom);
}

static void take_signal(supervisor *s, int number)
{
    switch (number) {
    case SIGTSTP:
        signal_all(s, SIGTSTP);
        raise(SIGSTOP); /* here until somebody continues us; SIGCONT follows */
        break;
    case SIGCONT:
        signal_all(s, SIGCONT);
        break;
    case SIGCHLD:
        ls__children_reap(s->children, s->size);
        break;
    default:
        ls__job_request_stop(&s->job, number);
    }
}

static void read_signals(supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(s, (int)info.ssi_signo);
}

static void react(supervisor *s)
{
    double now = ls__now();
    ls__job_tick(&s->job);
    if (s->job.new_folder) ls__output_set_folder(s->output, s->job.folder);
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
    while (s->alive > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(s->epoll_fd, events, 64, next_wait(s));
        for (int i = 0; i < n; i++) {
            uint64_t tag = events[i].data.u64;
            if (tag == TAG_SIGNALS)
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

/* Nothing of this start survives: groups, then what left its group. */
static void clear_away(supervisor *s)
{
    for (int r = 0; r < s->size; r++) ls__child_reap(&s->children[r]);
    int left = ls__children_kill(&s->strangers, give_up_after);
    if (left > 0)
        ls__log(LS__LOG_ERROR, "%d process%s of the job cannot be killed (waiting for a device?)",
                left, left == 1 ? "" : "es");
    s->alive = 0;
}

/* One start of the whole job, until no process of it is left. */
static ls_status run_once(supervisor *s)
{
    ls__server_hooks hooks = { .user = s, .frame = on_frame, .closed = on_closed };
    s->killed = false;
    s->alive = 0;
    for (int r = 0; r < s->size; r++) s->children[r] = (ls__child) { .pid_fd = -1 };
    s->oom_kills = ls__oom_kills("");
    LS_TRY(ls__job_begin(&s->job, s->size, s->launch->grace, &hooks));
    s->job.njoined = s->size;
    ls_status status = LS_OK;
    watch(s, ls__server_fd(s->job.server), TAG_SERVER, &status);
    for (int r = 0; r < s->size && status == LS_OK; r++) status = start_rank(s, r);
    if (status == LS_OK)
        watch_ranks(s);
    else
        kill_all(s);
    clear_away(s);
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
    where[0] = '\0';
    const char *paths[2] = { s->launch->report, "" };
    char in_folder[LS_PATH_MAX];
    if (s->job.folder[0] && ls__path_join(in_folder, s->job.folder, "report.json") == LS_OK)
        paths[1] = in_folder;
    for (int i = 0; i < 2; i++) {
        if (!paths[i][0]) continue;
        if (ls__report_write(report, paths[i]) != LS_OK)
            ls__log(LS__LOG_WARN, "the report could not be written: %s", ls_error_text());
        else if (!where[0])
            snprintf(where, LS_PATH_MAX, "%s", paths[i]);
    }
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
    ls__output_drain(s->output, well ? -1 : drain_seconds, s->signal_fd);
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
    supervisor s = {
        .launch = launch, .size = launch->plan.count, .epoll_fd = -1, .signal_fd = -1, .null_fd = -1
    };
    ls__variable variables[LS__OPENMP_VARIABLES];
    ls__openmp_variables(launch->plan.threads, launch->crowded, variables);
    for (int i = 0; i < LS__OPENMP_VARIABLES; i++) setenv(variables[i].name, variables[i].value, 1);
    ls_status status = prepare(&s);
    if (status == LS_OK) status = run_job(&s, exit_code);
    release(&s);
    return status;
}
