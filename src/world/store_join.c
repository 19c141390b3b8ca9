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

#include "base/address.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mac.h"
#include "world/store_client.h"

enum { CONNECT_MS = 3000, ANSWER_MAX = LS__FRAME_HEADER + LS__KEY_MAX + 1024, WHO_MAX = 300 };

ls_status ls__listen_tcp(const char *address, int *port, int *fd)
{
    char service[16];
    snprintf(service, sizeof service, "%d", *port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    /* "::" takes IPv4 as well; a machine without IPv6 has only that. */
    int error = ls__address_find(address ? address : "::", service, &hints, &found);
    if (error) return ls_fail(LS_ERR_CONFIG, "address %s: %s", address, gai_strerror(error));
    int s = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (s < 0 && !address) {
        freeaddrinfo(found);
        return ls__listen_tcp("0.0.0.0", port, fd);
    }
    if (s >= 0) setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s >= 0 && !address) {
        int off = 0;
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    bool ok =
        s >= 0 && bind(s, found->ai_addr, found->ai_addrlen) == 0 && listen(s, SOMAXCONN) == 0;
    int reason = errno;
    freeaddrinfo(found);
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (!ok || getsockname(s, (struct sockaddr *)&bound, &size) != 0) {
        errno = ok ? errno : reason;
        ls_status status =
            ls__fail_errno(errno == EADDRINUSE ? LS_ERR_PEER : LS_ERR_CONFIG,
                           "cannot listen on %s port %d", address ? address : "any address", *port);
        if (s >= 0) close(s);
        *fd = -1;
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

/* Nothing in a network need answer: at most limit_ms. The socket stays non-blocking. */
static int connect_one(const struct addrinfo *a, int limit_ms)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    int error = errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        struct pollfd wait = { .fd = fd, .events = POLLOUT };
        int n = poll(&wait, 1, limit_ms);
        error = n <= 0 ? ETIMEDOUT : 0;
        if (n > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error == 0) return fd;
    }
    close(fd);
    errno = error;
    return -1;
}

static int connect_tcp(const char *host, int port, int limit_ms)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
    if (ls__address_find(host, service, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1, error = ECONNREFUSED;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = connect_one(a, limit_ms);
        if (fd < 0) error = errno;
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
           error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
           error == ECONNRESET;
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
        int left = left_ms(deadline), limit = left >= 0 && left < CONNECT_MS ? left : CONNECT_MS;
        *fd = address->host ? connect_tcp(address->host, address->port, limit)
                            : connect_unix(address->name);
        if (*fd >= 0) return LS_OK;
        if (!may_come_yet(errno)) return ls__fail_errno(LS_ERR_PEER, "cannot connect");
        left = left_ms(deadline);
        if (left == 0) return ls__fail_errno(LS_ERR_TIMEOUT, "nobody answered");
        ls__sleep_ms(left > 0 && left < pause_ms ? left : pause_ms);
    }
}

ls_status ls__connect(const ls__address *address, int timeout_ms, int *fd)
{
    return connect_until(address, timeout_ms < 0 ? -1 : ls__now() + timeout_ms * 1e-3, fd);
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

/* One frame of this type, or a refusal. answer borrows data. */
static ls_status await_answer(int fd, double deadline, ls__frame_type type, char data[ANSWER_MAX],
                              ls__frame *answer, ls__welcome *out, int nfds)
{
    size_t have = 0, want = LS__FRAME_HEADER; /* no byte more: what follows is not ours to read */
    for (;;) {
        int ready = poll(&(struct pollfd) { .fd = fd, .events = POLLIN }, 1, left_ms(deadline));
        if (ready == 0) return ls_fail(LS_ERR_TIMEOUT, "connected, but not welcomed");
        ssize_t n = receive(fd, data + have, want - have, out->fds, nfds);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return ls_fail(LS_ERR_PEER, "the connection ended before a welcome");
        have += (size_t)n;
        if (have < want) continue;
        size_t used;
        LS_TRY(ls__frame_parse(data, have, answer, &used));
        if (used == 0) {
            uint32_t rest;
            memcpy(&rest, data, sizeof rest);
            want = sizeof rest + (size_t)le32toh(rest);
            if (want > ANSWER_MAX) return ls_fail(LS_ERR_DATA, "the answer to hello is too long");
            continue;
        }
        if (answer->type != type) return ls_fail(LS_ERR_DATA, "the answer to hello is none");
        if (answer->status == LS_OK) return LS_OK;
        char text[512];
        ls__frame_text(answer, text, sizeof text);
        return ls_fail(answer->status, "%s", text);
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

/* Asks for a challenge; mac: the answer, when there is a secret. */
static ls_status prove(int fd, const ls__address *address, const ls__greeting *greeting,
                       double deadline, uint8_t mac[LS__MAC_BYTES])
{
    uint8_t nonce[LS__NONCE_BYTES], expected[LS__MAC_BYTES];
    char data[ANSWER_MAX];
    ls__welcome none = { .fds = { -1, -1 } };
    LS_TRY(ls__random_bytes(nonce, sizeof nonce));
    ls__frame frame = { .type = LS__FRAME_CALL, .value = (char *)nonce, .nbytes = sizeof nonce };
    ls__frame_write(&frame, data);
    LS_TRY(ls__socket_write(fd, data, ls__frame_size(&frame)));
    LS_TRY(await_answer(fd, deadline, LS__FRAME_CHALLENGE, data, &frame, &none, 0));
    if (!greeting->secret && frame.nbytes == 0) return LS_OK;
    if (!greeting->secret)
        return ls_fail(LS_ERR_CONFIG, "the job has a secret; set LOCKSTEP_SECRET to it");
    if (frame.nbytes == 0)
        return ls_fail(LS_ERR_CONFIG,
                       "LOCKSTEP_SECRET is set here, but not where rank 0 is; set it on every "
                       "machine or on none");
    if (frame.nbytes == LS__NONCE_BYTES + LS__MAC_BYTES) {
        const uint8_t *theirs = (const uint8_t *)frame.value;
        ls__mac(greeting->secret, "listener", nonce, theirs, expected);
        if (ls__mac_equal(expected, theirs + LS__NONCE_BYTES)) {
            ls__mac(greeting->secret, "caller", nonce, theirs, mac);
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_CONFIG,
                   "who listens at %s port %d does not know the job's secret (LOCKSTEP_SECRET)",
                   address->host, address->port);
}

static ls_status say_hello(int fd, const ls__address *address, int rank, int size,
                           const ls__greeting *greeting, double deadline)
{
    char data[LS__FRAME_HEADER + LS__KEY_MAX + LS__MAC_BYTES + WHO_MAX];
    uint8_t value[LS__MAC_BYTES + WHO_MAX];
    size_t nbytes = 0, who = greeting->who ? strnlen(greeting->who, WHO_MAX) : 0;
    if (address->host) {
        LS_TRY(prove(fd, address, greeting, deadline, value));
        if (greeting->secret) nbytes = LS__MAC_BYTES;
    }
    if (who > 0) memcpy(value + nbytes, greeting->who, who);
    ls__frame hello = { .type = LS__FRAME_HELLO,
                        .id = 1,
                        .number = (int64_t)size << 32 | rank,
                        .key = greeting->job,
                        .key_nbytes = strlen(greeting->job),
                        .value = (char *)value,
                        .nbytes = nbytes + who };
    ls__frame_write(&hello, data);
    return ls__socket_write(fd, data, ls__frame_size(&hello));
}

static ls_status try_once(int fd, const ls__address *address, int rank, int size,
                          const ls__greeting *greeting, double deadline, ls__welcome *out)
{
    char data[ANSWER_MAX];
    ls__frame answer;
    LS_TRY(check_server(address, fd));
    LS_TRY(say_hello(fd, address, rank, size, greeting, deadline));
    LS_TRY(await_answer(fd, deadline, LS__FRAME_REPLY, data, &answer, out, greeting->nfds));
    out->root = (int)answer.number;
    return LS_OK;
}

ls_status ls__server_join(const ls__address *address, int rank, int size,
                          const ls__greeting *greeting, int timeout_ms, ls__welcome *out)
{
    double deadline = timeout_ms < 0 ? -1 : ls__now() + timeout_ms * 1e-3;
    char refusal[512] = "";
    ls_status status;
    *out = (ls__welcome) { .fd = -1, .fds = { -1, -1 } };
    for (;;) { /* a server that ends before its welcome is one of the job before: try again */
        int s;
        status = connect_until(address, deadline, &s);
        if (status != LS_OK) break;
        status = try_once(s, address, rank, size, greeting, deadline, out);
        if (status == LS_OK) {
            out->fd = s;
            return LS_OK;
        }
        close(s);
        if (status != LS_ERR_PEER || left_ms(deadline) == 0) break;
        snprintf(refusal, sizeof refusal, "%s", ls_error_text());
        ls__sleep_ms(10);
    }
    /* why we were not let in says more than that the time ran out during the next call */
    if (status == LS_ERR_TIMEOUT && refusal[0]) status = ls_fail(LS_ERR_PEER, "%s", refusal);
    for (int i = 0; i < 2; i++) {
        if (out->fds[i] >= 0) close(out->fds[i]);
        out->fds[i] = -1;
    }
    return status;
}
