/* The crew's processes. Ranks are not reaped before the job's end: until then their process ids
 * cannot become somebody else's, and killing a group cannot hit a stranger. Expected: 1 to 1,024
 * ranks; nothing is polled, so an idle job costs nothing. */
#include "world/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

ls_status ls__crew_watch(ls__crew *crew, int fd, uint64_t tag)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = tag };
    if (epoll_ctl(crew->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    return LS_OK;
}

/* Each rank takes four descriptors here. */
static void raise_file_limit(ls__crew *crew)
{
    getrlimit(RLIMIT_NOFILE, &crew->files_before);
    struct rlimit more = crew->files_before;
    rlim_t need = (rlim_t)crew->size * 6 + 64;
    if (more.rlim_cur >= need) return;
    more.rlim_cur = need < more.rlim_max ? need : more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

static ls_status take_signals(ls__crew *crew, const int *signals, int nsignals)
{
    sigset_t mask;
    sigemptyset(&mask);
    for (int i = 0; i < nsignals; i++) {
        signal(signals[i], SIG_DFL); /* an ignored one would never come, or reap children */
        sigaddset(&mask, signals[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &mask, &crew->mask_before);
    for (int i = 0; i < nsignals; i++) sigdelset(&crew->mask_before, signals[i]);
    crew->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return crew->signal_fd >= 0 ? LS_OK : ls__fail_errno(LS_ERR_INTERNAL, "signalfd");
}

ls_status ls__crew_begin(ls__crew *crew, int size, const int *signals, int nsignals)
{
    *crew = (ls__crew) { .size = size, .epoll_fd = -1, .signal_fd = -1, .null_fd = -1 };
    raise_file_limit(crew);
    crew->children = ls__alloc((size_t)size, sizeof *crew->children);
    if (!crew->children) return LS_ERR_MEMORY;
    ls__crew_reset(crew);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) /* rare: exec by a shell */
        LS_TRY(ls__children_list(&crew->strangers));
    LS_TRY(take_signals(crew, signals, nsignals));
    crew->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    crew->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (crew->epoll_fd < 0 || crew->null_fd < 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "cannot open /dev/null");
    return ls__crew_watch(crew, crew->signal_fd, LS__CREW_SIGNALS);
}

void ls__crew_end(ls__crew *crew)
{
    ls__pids_free(&crew->strangers);
    ls__free(crew->children);
    crew->children = NULL;
    int fds[] = { crew->signal_fd, crew->epoll_fd, crew->null_fd };
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0) close(fds[i]);
    crew->signal_fd = crew->epoll_fd = crew->null_fd = -1;
}

void ls__crew_reset(ls__crew *crew)
{
    crew->alive = 0;
    for (int r = 0; r < crew->size; r++) crew->children[r] = (ls__child) { .pid_fd = -1 };
}

ls_status ls__crew_start(ls__crew *crew, int rank, const ls__child_options *options, int *out,
                         int *err)
{
    int out_pipe[2] = { -1, -1 }, err_pipe[2] = { -1, -1 };
    ls__child_options o = *options;
    ls__child *child = &crew->children[rank];
    ls_status status = LS_OK;
    if (pipe2(out_pipe, O_CLOEXEC) != 0 || pipe2(err_pipe, O_CLOEXEC) != 0)
        status = ls__fail_errno(LS_ERR_MEMORY, "cannot start rank %d of %d", rank, crew->size);
    o.null_fd = crew->null_fd;
    o.out_fd = out_pipe[1];
    o.err_fd = err_pipe[1];
    o.files = &crew->files_before;
    if (status == LS_OK) status = ls__child_start(&o, child);
    if (status == LS_OK) {
        crew->alive++;
        status = ls__crew_watch(crew, child->pid_fd, (uint64_t)rank);
    }
    if (status == LS_OK) {
        *out = out_pipe[0];
        *err = err_pipe[0];
        out_pipe[0] = err_pipe[0] = -1;
    }
    int fds[4] = { out_pipe[0], out_pipe[1], err_pipe[0], err_pipe[1] };
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0) close(fds[i]);
    return status;
}

bool ls__crew_ended(ls__crew *crew, int rank)
{
    ls__child *child = &crew->children[rank];
    ls__child_read_end(child);
    if (!child->ended) return false;
    epoll_ctl(crew->epoll_fd, EPOLL_CTL_DEL, child->pid_fd, NULL);
    crew->alive--;
    return true;
}

void ls__crew_signal(const ls__crew *crew, int number)
{
    for (int r = 0; r < crew->size; r++) ls__child_signal(&crew->children[r], number);
}

void ls__crew_reap(const ls__crew *crew)
{
    ls__children_reap(crew->children, crew->size);
}

int ls__crew_clear(ls__crew *crew, double seconds)
{
    for (int r = 0; r < crew->size; r++) ls__child_reap(&crew->children[r]);
    int left = ls__children_kill(&crew->strangers, seconds);
    if (left > 0)
        ls__log(LS__LOG_ERROR, "%d process%s of the job cannot be killed (waiting for a device?)",
                left, left == 1 ? "" : "es");
    crew->alive = 0;
    return left;
}
