/* The store's server. One epoll set holds all connections, and it can itself be watched by another
 * one, so that the supervisor serves the store between two looks at its children. What cannot be
 * sent at once waits in the connection's buffer. Expected: tens of connections, short frames. */
#include "world/store_server.h"

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
#include "world/store_core.h"

enum {
    STRANGERS_MAX = 64, /* connections that have not said hello */
    OUT_MAX = 1 << 26,  /* bytes that wait for a client that does not read */
    EVENTS = 32,
    HELLO_MAX = 1024, /* bytes of a stranger that are kept */
};
static const double hello_seconds = 10;

typedef struct connection {
    struct connection *next;
    ls__server *server;
    int fd;
    int pid_fd; /* of who joined: a child of it may keep the socket open after its death */
    int rank;   /* -1: has not said hello */
    double since;
    bool dead; /* closed and freed after the round of events */
    bool writing;
    ls__bytes in, out;
} connection;

struct ls__server {
    int size, epoll_fd, listen_fd;
    ls__server_hooks hooks;
    ls__greeting greeting;
    ls__core *core;
    connection *links;
    int *pids; /* (size) of who joined by hello */
};

ls_status ls__server_create(int size, const ls__server_hooks *hooks, ls__server **out)
{
    *out = NULL;
    ls_status status = LS_ERR_MEMORY;
    ls__server *server = ls__alloc(1, sizeof *server);
    if (!server) return status;
    server->size = size;
    server->hooks = *hooks;
    server->listen_fd = -1;
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

static void connection_free(connection *l)
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
    for (connection *l = server->links; l;) {
        connection *next = l->next;
        if (server->core) ls__core_forget(server->core, l);
        connection_free(l);
        l = next;
    }
    ls__core_destroy(server->core);
    if (server->listen_fd >= 0) close(server->listen_fd);
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
    for (const connection *l = server->links; l; l = l->next) n += l->rank >= 0 && !l->dead;
    return n;
}

static ls_status connection_add(ls__server *server, int fd, int rank, connection **out)
{
    connection *l = ls__alloc(1, sizeof *l);
    if (!l) {
        close(fd);
        return LS_ERR_MEMORY;
    }
    *l =
        (connection) { .server = server, .fd = fd, .pid_fd = -1, .rank = rank, .since = ls__now() };
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
    server->listen_fd = fd;
    server->greeting = *greeting;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = server };
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "epoll_ctl");
    return LS_OK;
}

/* Ends a connection; the memory stays until the round of events is over. */
static void connection_close(connection *l)
{
    if (l->dead) return;
    l->dead = true;
    ls__core_forget(l->server->core, l);
    close(l->fd);
    if (l->pid_fd >= 0) close(l->pid_fd);
    l->fd = l->pid_fd = -1;
    if (l->rank >= 0) l->server->hooks.closed(l->server->hooks.user, l->rank);
}

