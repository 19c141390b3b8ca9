/* The store's server. One epoll set holds all connections, and it can itself be watched by another
 * one, so that the supervisor serves the store between two looks at its children. What cannot be
 * sent at once waits in the connection's buffer. Expected: tens of connections, short frames. */
#include "world/store_server_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

enum {
    STRANGERS_MAX = 64, /* connections that have not said hello */
    OUT_MAX = 1 << 26,  /* bytes that wait for a client that does not read */
    EVENTS = 32,
    HELLO_MAX = 1024, /* bytes of a stranger that are kept */
};
static const double hello_seconds = 10;

ls_status ls__server_create(int size, const ls__server_hooks *hooks, ls__server **out)
{
    *out = NULL;
    ls_status status = LS_ERR_MEMORY;
    ls__server *server = ls__alloc(1, sizeof *server);
    if (!server) return status;
    server->size = size;
    server->hooks = *hooks;
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll_fd < 0) {
        status = ls__fail_errno(LS_ERR_INTERNAL, "epoll_create1");
        goto failed;
    }
    server->pids = ls__alloc((size_t)size, sizeof *server->pids);
    if (!server->pids) goto failed;
    LS_TRY_GOTO(ls__core_create(&server->core), status, failed);
    *out = server;
    return LS_OK;
failed:
    ls__server_destroy(server);
    return status;
}

static void connection_free(ls__connection *l)
{
    if (l->fd >= 0) close(l->fd);
    if (l->pid_fd >= 0) close(l->pid_fd);
    ls__bytes_free(&l->in);
    ls__bytes_free(&l->out);
    ls__free(l);
}

void ls__server_destroy(ls__server *server)
{
    if (!server) return;
    for (ls__connection *l = server->links; l;) {
        ls__connection *next = l->next;
        if (server->core) ls__core_forget(server->core, l);
        if (server->core) ls__server_forget_proxies(l);
        connection_free(l);
        l = next;
    }
    ls__core_destroy(server->core);
    for (int i = 0; i < server->nlisteners; i++) close(server->listeners[i].fd);
    if (server->epoll_fd >= 0) close(server->epoll_fd);
    ls__free(server->pids);
    ls__free(server);
}

int ls__server_fd(const ls__server *server)
{
    return server->epoll_fd;
}

int ls__server_connected(const ls__server *server)
{
    int n = 0;
    for (const ls__connection *l = server->links; l; l = l->next)
        n += l->peer == LS__PEER_RANK && !l->dead;
    return n;
}

static ls_status connection_add(ls__server *server, int fd, int rank, ls__connection **out)
{
    ls__connection *l = ls__alloc(1, sizeof *l);
    if (!l) {
        close(fd);
        return LS_ERR_MEMORY;
    }
    *l = (ls__connection) { .server = server,
                            .fd = fd,
                            .pid_fd = -1,
                            .rank = rank,
                            .since = ls__now(),
                            .heard = ls__now() };
    if (rank >= 0) l->peer = LS__PEER_RANK;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = l };
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        ls_status status = ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
        connection_free(l);
        return status;
    }
    l->next = server->links;
    server->links = l;
    if (out) *out = l;
    return LS_OK;
}

ls_status ls__server_listen(ls__server *server, int fd, const ls__greeting *greeting)
{
    LS_ASSERT(server->nlisteners < LS__LISTENERS);
    ls__listener *listener = &server->listeners[server->nlisteners++];
    *listener = (ls__listener) { .fd = fd, .greeting = *greeting };
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = listener };
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    return LS_OK;
}

static void tell_closed(const ls__connection *l)
{
    const ls__server_hooks *hooks = &l->server->hooks;
    if (l->peer == LS__PEER_RANK) hooks->closed(hooks->user, l->rank);
    if (l->peer == LS__PEER_NODE || l->peer == LS__PEER_UPLINK)
        hooks->node_closed(hooks->user, l->peer == LS__PEER_NODE ? l->rank : -1);
}

