/* Signals that ask a program to stop. Handlers and not a blocked mask with signalfd, because a mask
 * would be inherited by whatever the program starts, and threads of libraries unblock what they
 * like. A handler has no argument of ours, hence the one static struct. */
#include "world/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

const int ls__signals[LS__SIGNALS] = { SIGTERM, SIGINT, SIGUSR1 };

static struct {
    atomic_int forward_fd; /* -1 = this process is the whole job */
    bool talks, terminal;
    atomic_int first;
    _Atomic int64_t first_ns;
    bool has_timer;
    timer_t timer;
    struct itimerspec grace;
    struct sigaction before[LS__SIGNALS];
    bool installed;
    _Atomic(ls__last_words *) words;
    ls__last_words *words_before; /* a handler may still be reading them */
} state = { .forward_fd = -1 };

static void say(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

static void end_at_once(int number, bool grace_over, const char *why)
{
    const ls__last_words *words = atomic_load(&state.words);
    say(why);
    if (words) ls__last_words_write(words, number, grace_over);
    _exit(128 + number);
}

/* What a supervisor would say. */
static void say_stopping(int number)
{
    if (!state.talks) return;
    if (state.terminal) say("\r\033[K"); /* the progress line */
    say(number == SIGINT
            ? "lockstep: SIGINT: stopping at the next step; once more, a second later, "
              "to stop now\n"
        : number == SIGTERM ? "lockstep: SIGTERM: stopping at the next step\n"
                            : "lockstep: SIGUSR1: stopping at the next step\n");
}

static void alone(int number, const siginfo_t *info)
{
    int64_t now = ls__now_ns();
    int expected = 0;
    if (info->si_code == SI_TIMER)
        end_at_once(atomic_load(&state.first), true,
                    "lockstep: error: had not stopped within the grace period: ended at once\n");
    if (atomic_compare_exchange_strong(&state.first, &expected, number)) {
        atomic_store(&state.first_ns, now);
        if (state.has_timer) timer_settime(state.timer, 0, &state.grace, NULL);
        say_stopping(number);
    } else if (now - atomic_load(&state.first_ns) > 1000000000) {
        end_at_once(number, false, "lockstep: error: a second signal ended the program at once\n");
    }
}

static void handle(int number, siginfo_t *info, void *context)
{
    (void)context;
    int saved = errno, fd = atomic_load(&state.forward_fd);
    if (fd >= 0) {
        char byte = (char)number;
        ssize_t n = write(fd, &byte, 1);
        (void)n; /* a full pipe holds enough requests */
    } else {
        alone(number, info);
    }
    errno = saved;
}

static ls_status install(void)
{
    struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART };
    for (int i = 0; i < LS__SIGNALS; i++) sigaddset(&action.sa_mask, ls__signals[i]);
    for (int i = 0; i < LS__SIGNALS; i++)
        if (sigaction(ls__signals[i], &action, &state.before[i]) != 0)
            return ls__fail_errno(LS_ERR_INTERNAL, "sigaction");
    state.installed = true;
    return LS_OK;
}

ls_status ls__signals_forward(int fd)
{
    atomic_store(&state.forward_fd, fd);
    return install();
}

ls_status ls__signals_alone(double grace, bool talks)
{
    state.talks = talks;
    state.terminal = isatty(STDERR_FILENO);
    atomic_store(&state.forward_fd, -1);
    atomic_store(&state.first, 0);
    state.has_timer = false;
    if (grace >= 0) {
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTERM };
        state.has_timer = timer_create(CLOCK_MONOTONIC, &event, &state.timer) == 0;
        state.grace.it_value.tv_sec = (time_t)grace;
        state.grace.it_value.tv_nsec = (long)((grace - (double)(time_t)grace) * 1e9);
        if (grace == 0) state.grace.it_value.tv_nsec = 1; /* 0 would disarm the timer */
    }
    return install();
}

int ls__signals_stop_request(void)
{
    return atomic_load(&state.first);
}

void ls__signals_set_last_words(ls__last_words *words)
{
    ls__last_words *before = atomic_exchange(&state.words, words);
    ls__last_words_free(state.words_before);
    state.words_before = before;
}

void ls__signals_restore(void)
{
    if (!state.installed) return;
    for (int i = 0; i < LS__SIGNALS; i++) sigaction(ls__signals[i], &state.before[i], NULL);
    if (state.has_timer) timer_delete(state.timer);
    state.has_timer = false;
    state.installed = false;
    ls__signals_set_last_words(NULL);
    ls__signals_set_last_words(NULL); /* frees those before, too */
    atomic_store(&state.forward_fd, -1);
}
