/* The spoke. Names are looked up again at every try, because a node's name may not be known before the
 * node is there (Kubernetes); refusals that a moment may change are tried again, others end it. Clock
 * offsets are those of the shortest round trip seen, which bounds their error. */
#include "launch/spoke.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/address.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mac.h"
#include "base/memory.h"

static const double first_pause = 0.02, longest_pause = 1.0; /* between tries */
static const double try_seconds = 3.0;                       /* for one of them */
static const double beats_per_silence = 5;

struct ls__spoke {
    ls__spoke_options options;
    ls__spoke_state state;
    int epoll_fd;
    bool connected; /* link is one that was begun */
    ls__node_link link;
    double pause, due, began, heard_at;
    uint8_t nonce[LS__NONCE_BYTES];
    ls__node_place place;
    int64_t offset_ns, trip_ns; /* trip: -1 = not measured */
    int next_address;
    char why[LS__NODE_TEXT_MAX + 1];
};

ls_status ls__spoke_create(const ls__spoke_options *options, ls__spoke **out)
{
    *out = NULL;
    ls__spoke *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    s->options = *options;
    if (s->options.silence <= 0) s->options.silence = 5;
    s->pause = first_pause;
    s->due = ls__now();
    s->trip_ns = -1;
    s->link.fd = -1;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd >= 0) {
        *out = s;
        return LS_OK;
    }
    ls__spoke_destroy(s);
    return ls__fail_errno(LS_ERR_INTERNAL, "epoll_create1");
}

void ls__spoke_destroy(ls__spoke *s)
{
    if (!s) return;
    ls__node_link_close(&s->link);
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    ls__free(s);
}

/* --- a try --- */

static void try_later(ls__spoke *s, const char *why)
{
    if (why != s->why) snprintf(s->why, sizeof s->why, "%s", why);
    ls__node_link_close(&s->link);
    s->connected = false;
    s->state = LS__SPOKE_TRYING;
    s->due = ls__now() + s->pause;
    s->pause = s->pause * 2 < longest_pause ? s->pause * 2 : longest_pause;
}

/* The addresses of a name in turn. */
static int begin_connection(const struct addrinfo *list, int which)
{
    int count = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) count++;
    const struct addrinfo *a = list;
    for (int i = 0; i < which % count; i++) a = a->ai_next;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void begin_try(ls__spoke *s)
{
    char port[16], why[256];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    snprintf(port, sizeof port, "%d", s->options.port);
    int error = ls__address_find(s->options.host, port, &hints, &list);
    if (error != 0) {
        try_later(s, gai_strerror(error));
        return;
    }
    int fd = begin_connection(list, s->next_address++);
    int number = errno;
    freeaddrinfo(list);
    if (fd < 0) {
        snprintf(why, sizeof why, "%s", strerror(number));
        try_later(s, why);
        return;
    }
    ls__node_link_open(&s->link, fd, s->epoll_fd, 0);
    s->connected = true;
    s->began = s->heard_at = ls__now();
    s->due = s->began + try_seconds;
    if (ls__random_bytes(s->nonce, sizeof s->nonce) != LS_OK) {
        try_later(s, ls_error_text());
        return;
    }
    ls__node_frame hello = { .type = LS__NODE_HELLO,
                             .numbers = { LS__NODE_PROTOCOL },
                             .texts = { { (const char *)s->nonce, sizeof s->nonce } } };
    ls__node_link_send(&s->link, &hello);
}

void ls__spoke_again(ls__spoke *s, const ls__node_join *join)
{
    s->options.join = *join;
    s->trip_ns = -1; /* its clock may be another one */
    s->pause = first_pause;
    try_later(s, s->why);
}

static void refused(ls__spoke *s, const char *why)
{
    snprintf(s->why, sizeof s->why, "%s", why);
    s->state = LS__SPOKE_REFUSED;
}

static void ping(ls__spoke *s)
{
    ls__node_frame frame = { .type = LS__NODE_PING };
    if (s->options.pulse) s->options.pulse(s->options.user, frame.numbers + 1);
    frame.numbers[0] = ls__now_ns();
    frame.numbers[3] = s->trip_ns < 0 ? 0 : s->trip_ns;
    ls__node_link_send(&s->link, &frame);
    s->due = ls__now() + s->options.silence / beats_per_silence;
}

static void answer(ls__spoke *s, const ls__node_frame *frame)
{
    const char *secret = s->options.secret;
    uint8_t code[LS__MAC_BYTES] = { 0 }, given[LS__MAC_BYTES], nonce[LS__NONCE_BYTES];
    if (frame->texts[0].nbytes != LS__NONCE_BYTES || frame->texts[1].nbytes != LS__MAC_BYTES) {
        try_later(s, "what answers there is no lockstep");
        return;
    }
    memcpy(nonce, frame->texts[0].data, sizeof nonce);
    memcpy(given, frame->texts[1].data, sizeof given);
    if (frame->numbers[0] && !secret[0]) {
        refused(s, "it wants the job's secret: give all nodes the same LOCKSTEP_SECRET, or use "
                   "the line that it has printed");
        return;
    }
    if (secret[0]) {
        ls__mac(secret, "listener", s->nonce, nonce, code);
        if (!frame->numbers[0] || !ls__mac_equal(code, given)) {
            refused(s, "it does not know this job's secret; is it another job?");
            return;
        }
        ls__mac(secret, "caller", s->nonce, nonce, code);
    }
    ls__node_frame reply = { .type = LS__NODE_ANSWER,
                             .texts = { { (const char *)code, sizeof code } } };
    ls__node_link_send(&s->link, &reply);
    s->link.limit = LS__NODE_FRAME_MAX;
    ls__node_join_frame(&s->options.join, &reply);
    ls__node_link_send(&s->link, &reply);
    s->state = LS__SPOKE_JOINED;
    s->pause = first_pause;
    for (int i = 0; i < 3; i++) ping(s); /* the clock's offset, before it is needed */
}

