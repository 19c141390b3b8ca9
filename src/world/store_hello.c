/* A server's end of coming together: who calls is given a challenge over TCP, says hello, and is let in
 * or refused with a text. Over Unix sockets the kernel says whose process it is. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "world/store_server_internal.h"

int ls__peer_pid(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
    return known ? (int)peer.pid : -1;
}

static bool peer_is_us(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static bool answers_challenge(const ls__connection *l, const ls__frame *hello)
{
    uint8_t mac[LS__MAC_BYTES];
    if (!l->called || hello->nbytes < LS__MAC_BYTES) return false;
    ls__mac(l->from->greeting.secret, "caller", l->nonce_c, l->nonce_l, mac);
    return ls__mac_equal((const uint8_t *)hello->value, mac);
}

static ls_status check_trust(const ls__connection *l, const ls__frame *hello)
{
    const ls__greeting *greeting = &l->from->greeting;
    if (!greeting->tcp && !peer_is_us(l->fd))
        return ls_fail(LS_ERR_CONFIG, "the job belongs to another user");
    if (greeting->tcp && greeting->secret && !answers_challenge(l, hello))
        return ls_fail(LS_ERR_CONFIG, "the job's secret is not the one given");
    return LS_OK;
}

static ls_status check_hello(const ls__connection *l, const ls__frame *hello)
{
    const ls__server *server = l->server;
    const char *job = l->from->greeting.job;
    int rank = (int)(hello->number & 0xffffffff), size = (int)(hello->number >> 32);
    LS_TRY(check_trust(l, hello));
    if (hello->key_nbytes != strlen(job) || memcmp(hello->key, job, hello->key_nbytes) != 0)
        return ls_fail(LS_ERR_PEER, "this is job %s, not %.*s", job, (int)hello->key_nbytes,
                       hello->key);
    if (size != server->size)
        return ls_fail(LS_ERR_CONFIG,
                       "rank %d was told that there are %d ranks, others that there "
                       "are %d",
                       rank, size, server->size);
    if (rank < 0 || rank >= size)
        return ls_fail(LS_ERR_CONFIG, "rank %d is not in [0, %d)", rank, size);
    for (const ls__connection *other = server->links; other; other = other->next) {
        if (other->rank != rank || other->dead) continue;
        if (server->pids[rank] <= 0)
            return ls_fail(LS_ERR_CONFIG, "rank %d is taken already, by another machine", rank);
        return ls_fail(LS_ERR_CONFIG, "rank %d is taken already, by process %d", rank,
                       server->pids[rank]);
    }
    return LS_OK;
}

/* The answer in one message, descriptors attached; nothing is waiting to be sent before it. */
static bool send_answer(const ls__connection *l, const ls__frame *answer, bool welcome)
{
    char data[LS__FRAME_HEADER + 512];
    struct iovec part = { .iov_base = data, .iov_len = ls__frame_size(answer) };
    ls__frame_write(answer, data);
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = { 0 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    const ls__greeting *greeting = &l->from->greeting;
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
static void watch_process(ls__connection *l)
{
    l->pid_fd = ls__peer_pid_fd(l->fd);
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)l | 1 };
    if (l->pid_fd >= 0) epoll_ctl(l->server->epoll_fd, EPOLL_CTL_ADD, l->pid_fd, &event);
}

static void challenge(ls__connection *l, const ls__frame *call)
{
    const char *secret = l->from->greeting.secret;
    uint8_t value[LS__NONCE_BYTES + LS__MAC_BYTES];
    ls__frame answer = { .type = LS__FRAME_CHALLENGE, .id = call->id, .value = (char *)value };
    bool good = l->from->greeting.tcp && !l->called && call->nbytes == LS__NONCE_BYTES;
    if (good && secret) {
        memcpy(l->nonce_c, call->value, LS__NONCE_BYTES);
        good = ls__random_bytes(l->nonce_l, LS__NONCE_BYTES) == LS_OK;
        memcpy(value, l->nonce_l, LS__NONCE_BYTES);
        ls__mac(secret, "listener", l->nonce_c, l->nonce_l, value + LS__NONCE_BYTES);
        answer.nbytes = sizeof value;
    }
    l->called = true;
    if (!good || !send_answer(l, &answer, false)) ls__connection_close(l);
}

/* "process host" behind the proof. */
static void welcome_node(ls__connection *l, const ls__frame *hello)
{
    ls__server *server = l->server;
    size_t skip = l->from->greeting.secret ? LS__MAC_BYTES : 0;
    ls__frame who = { .value = hello->value + skip, .nbytes = hello->nbytes - skip };
    char text[320], host[256] = "?";
    int pid = 0;
    ls__frame_text(&who, text, sizeof text);
    if (sscanf(text, "%d %255s", &pid, host) != 2) snprintf(host, sizeof host, "?");
    server->pids[l->rank] = -1;
    l->peer = LS__PEER_NODE;
    server->hooks.node_joined(server->hooks.user, l->rank, host, pid);
}

void ls__server_stranger(ls__connection *l, const ls__frame *frame)
{
    ls__server *server = l->server;
    if (frame->type == LS__FRAME_CALL) {
        challenge(l, frame);
        return;
    }
    ls_status status = frame->type == LS__FRAME_HELLO
                           ? check_hello(l, frame)
                           : ls_fail(LS_ERR_CONFIG, "a connection did not begin with hello");
    char text[512] = "";
    if (status != LS_OK) snprintf(text, sizeof text - 20, "%s", ls_error_text());
    ls__frame answer = { .type = LS__FRAME_REPLY,
                         .status = status,
                         .id = frame->id,
                         .number = l->from->greeting.root,
                         .value = text,
                         .nbytes = strlen(text) };
    if (!send_answer(l, &answer, status == LS_OK) || status != LS_OK) {
        ls__connection_close(l);
        return;
    }
    l->rank = (int)(frame->number & 0xffffffff);
    if (l->from->greeting.nodes) {
        welcome_node(l, frame);
        return;
    }
    l->peer = LS__PEER_RANK;
    server->pids[l->rank] = ls__peer_pid(l->fd);
    watch_process(l);
    if (server->hooks.joined)
        server->hooks.joined(server->hooks.user, l->rank, server->pids[l->rank]);
}
