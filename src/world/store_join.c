/* Coming to a store's server from outside: connect, say hello, be welcomed or refused. Nobody says
 * when the server begins to listen, so connecting is tried again with growing pauses (1 to 50 ms)
 * until the time is over. */
#include "world/store_server.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "world/store_client.h"

ls_status ls__listen_tcp(const char *address, int *port, int *fd)
{
    char service[16];
    snprintf(service, sizeof service, "%d", *port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    int error = getaddrinfo(address, service, &hints, &found);
    if (error) return ls_fail(LS_ERR_CONFIG, "address %s: %s", address, gai_strerror(error));
    int s = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (s >= 0) setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool ok =
        s >= 0 && bind(s, found->ai_addr, found->ai_addrlen) == 0 && listen(s, SOMAXCONN) == 0;
    freeaddrinfo(found);
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (!ok || getsockname(s, (struct sockaddr *)&bound, &size) != 0) {
        ls_status status =
            ls__fail_errno(LS_ERR_CONFIG, "cannot listen on %s port %d", address, *port);
        if (s >= 0) close(s);
        return status;
    }
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)&bound)->sin_port);
    *fd = s;
    return LS_OK;
}

int ls__peer_pid_fd(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return -1;
    return pidfd_open(peer.pid, 0);
}

/* A connected socket, or -1 with errno. */
static int connect_unix(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t n = strlen(name); /* abstract: a NUL byte, then the name */
    LS_ASSERT(n < sizeof address.sun_path - 1);
    memcpy(address.sun_path + 1, name, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    if (connect(fd, (struct sockaddr *)&address, size) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int connect_tcp(const char *host, int port)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
    if (getaddrinfo(host, service, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1, error = ECONNREFUSED;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) == 0) continue;
        error = errno;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    int on = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    errno = error;
    return fd;
}

static bool may_come_yet(int error)
{
    return error == ECONNREFUSED || error == ENOENT || error == EAGAIN || error == EINTR ||
           error == ETIMEDOUT || error == EHOSTUNREACH || error == ECONNRESET;
}

/* Milliseconds until the deadline (ls__now() scale); -1 = none. */
static int left_ms(double deadline)
{
    if (deadline < 0) return -1;
    double left = deadline - ls__now();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

static ls_status connect_until(const ls__address *address, double deadline, int *fd)
{
    for (int pause_ms = 1;; pause_ms = pause_ms < 50 ? pause_ms * 2 : 50) {
        *fd =
            address->host ? connect_tcp(address->host, address->port) : connect_unix(address->name);
        if (*fd >= 0) return LS_OK;
        if (!may_come_yet(errno)) return ls__fail_errno(LS_ERR_PEER, "cannot connect");
        int left = left_ms(deadline);
        if (left == 0) return ls__fail_errno(LS_ERR_TIMEOUT, "nobody answered");
        ls__sleep_ms(left > 0 && left < pause_ms ? left : pause_ms);
    }
}

/* More bytes of the answer, and the descriptors beside them. */
static ssize_t receive(int fd, char *data, size_t room, int *fds, int nfds)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = { .iov_base = data, .iov_len = room };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n <= 0) return n;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        int got[2], ngot = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(got, CMSG_DATA(head), (size_t)(ngot < 2 ? ngot : 2) * sizeof(int));
        for (int i = 0; i < ngot && i < 2; i++) {
            if (i < nfds && fds[i] < 0)
                fds[i] = got[i];
            else
                close(got[i]);
        }
    }
    return n;
}

static ls_status await_answer(int fd, double deadline, int *fds, int nfds)
{
    char data[LS__FRAME_HEADER + LS__KEY_MAX + 1024];
    size_t have = 0, want = LS__FRAME_HEADER; /* no byte more: what follows is not ours to read */
    for (;;) {
        int ready = poll(&(struct pollfd) { .fd = fd, .events = POLLIN }, 1, left_ms(deadline));
        if (ready == 0) return ls_fail(LS_ERR_TIMEOUT, "connected, but not welcomed");
        ssize_t n = receive(fd, data + have, want - have, fds, nfds);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return ls_fail(LS_ERR_PEER, "the connection ended before a welcome");
        have += (size_t)n;
        if (have < want) continue;
        ls__frame answer;
        size_t used;
        LS_TRY(ls__frame_parse(data, have, &answer, &used));
        if (used == 0) {
            uint32_t rest;
            memcpy(&rest, data, sizeof rest);
            want = sizeof rest + (size_t)le32toh(rest);
            if (want > sizeof data) return ls_fail(LS_ERR_DATA, "the answer to hello is too long");
            continue;
        }
        if (answer.type != LS__FRAME_REPLY)
            return ls_fail(LS_ERR_DATA, "the answer to hello is none");
        if (answer.status == LS_OK) return LS_OK;
        char text[512];
        ls__frame_text(&answer, text, sizeof text);
        return ls_fail(answer.status, "%s", text);
    }
}

/* Over a Unix socket the server, too, must be ours: anybody may take an abstract name. */
static ls_status check_server(const ls__address *address, int fd)
{
    if (address->host) return LS_OK;
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "the name %s is held by another user's process %d", address->name,
                   (int)peer.pid);
}

static ls_status say_hello(int fd, int rank, int size, const ls__greeting *greeting)
{
    char data[LS__FRAME_HEADER + LS__KEY_MAX + LS__SECRET_SIZE];
    ls__frame hello = { .type = LS__FRAME_HELLO,
                        .id = 1,
                        .number = (int64_t)size << 32 | rank,
                        .key = greeting->job,
                        .key_nbytes = strlen(greeting->job),
                        .value = greeting->secret,
                        .nbytes = greeting->secret ? LS__SECRET_SIZE : 0 };
    ls__frame_write(&hello, data);
    return ls__socket_write(fd, data, ls__frame_size(&hello));
}

ls_status ls__server_join(const ls__address *address, int rank, int size,
                          const ls__greeting *greeting, int timeout_ms, int *fd, int *fds)
{
    double deadline = timeout_ms < 0 ? -1 : ls__now() + timeout_ms * 1e-3;
    *fd = -1;
    for (int i = 0; i < greeting->nfds; i++) fds[i] = -1;
    ls_status status;
    do { /* a server that ends before its welcome is one of the job before: try again */
        int s;
        LS_TRY(connect_until(address, deadline, &s));
        status = check_server(address, s);
        if (status == LS_OK) status = say_hello(s, rank, size, greeting);
        if (status == LS_OK) status = await_answer(s, deadline, fds, greeting->nfds);
        if (status == LS_OK) {
            *fd = s;
            return LS_OK;
        }
        close(s);
        if (status == LS_ERR_PEER) ls__sleep_ms(10);
    } while (status == LS_ERR_PEER && left_ms(deadline) != 0);
    for (int i = 0; i < greeting->nfds; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
    return status;
}