/* --- once in --- */

static void take_pong(ls__spoke *s, const ls__node_frame *frame)
{
    int64_t now = ls__now_ns(), sent = frame->numbers[0], trip = now - sent;
    if (trip < 0 || (s->trip_ns >= 0 && trip >= s->trip_ns)) return;
    s->trip_ns = trip;
    s->offset_ns = frame->numbers[1] - (sent + trip / 2);
}

static void take_refusal(ls__spoke *s, const ls__node_frame *frame)
{
    char why[LS__NODE_TEXT_MAX + 1];
    ls__node_text_copy(frame->texts[0], why, sizeof why);
    if (frame->numbers[0])
        try_later(s, why);
    else
        refused(s, why);
}

static void take(ls__spoke *s, const ls__node_frame *frame)
{
    if (s->state == LS__SPOKE_TRYING && frame->type == LS__NODE_CHALLENGE) {
        answer(s, frame);
    } else if (frame->type == LS__NODE_REFUSED) {
        take_refusal(s, frame);
    } else if (frame->type == LS__NODE_PONG) {
        take_pong(s, frame);
    } else if (frame->type == LS__NODE_PLACE && s->state >= LS__SPOKE_JOINED) {
        if (ls__node_place_read(frame, &s->place) == LS_OK)
            s->state = LS__SPOKE_PLACED;
        else
            refused(s, ls_error_text());
        if (s->state == LS__SPOKE_PLACED && s->options.message)
            s->options.message(s->options.user, frame);
    } else if (s->state >= LS__SPOKE_JOINED && s->options.message) {
        s->options.message(s->options.user, frame);
    }
}

static void lose(ls__spoke *s, const char *why)
{
    if (s->state == LS__SPOKE_PLACED) {
        snprintf(s->why, sizeof s->why, "%s", why);
        s->state = LS__SPOKE_LOST;
        ls__node_link_close(&s->link);
        s->connected = false;
    } else if (s->state != LS__SPOKE_REFUSED) {
        try_later(s, why);
    }
}

void ls__spoke_serve(ls__spoke *s)
{
    struct epoll_event event;
    ls__node_frame frame;
    if (s->connected && epoll_wait(s->epoll_fd, &event, 1, 0) > 0) {
        int64_t before = s->link.received;
        ls__node_link_flush(&s->link);
        ls__node_link_read(&s->link);
        if (s->link.received != before) s->heard_at = ls__now();
        while (s->connected && s->state < LS__SPOKE_REFUSED && ls__node_link_next(&s->link, &frame))
            take(s, &frame);
    }
    if (s->state >= LS__SPOKE_REFUSED) return;
    double now = ls__now();
    if (s->connected && s->link.broken) {
        char why[128];
        snprintf(why, sizeof why, "%s", s->link.why);
        lose(s, why);
    } else if (s->state >= LS__SPOKE_JOINED && now - s->heard_at > s->options.silence) {
        char why[64];
        snprintf(why, sizeof why, "nothing was heard of it for %.1f s", now - s->heard_at);
        lose(s, why);
    } else if (now >= s->due && s->state >= LS__SPOKE_JOINED) {
        ping(s);
    } else if (now >= s->due && s->connected) {
        try_later(s, "it does not answer");
    } else if (now >= s->due) {
        begin_try(s);
    }
}

/* --- what is asked --- */

int ls__spoke_fd(const ls__spoke *s)
{
    return s->epoll_fd;
}
double ls__spoke_due(const ls__spoke *s)
{
    return s->state >= LS__SPOKE_REFUSED ? -1 : s->due;
}
ls__spoke_state ls__spoke_state_of(const ls__spoke *s)
{
    return s->state;
}
const char *ls__spoke_why(const ls__spoke *s)
{
    return s->why;
}
const ls__node_place *ls__spoke_place(const ls__spoke *s)
{
    return &s->place;
}
int64_t ls__spoke_time(const ls__spoke *s, int64_t ns)
{
    return ns + s->offset_ns;
}
void ls__spoke_interface(const ls__spoke *s, char out[32])
{
    struct sockaddr_storage local;
    socklen_t size = sizeof local;
    out[0] = '\0';
    if (s->link.fd >= 0 && getsockname(s->link.fd, (struct sockaddr *)&local, &size) == 0)
        ls__address_interface((struct sockaddr *)&local, out);
}

double ls__spoke_uncertainty(const ls__spoke *s)
{
    return s->trip_ns < 0 ? -1 : (double)s->trip_ns / 2e9;
}

void ls__spoke_send(ls__spoke *s, const ls__node_frame *frame)
{
    if (s->state >= LS__SPOKE_JOINED && s->connected) ls__node_link_send(&s->link, frame);
}

size_t ls__spoke_waiting(const ls__spoke *s)
{
    return ls__node_link_waiting(&s->link);
}

void ls__spoke_drain(ls__spoke *s, double seconds)
{
    double deadline = ls__now() + seconds;
    while (s->connected && !s->link.broken && ls__spoke_waiting(s) > 0 && ls__now() < deadline) {
        struct pollfd p = { .fd = s->link.fd, .events = POLLOUT };
        poll(&p, 1, 100);
        ls__node_link_flush(&s->link);
    }
}
