/* Starting a rank. vfork and exec: the address space is never copied, so a large program starts as
 * quickly as a small one, and what only a child can do for itself (parent-death signal, group,
 * affinity) is done between the two with plain system calls. */
#include "world/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

enum { KERNEL_NODES = 1024 }; /* at least as many as the kernel knows of */

/* Memory of these nodes while they have some; bound: of no others, even where that ends a process for
 * lack of memory while another node has plenty. The policy is inherited through exec. */
static bool set_memory(uint64_t nodes, bool bound)
{
    bool one = (nodes & (nodes - 1)) == 0;
    unsigned long mask[2] = { (unsigned long)nodes, 0 };
    int mode = bound ? MPOL_BIND : one ? MPOL_PREFERRED : MPOL_PREFERRED_MANY;
    return syscall(SYS_set_mempolicy, mode, mask, 65ul) == 0;
}

bool ls__memory_can_be_bound(uint64_t nodes)
{
    int mode = MPOL_DEFAULT;
    unsigned long before[KERNEL_NODES / (8 * sizeof(unsigned long))] = { 0 };
    if (syscall(SYS_get_mempolicy, &mode, before, (unsigned long)KERNEL_NODES, NULL, 0ul) != 0)
        return false;
    if (!set_memory(nodes, true)) return false;
    bool plain = mode == MPOL_DEFAULT; /* which takes no nodes */
    syscall(SYS_set_mempolicy, mode, plain ? NULL : before, plain ? 0ul : KERNEL_NODES + 1ul);
    return true;
}

/* In the child, in the parent's memory: only system calls. Returns when one fails, errno says how.
 */
static void become_rank(const ls__child_options *o, pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
    if (getppid() != parent) _exit(69); /* it died before the line above */
    if (setpgid(0, 0) != 0) return;
    if (dup2(o->null_fd, STDIN_FILENO) < 0 || dup2(o->out_fd, STDOUT_FILENO) < 0 ||
        dup2(o->err_fd, STDERR_FILENO) < 0)
        return;
    for (int i = 0; i < o->nkeep; i++)
        if (fcntl(o->keep[i], F_SETFD, 0) != 0) return;
    if (o->cpus) sched_setaffinity(0, sizeof *o->cpus, o->cpus); /* a wish; it may be refused */
    if (o->memory_nodes && !set_memory(o->memory_nodes, o->memory_bound) && o->memory_bound)
        set_memory(o->memory_nodes, false); /* a wish, too: whoever starts ranks has asked before */
    setrlimit(RLIMIT_NOFILE, o->files);
    struct sigaction plain = { .sa_handler = SIG_DFL };
    sigaction(SIGPIPE, &plain, NULL);
    sigprocmask(SIG_SETMASK, o->mask, NULL);
    execve(o->path ? o->path : "/proc/self/exe", o->argv, o->envp);
}

ls_status ls__child_start(const ls__child_options *options, ls__child *out)
{
    *out = (ls__child) { .pid_fd = -1 };
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* no handler may run in the child's half of vfork */
    pid_t parent = getpid();
    volatile int error = 0; /* shared with the child until its exec */
    pid_t pid = vfork();
    if (pid == 0) {
        become_rank(options, parent);
        error = errno;
        _exit(127);
    }
    int fork_error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        errno = fork_error;
        return ls__fail_errno(LS_ERR_MEMORY, "cannot start a rank");
    }
    bool executed = error == 0;
    if (executed) {
        out->pid_fd = pidfd_open(pid, 0);
        if (out->pid_fd < 0) error = errno;
    }
    if (error != 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        errno = error;
        if (!options->path || executed)
            return ls__fail_errno(LS_ERR_INTERNAL, "cannot start a rank");
        out->exit_code = error == ENOENT ? 127 : 126;
        if (error == ENOEXEC)
            return ls_fail(LS_ERR_CONFIG,
                           "cannot execute %s: neither a program for this machine nor a script "
                           "with a #! line; name its interpreter before it",
                           options->path);
        return ls__fail_errno(LS_ERR_CONFIG, "cannot execute %s", options->path);
    }
    out->pid = pid;
    return LS_OK;
}

void ls__child_read_end(ls__child *child)
{
    siginfo_t info = { 0 };
    int result = waitid(P_PIDFD, (id_t)child->pid_fd, &info, WEXITED | WNOHANG | WNOWAIT);
    if (result == 0 && info.si_pid == 0) return;
    child->ended = true;
    if (result != 0) /* somebody else reaped it; how it ended is lost */
        child->exit_code = 70;
    else if (info.si_code == CLD_EXITED)
        child->exit_code = info.si_status;
    else
        child->signal = info.si_status;
}

void ls__child_signal(const ls__child *child, int signal)
{
    if (child->pid > 0) kill(-child->pid, signal);
}

void ls__child_reap(ls__child *child)
{
    if (child->pid <= 0) return;
    kill(-child->pid, SIGKILL); /* before reaping, while the number cannot be anybody else's */
    while (waitpid(child->pid, NULL, child->ended ? 0 : WNOHANG) < 0 && errno == EINTR) {}
    close(child->pid_fd);
    *child = (ls__child) { .pid_fd = -1 };
}
