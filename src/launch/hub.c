/* The hub's connections: accepting, reading, noticing who has gone. One epoll set inside the launcher's,
 * and a look at everybody's silence twice a second: a machine that was cut off says nothing. Expected:
 * up to some thousand connections that mostly say nothing. */
#include "launch/hub.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "launch/hub_parts.h"
#include "launch/launcher.h"

enum { STRANGERS_MAX = 1024, ACCEPTS_MAX = 256 };

static const double looks_per_silence = 10;
static const double greeting_seconds = 10.0; /* for somebody who connects to say who it is */
static const double leaving_seconds = 2.0;

static ls_status listen_at(ls__hub *hub)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0 };
    LS_TRY(ls__listen(hub->options.loopback, &hub->port, &hub->listen_fd));
    if (epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, hub->listen_fd, &event) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    return LS_OK;
}

ls_status ls__hub_create(const ls__hub_options *options, ls__hub **out)
{
    *out = NULL;
    ls__hub *hub = ls__alloc(1, sizeof *hub);
    if (!hub) return LS_ERR_MEMORY;
    hub->options = *options;
    hub->options.own = NULL; /* it is in its slot */
    hub->own = options->own ? options->own->node_rank : -1;
    if (hub->options.silence <= 0) hub->options.silence = 5;
    hub->port = options->port;
    hub->listen_fd = -1;
    hub->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    hub->slots = ls__alloc((size_t)options->launchers, sizeof *hub->slots);
    ls_status status = hub->slots ? LS_OK : LS_ERR_MEMORY;
    if (status == LS_OK && hub->epoll_fd < 0)
        status = ls__fail_errno(LS_ERR_INTERNAL, "epoll_create1");
    if (status == LS_OK) status = listen_at(hub);
    if (status != LS_OK) {
        ls__hub_destroy(hub);
        return status;
    }
    for (int i = 0; options->before && i < options->launchers; i++)
        hub->slots[i].join = options->before[i];
    hub->known = options->before != NULL;
    hub->options.before = NULL;
    if (options->own) {
        ls__slot *s = &hub->slots[options->own->node_rank];
        s->join = *options->own;
        s->here = s->own = true;
        hub->here = 1;
    }
    hub->check_at = ls__now();
    *out = hub;
    return LS_OK;
}

static void free_visitor(ls__hub *hub, ls__visitor **at)
{
    ls__visitor *v = *at;
    *at = v->next;
    ls__node_link_close(&v->link);
    ls__free(v);
    hub->nvisitors--;
}

void ls__hub_destroy(ls__hub *hub)
{
    if (!hub) return;
    while (hub->visitors) free_visitor(hub, &hub->visitors);
    if (hub->listen_fd >= 0) close(hub->listen_fd);
    if (hub->epoll_fd >= 0) close(hub->epoll_fd);
    ls__free(hub->slots);
    ls__free(hub);
}

int ls__hub_port(const ls__hub *hub)
{
    return hub->port;
}
int ls__hub_fd(const ls__hub *hub)
{
    return hub->epoll_fd;
}
double ls__hub_due(const ls__hub *hub)
{
    return hub->check_at;
}
void ls__hub_interface(const ls__hub *hub, char out[32])
{
    out[0] = '\0';
    for (int i = 0; i < hub->options.launchers && !out[0]; i++)
        if (hub->slots[i].visitor)
            ls__address_interface((const struct sockaddr *)&hub->slots[i].visitor->local, out);
}
int ls__hub_launchers(const ls__hub *hub)
{
    return hub->options.launchers;
}
int ls__hub_here(const ls__hub *hub)
{
    return hub->here;
}
bool ls__hub_is_here(const ls__hub *hub, int launcher)
{
    return hub->slots[launcher].here;
}
const ls__node_join *ls__hub_join_of(const ls__hub *hub, int launcher)
{
    return &hub->slots[launcher].join;
}
double ls__hub_silence_of(const ls__hub *hub, int launcher)
{
    const ls__visitor *v = hub->slots[launcher].visitor;
    return v ? ls__now() - v->heard_at : 0;
}

/* --- who comes --- */

static void accept_one(ls__hub *hub, int fd, const struct sockaddr_storage *peer)
{
    ls__visitor *v = ls__alloc(1, sizeof *v);
    socklen_t size = sizeof v->local;
    if (!v) {
        close(fd);
        return;
    }
    ls__node_link_open(&v->link, fd, hub->epoll_fd, (uint64_t)(uintptr_t)v);
    v->peer = *peer;
    getsockname(fd, (struct sockaddr *)&v->local, &size);
    v->since = v->heard_at = ls__now();
    v->launcher = -1;
    v->next = hub->visitors;
    hub->visitors = v;
    hub->nvisitors++;
}