void ls__connection_close(ls__connection *l)
{
    if (l->dead) return;
    l->dead = true;
    ls__core_forget(l->server->core, l);
    ls__server_forget_proxies(l);
    if (l->fd >= 0) close(l->fd);
    if (l->pid_fd >= 0) close(l->pid_fd);
    l->fd = l->pid_fd = -1;
    tell_closed(l);
}

void ls__connection_flush(ls__connection *l)
{
    ls__bytes *out = &l->out;
    if (l->fd < 0) return;
    while (out->begin < out->end) {
        ssize_t n =
            send(l->fd, out->data + out->begin, out->end - out->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            out->begin += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else {
            return; /* reading will see the end, after what the peer has still said */
        }
    }
    bool writing = out->begin < out->end;
    if (writing == l->writing) return;
    l->writing = writing;
    struct epoll_event event = { .events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = l };
    epoll_ctl(l->server->epoll_fd, EPOLL_CTL_MOD, l->fd, &event);
}

void ls__connection_send(ls__connection *l, const ls__frame *frame)
{
    if (l->dead) return;
    if (l->out.end - l->out.begin > OUT_MAX || ls__bytes_append_frame(&l->out, frame) != LS_OK) {
        ls__connection_close(l);
        return;
    }
    ls__connection_flush(l);
}

static void reply(void *client, const ls__frame *frame)
{
    ls__connection *l = client;
    /* Under the core's lock: connection_close would come back to it. An overfull buffer is seen later. */
    if (!l->dead && ls__bytes_append_frame(&l->out, frame) == LS_OK) ls__connection_flush(l);
}

void ls__server_send(ls__server *server, int rank, const ls__frame *frame)
{
    for (ls__connection *l = server->links; l; l = l->next)
        if (l->rank == rank && l->peer == LS__PEER_RANK) ls__connection_send(l, frame);
}

void ls__server_broadcast(ls__server *server, const ls__frame *frame)
{
    for (ls__connection *l = server->links; l; l = l->next)
        if (l->peer == LS__PEER_RANK) ls__connection_send(l, frame);
}

ls_status ls__server_add(ls__server *server, int fd, int rank)
{
    server->pids[rank] = ls__peer_pid(fd);
    return connection_add(server, fd, rank, NULL);
}

bool ls__frame_is_request(const ls__frame *frame)
{
    return frame->type >= LS__FRAME_SET && frame->type <= LS__FRAME_CANCEL;
}

static void rank_frame(ls__connection *l, const ls__frame *frame)
{
    ls__server *server = l->server;
    if (ls__frame_is_request(frame)) {
        if (server->uplink)
            ls__server_forward(l, frame);
        else
            ls__core_request(server->core, l, reply, l->rank, frame);
    } else if (frame->type >= LS__FRAME_GOODBYE && frame->type <= LS__FRAME_FOLDER) {
        server->hooks.frame(server->hooks.user, l->rank, frame);
    } else {
        ls__connection_close(l); /* only servers say that */
    }
}

static void handle(ls__connection *l, const ls__frame *frame)
{
    switch (l->peer) {
    case LS__PEER_STRANGER:
        ls__server_stranger(l, frame);
        break;
    case LS__PEER_RANK:
        rank_frame(l, frame);
        break;
    case LS__PEER_NODE:
        ls__server_node_frame(l, frame);
        break;
    case LS__PEER_UPLINK:
        ls__server_uplink_frame(l, frame);
        break;
    }
}

/* Reads once; false = there was nothing, or the connection has ended. */
static bool connection_read(ls__connection *l)
{
    ls__bytes *in = &l->in;
    if (ls__bytes_reserve(in, 4096) != LS_OK) {
        ls__connection_close(l);
        return false;
    }
    ssize_t n = recv(l->fd, in->data + in->end, in->capacity - in->end, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (n <= 0) {
        ls__connection_close(l);
        return false;
    }
    in->end += (size_t)n;
    l->heard = ls__now();
    while (!l->dead) {
        ls__frame frame;
        size_t used;
        if (ls__frame_parse(in->data + in->begin, in->end - in->begin, &frame, &used) != LS_OK) {
            ls__connection_close(l);
            return false;
        }
        if (used == 0 && l->peer == LS__PEER_STRANGER && in->end - in->begin >= HELLO_MAX)
            ls__connection_close(l);
        if (used == 0) return !l->dead;
        handle(l, &frame);
        in->begin += used;
    }
    return false;
}

/* Strangers may not hold connections: the oldest goes when there are too many, and each after some
 * seconds without a hello. */
static void evict_strangers(ls__server *server)
{
    int strangers = 0;
    ls__connection *oldest = NULL;
    double now = ls__now();
    for (ls__connection *l = server->links; l; l = l->next) {
        if (l->peer != LS__PEER_STRANGER || l->dead) continue;
        if (now - l->since > hello_seconds) {
            ls__connection_close(l);
            continue;
        }
        strangers++;
        if (!oldest || l->since < oldest->since) oldest = l;
    }
    if (strangers > STRANGERS_MAX) ls__connection_close(oldest);
}

static void accept_all(ls__server *server, const ls__listener *listener)
{
    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) return;
        ls__connection *l = NULL;
        if (connection_add(server, fd, -1, &l) != LS_OK) continue;
        l->from = listener;
        evict_strangers(server);
    }
}

