/* A touch of memory that is not there for who touches it, told in words before the process ends.
 *
 * The handler says whether it was the host or a kernel, and whose memory it was; then the fault
 * takes the way it would have taken without us (a sanitizer's report, a core dump). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/sim/sim_internal.h"

static struct sigaction before;

static void tell(const void *at)
{
    char what[160], where[256], text[512];
    ls__sim_describe(at, what, sizeof(what));
    bool on_stream = ls__sim_where(where, sizeof(where));
    const char *call = ls__sim_current_call();
    if (!on_stream && call) {
        snprintf(where, sizeof(where), "a stream's %s", call);
        on_stream = true;
    }
    if (!on_stream && strncmp(what, "no memory", 9) == 0) return; /* somebody else's fault */
    int n = snprintf(text, sizeof(text), "lockstep: %s touched %p: %s%s\n",
                     on_stream ? where : "the host", at, what,
                     on_stream ? "" : "; only kernels and copies can, on a stream");
    if (write(STDERR_FILENO, text, (size_t)n) < 0) return;
}

/* The old handler is called from here: on return the instruction would run again, and might succeed
 * because a stream has begun to work meanwhile. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    tell(info->si_addr);
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void install(void)
{
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}

void ls__sim_watch_faults(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    SIM_HIDDEN(pthread_once(&once, install));
}
