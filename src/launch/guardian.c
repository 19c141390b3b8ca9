/* The guardian: a process that does nothing but outlive the launcher. When a launcher is killed, the
 * kernel kills its ranks, but what they had put into sessions of their own would be left; all of
 * that falls to the guardian, which is a subreaper, and ends there. The launcher in turn watches
 * the guardian. It forks without exec: at this point the process has one thread and has loaded
 * nothing that would mind. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "launch/launcher.h"
#include "world/child.h"
#include "world/report.h"

static const double sweep_seconds = 5.0;

/* Sent by a process, not by the terminal: those of the terminal reach the launcher, too. */
static bool is_personal(const siginfo_t *info)
{
    return info->si_code <= 0;
}

static void relay(pid_t launcher, const siginfo_t *info)
{
    if (is_personal(info)) kill(launcher, info->si_signo);
    if (info->si_signo == SIGTSTP)
        raise(SIGSTOP);
    else if (is_personal(info))
        kill(launcher, SIGCONT); /* one that is stopped would never hear of it */
}

/* Waits for the launcher's end, relaying signals; returns its wait status. */
static int await_end(pid_t launcher, const sigset_t *mask)
{
    int status = 0;
    siginfo_t info;
    for (;;) {
        if (sigwaitinfo(mask, &info) < 0) continue;
        if (info.si_signo != SIGCHLD) {
            relay(launcher, &info);
            continue;
        }
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            if (pid == launcher) return status;
    }
}

static int end_of(pid_t launcher, int status, const ls__pids *strangers)
{
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    char name[32];
    int left = ls__children_kill(strangers, sweep_seconds);
    ls__log(LS__LOG_ERROR, "the launcher (process %d) was killed by %s; its ranks were ended%s",
            (int)launcher, ls__signal_name(WTERMSIG(status), name),
            left > 0 ? ", but not all of them could be" : "");
    return 128 + WTERMSIG(status);
}

int ls__guard(int (*work)(void *user, int guardian_fd), void *user)
{
    static const int relayed[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                   SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD };
    ls__pids strangers = { 0 };
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof relayed / sizeof relayed[0]; i++) sigaddset(&mask, relayed[i]);
    fflush(NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && /* rare: exec by a shell */
        ls__children_list(&strangers) != LS_OK)
        ls__log(LS__LOG_WARN, "%s", ls_error_text());
    signal(SIGCHLD, SIG_DFL); /* an ignored one would reap the launcher unseen */
    sigprocmask(SIG_BLOCK, &mask, NULL);
    pid_t guardian = getpid(), launcher = fork();
    if (launcher == 0) {
        int fd =
            pidfd_open(guardian, 0); /* signals stay blocked until there is somebody to take them */
        if (getppid() != guardian) _exit(69);
        ls__pids_free(&strangers);
        return work(user, fd);
    }
    if (launcher < 0) { /* it works without */
        ls__log(LS__LOG_WARN, "no guardian: %s", strerror(errno));
        ls__pids_free(&strangers);
        return work(user, -1);
    }
    int code = end_of(launcher, await_end(launcher, &mask), &strangers);
    ls__pids_free(&strangers);
    return code;
}