static const ls__listener *listener_of(const ls__server *server, const void *tag)
{
    for (int i = 0; i < server->nlisteners; i++)
        if (tag == &server->listeners[i]) return &server->listeners[i];
    return NULL;
}

static void free_dead(ls__server *server)
{
    for (ls__connection **at = &server->links; *at;) {
        ls__connection *l = *at;
        if (l->dead) {
            *at = l->next;
            if (server->uplink == l) server->uplink = NULL;
            connection_free(l);
        } else {
            at = &l->next;
        }
    }
}

ls_status ls__server_serve(ls__server *server)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(server->epoll_fd, events, EVENTS, 0);
    if (n < 0 && errno != EINTR) return ls__fail_errno(LS_ERR_INTERNAL, "epoll_wait");
    for (int i = 0; i < n; i++) {
        const ls__listener *listener = listener_of(server, events[i].data.ptr);
        if (listener) {
            accept_all(server, listener);
            continue;
        }
        ls__connection *l = (ls__connection *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)1);
        if (events[i].data.u64 & 1) { /* its process died: what it said, then the end */
            while (!l->dead && connection_read(l)) {}
            ls__connection_close(l);
            continue;
        }
        if (!l->dead && (events[i].events & EPOLLOUT)) ls__connection_flush(l);
        if (!l->dead && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) connection_read(l);
    }
    free_dead(server);
    return LS_OK;
}

ls_status ls__server_relay(ls__server *server)
{
    ls__connection *l = ls__alloc(1, sizeof *l);
    if (!l) return LS_ERR_MEMORY;
    *l = (ls__connection) {
        .server = server, .fd = -1, .pid_fd = -1, .rank = -1, .peer = LS__PEER_UPLINK
    };
    l->next = server->links;
    server->links = server->uplink = l;
    return LS_OK;
}

ls_status ls__server_set_uplink(ls__server *server, int fd)
{
    ls__connection *l = server->uplink;
    LS_ASSERT(l && l->fd < 0);
    l->fd = fd;
    l->heard = ls__now();
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = l };
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    ls__connection_flush(l);
    return LS_OK;
}

void ls__server_drain(ls__server *server, int rank)
{
    for (ls__connection *l = server->links; l; l = l->next)
        while (l->peer == LS__PEER_RANK && l->rank == rank && !l->dead && connection_read(l)) {}
}