static void connection_flush(connection *l)
{
    ls__bytes *out = &l->out;
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

static void connection_send(connection *l, const ls__frame *frame)
{
    if (l->dead) return;
    if (l->out.end - l->out.begin > OUT_MAX || ls__bytes_append_frame(&l->out, frame) != LS_OK) {
        connection_close(l);
        return;
    }
    connection_flush(l);
}

static void reply(void *client, const ls__frame *frame)
{
    connection *l = client;
    /* Under the core's lock: connection_close would come back to it. An overfull buffer is seen later. */
    if (!l->dead && ls__bytes_append_frame(&l->out, frame) == LS_OK) connection_flush(l);
}

void ls__server_send(ls__server *server, int rank, const ls__frame *frame)
{
    for (connection *l = server->links; l; l = l->next)
        if (l->rank == rank) connection_send(l, frame);
}

void ls__server_broadcast(ls__server *server, const ls__frame *frame)
{
    for (connection *l = server->links; l; l = l->next)
        if (l->rank >= 0) connection_send(l, frame);
}

static int peer_pid(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
    return known ? (int)peer.pid : -1;
}

ls_status ls__server_add(ls__server *server, int fd, int rank)
{
    server->pids[rank] = peer_pid(fd);
    return connection_add(server, fd, rank, NULL);
}

static bool peer_is_us(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* In a time that does not depend on where they differ. */
static bool same_secret(const char *a, const char *b)
{
    unsigned different = 0;
    for (int i = 0; i < LS__SECRET_SIZE; i++)
        different |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return different == 0;
}

static ls_status check_hello(const connection *l, const ls__frame *hello)
{
    const ls__server *server = l->server;
    const ls__greeting *greeting = &server->greeting;
    int rank = (int)(hello->number & 0xffffffff), size = (int)(hello->number >> 32);
    if (greeting->secret &&
        (hello->nbytes != LS__SECRET_SIZE || !same_secret(hello->value, greeting->secret)))
        return ls_fail(LS_ERR_CONFIG, "the job's secret is not the one given");
    if (!greeting->secret && !peer_is_us(l->fd))
        return ls_fail(LS_ERR_CONFIG, "the job belongs to another user");
    if (hello->key_nbytes != strlen(greeting->job) ||
        memcmp(hello->key, greeting->job, hello->key_nbytes) != 0)
        return ls_fail(LS_ERR_CONFIG, "this is job %s, not %.*s", greeting->job,
                       (int)hello->key_nbytes, hello->key);
    if (size != server->size)
        return ls_fail(LS_ERR_CONFIG,
                       "rank %d was told that there are %d ranks, others that there "
                       "are %d",
                       rank, size, server->size);
    if (rank < 0 || rank >= size)
        return ls_fail(LS_ERR_CONFIG, "rank %d is not in [0, %d)", rank, size);
    for (const connection *other = server->links; other; other = other->next) {
        if (other->rank != rank || other->dead) continue;
        return ls_fail(LS_ERR_CONFIG, "rank %d is taken already, by process %d", rank,
                       server->pids[rank]);
    }
    return LS_OK;
}

/* The answer to a hello in one message, descriptors attached; nothing was sent before it. */
static bool send_answer(const connection *l, const ls__frame *answer, bool welcome)
{
    char data[LS__FRAME_HEADER + 512];
    struct iovec part = { .iov_base = data, .iov_len = ls__frame_size(answer) };
    ls__frame_write(answer, data);
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = { 0 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    const ls__greeting *greeting = &l->server->greeting;
    if (welcome && greeting->nfds > 0) {
        size_t nbytes = (size_t)greeting->nfds * sizeof(int);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(nbytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(nbytes);
        memcpy(CMSG_DATA(head), greeting->fds, nbytes);
    }
    ssize_t n = sendmsg(l->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == (ssize_t)part.iov_len;
}

/* The low bit of the pointer marks events of the process. */
static void watch_process(connection *l)
{
    l->pid_fd = ls__peer_pid_fd(l->fd);
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)l | 1 };
    if (l->pid_fd >= 0) epoll_ctl(l->server->epoll_fd, EPOLL_CTL_ADD, l->pid_fd, &event);
}

static void hello(connection *l, const ls__frame *frame)
{
    ls__server *server = l->server;
    ls_status status = frame->type == LS__FRAME_HELLO
                           ? check_hello(l, frame)
                           : ls_fail(LS_ERR_CONFIG, "a connection did not begin with hello");
    char text[512] = "";
    if (status != LS_OK) snprintf(text, sizeof text, "%s", ls_error_text());
    ls__frame answer = { .type = LS__FRAME_REPLY,
                         .status = status,
                         .id = frame->id,
                         .value = text,
                         .nbytes = strlen(text) };
    if (!send_answer(l, &answer, status == LS_OK) || status != LS_OK) {
        connection_close(l);
        return;
    }
    l->rank = (int)(frame->number & 0xffffffff);
    server->pids[l->rank] = peer_pid(l->fd);
    watch_process(l);
    if (server->hooks.joined)
        server->hooks.joined(server->hooks.user, l->rank, server->pids[l->rank]);
}

static void handle(connection *l, const ls__frame *frame)
{
    ls__server *server = l->server;
    if (l->rank < 0) {
        hello(l, frame);
        return;
    }
    switch (frame->type) {
    case LS__FRAME_SET:
    case LS__FRAME_GET:
    case LS__FRAME_ADD:
    case LS__FRAME_DELETE:
    case LS__FRAME_BARRIER:
    case LS__FRAME_CANCEL:
        ls__core_request(server->core, l, reply, l->rank, frame);
        break;
    case LS__FRAME_GOODBYE:
    case LS__FRAME_FAILED:
    case LS__FRAME_ABORT:
    case LS__FRAME_SIGNAL:
    case LS__FRAME_PROGRESS:
    case LS__FRAME_CHECKPOINT:
    case LS__FRAME_FOLDER:
        server->hooks.frame(server->hooks.user, l->rank, frame);
        break;
    default:
        connection_close(l); /* only servers say that */
    }
}

/* Reads once; false = there was nothing, or the connection has ended. */
static bool connection_read(connection *l)
{
    ls__bytes *in = &l->in;
    if (ls__bytes_reserve(in, 4096) != LS_OK) {
        connection_close(l);
        return false;
    }
    ssize_t n = recv(l->fd, in->data + in->end, in->capacity - in->end, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (n <= 0) {
        connection_close(l);
        return false;
    }
    in->end += (size_t)n;
    while (!l->dead) {
        ls__frame frame;
        size_t used;
        if (ls__frame_parse(in->data + in->begin, in->end - in->begin, &frame, &used) != LS_OK) {
            connection_close(l);
            return false;
        }
        if (used == 0 && l->rank < 0 && in->end - in->begin >= HELLO_MAX) connection_close(l);
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
    connection *oldest = NULL;
    double now = ls__now();
    for (connection *l = server->links; l; l = l->next) {
        if (l->rank >= 0 || l->dead) continue;
        if (now - l->since > hello_seconds) {
            connection_close(l);
            continue;
        }
        strangers++;
        if (!oldest || l->since < oldest->since) oldest = l;
    }
    if (strangers > STRANGERS_MAX) connection_close(oldest);
}

static void accept_all(ls__server *server)
{
    for (;;) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR) continue;
        if (fd < 0) return;
        if (connection_add(server, fd, -1, NULL) == LS_OK) evict_strangers(server);
    }
}

static void free_dead(ls__server *server)
{
    for (connection **at = &server->links; *at;) {
        connection *l = *at;
        if (l->dead) {
            *at = l->next;
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
        if (events[i].data.ptr == server) {
            accept_all(server);
            continue;
        }
        connection *l = (connection *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)1);
        if (events[i].data.u64 & 1) { /* its process died: what it said, then the end */
            while (!l->dead && connection_read(l)) {}
            connection_close(l);
            continue;
        }
        if (!l->dead && (events[i].events & EPOLLOUT)) connection_flush(l);
        if (!l->dead && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) connection_read(l);
    }
    free_dead(server);
    return LS_OK;
}

void ls__server_drain(ls__server *server, int rank)
{
    for (connection *l = server->links; l; l = l->next)
        while (l->rank == rank && !l->dead && connection_read(l)) {}
}