static void accept_all(ls__hub *hub)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        int fd = accept4(hub->listen_fd, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC);
        if (fd < 0) return;
        if (hub->nvisitors < hub->options.launchers + STRANGERS_MAX)
            accept_one(hub, fd, &peer);
        else
            close(fd);
    }
}

/* --- who goes --- */

static void leave(ls__hub *hub, ls__visitor *v)
{
    int launcher = v->launcher;
    char why[160];
    snprintf(why, sizeof why, "%s", v->link.why);
    v->link.broken = true;
    if (v->state != LS__VISITOR_JOINED) return;
    v->state = LS__VISITOR_LEAVING;
    v->since = 0;
    ls__slot *s = &hub->slots[launcher];
    s->here = false;
    s->visitor = NULL;
    hub->here--;
    if (!hub->over && hub->options.lost) hub->options.lost(hub->options.user, launcher, why);
}

static void serve_visitor(ls__hub *hub, ls__visitor *v)
{
    ls__node_frame frame;
    int64_t before = v->link.received;
    ls__node_link_flush(&v->link);
    ls__node_link_read(&v->link);
    if (v->link.received != before) v->heard_at = ls__now();
    while (ls__node_link_next(&v->link, &frame)) ls__visitor_take(hub, v, &frame);
    if (v->link.broken) leave(hub, v);
}

static void check_everybody(ls__hub *hub)
{
    double now = ls__now();
    hub->check_at = now + hub->options.silence / looks_per_silence;
    for (ls__visitor *v = hub->visitors; v; v = v->next) {
        bool silent = now - v->heard_at > hub->options.silence;
        if (v->state == LS__VISITOR_JOINED && v->link.broken) {
            leave(hub, v);
        } else if (v->state == LS__VISITOR_JOINED && silent) {
            snprintf(v->link.why, sizeof v->link.why, "nothing was heard of it for %.1f s",
                     now - v->heard_at);
            leave(hub, v);
        } else if (v->state < LS__VISITOR_JOINED && now - v->since > greeting_seconds) {
            v->link.broken = true;
        } else if (v->state == LS__VISITOR_LEAVING && now - v->since > leaving_seconds) {
            v->link.broken = true;
        }
    }
}

void ls__hub_serve(ls__hub *hub)
{
    struct epoll_event events[128];
    int n = epoll_wait(hub->epoll_fd, events, 128, 0);
    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 == 0)
            accept_all(hub);
        else
            serve_visitor(hub, (ls__visitor *)(uintptr_t)events[i].data.u64);
    }
    bool due = ls__now() >= hub->check_at;
    if (due) check_everybody(hub);
    if (n <= 0 && !due) return;
    for (ls__visitor **at = &hub->visitors; *at;) { /* none of the events above is left */
        if ((*at)->link.broken && (*at)->state != LS__VISITOR_JOINED)
            free_visitor(hub, at);
        else
            at = &(*at)->next;
    }
}

/* --- what is said --- */

void ls__hub_send(ls__hub *hub, int launcher, const ls__node_frame *frame)
{
    ls__visitor *v = hub->slots[launcher].visitor;
    if (v) ls__node_link_send(&v->link, frame);
}

void ls__hub_broadcast(ls__hub *hub, const ls__node_frame *frame)
{
    for (int i = 0; i < hub->options.launchers; i++) ls__hub_send(hub, i, frame);
}

void ls__hub_refuse_all(ls__hub *hub, const char *why)
{
    hub->over = true;
    for (ls__visitor *v = hub->visitors; v; v = v->next)
        if (v->state != LS__VISITOR_LEAVING && !v->link.broken)
            ls__visitor_refuse(hub, v, false, why);
}

static bool anybody(const ls__hub *hub)
{
    for (const ls__visitor *v = hub->visitors; v; v = v->next)
        if (!v->link.broken) return true;
    return false;
}

void ls__hub_drain(ls__hub *hub, double seconds)
{
    double deadline = ls__now() + seconds;
    hub->over = true;
    for (;;) {
        ls__hub_serve(hub);
        double left = deadline - ls__now();
        if (!anybody(hub) || left <= 0) return;
        struct pollfd p = { .fd = hub->epoll_fd, .events = POLLIN };
        poll(&p, 1, left > 0.1 ? 100 : (int)(left * 1000) + 1);
    }
}
