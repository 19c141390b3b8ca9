/* The watcher thread. It sleeps in poll; once a second it looks at the poison word, because a peer
 * may have poisoned the memory without a message. */
#include "world/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "world/signals.h"

enum { LOOK_MS = 1000, STACK = 512 << 10 };
static const double last_second = 1.0;

struct ls__watcher {
    ls__watcher_options options;
    pthread_t thread;
    int quit[2], signals[2]; /* pipes; signals may be -1 */
    atomic_bool lost;
    double exit_at; /* thread: 0 = not lost */
    bool stream_over;
};

static void lose(ls__watcher *w, const char *text)
{
    if (w->exit_at > 0) return;
    w->exit_at = ls__now() + last_second;
    atomic_store(&w->lost, true); /* before it wakes somebody who asks */
    if (w->options.shm) ls__shm_poison(w->options.shm, -1); /* keeps an earlier rank */
    ls__store_fail(w->options.store, LS_ERR_PEER, text);
}

static void take_frame(void *user, const ls__frame *frame)
{
    ls__watcher *w = user;
    char text[512];
    if (frame->type == LS__FRAME_POISON) {
        ls__frame_text(frame, text, sizeof text);
        lose(w, text);
    } else if (frame->type == LS__FRAME_END && !w->options.survives) {
        _exit((int)(frame->number & 0xff));
    }
}

static void forward_signals(ls__watcher *w)
{
    unsigned char numbers[16];
    ssize_t n = read(w->signals[0], numbers, sizeof numbers);
    for (ssize_t i = 0; i < n; i++) {
        ls_status status = ls__store_send(
            w->options.store, &(ls__frame) { .type = LS__FRAME_SIGNAL, .number = numbers[i] });
        if (status != LS_OK) return; /* the end of the stream is seen by who reads it */
    }
}

static int wait_ms(const ls__watcher *w)
{
    if (w->exit_at <= 0) return w->options.shm ? LOOK_MS : -1;
    if (w->options.survives) return -1;
    double left = w->exit_at - ls__now();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

static void look_at_poison(ls__watcher *w)
{
    int rank;
    if (w->exit_at > 0 || !w->options.shm || !ls__shm_poisoned(w->options.shm, &rank)) return;
    lose(w, "another rank has failed");
}

static void *watch(void *user)
{
    ls__watcher *w = user;
    for (;;) {
        struct pollfd fds[4] = {
            { .fd = w->quit[0], .events = POLLIN },
            { .fd = w->signals[0], .events = POLLIN },
            { .fd = w->stream_over ? -1 : ls__store_fd(w->options.store), .events = POLLIN },
            { .fd = w->exit_at > 0 ? -1 : w->options.peer_fd, .events = POLLIN },
        };
        int n = poll(fds, 4, wait_ms(w));
        if (n < 0 && errno != EINTR) return NULL;
        if (n > 0 && fds[0].revents) return NULL;
        if (n > 0 && fds[1].revents) forward_signals(w);
        if (n > 0 && fds[2].revents &&
            ls__store_receive(w->options.store, take_frame, w) != LS_OK) {
            w->stream_over = true;
            lose(w, ls_error_text());
        }
        if (n > 0 && fds[3].revents) lose(w, "the process that serves the job's store died");
        look_at_poison(w);
        if (w->exit_at > 0 && !w->options.survives && ls__now() >= w->exit_at)
            _exit(ls__exit_code(LS_ERR_PEER));
    }
}

static ls_status start_thread(ls__watcher *w)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* handlers run in the program's threads */
    int error = pthread_create(&w->thread, &attributes, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    errno = error;
    return error ? ls__fail_errno(LS_ERR_MEMORY, "cannot start a rank's watcher thread") : LS_OK;
}

static void close_pipe(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) close(fds[i]);
}

ls_status ls__watcher_start(const ls__watcher_options *options, ls__watcher **out)
{
    *out = NULL;
    ls__watcher *w = ls__alloc(1, sizeof *w);
    if (!w) return LS_ERR_MEMORY;
    *w = (ls__watcher) { .options = *options, .quit = { -1, -1 }, .signals = { -1, -1 } };
    ls_status status = LS_OK;
    if (pipe2(w->quit, O_CLOEXEC) != 0 ||
        (options->forward_signals && pipe2(w->signals, O_CLOEXEC | O_NONBLOCK) != 0))
        status = ls__fail_errno(LS_ERR_INTERNAL, "pipe2");
    if (status == LS_OK) status = start_thread(w);
    if (status != LS_OK) {
        close_pipe(w->quit);
        close_pipe(w->signals);
        ls__free(w);
        return status;
    }
    if (options->forward_signals) status = ls__signals_forward(w->signals[1]);
    *out = w;
    return status;
}

void ls__watcher_stop(ls__watcher *w)
{
    if (!w) return;
    if (w->options.forward_signals) ls__signals_restore();
    /* A byte, not the end of the pipe: a child of the program may hold the other end, too. */
    while (write(w->quit[1], "", 1) < 0 && errno == EINTR) {}
    pthread_join(w->thread, NULL);
    close_pipe(w->quit);
    close_pipe(w->signals);
    ls__free(w);
}

bool ls__watcher_lost(const ls__watcher *w)
{
    return atomic_load(&w->lost);
}
