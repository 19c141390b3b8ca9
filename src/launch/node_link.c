/* A connection's two buffers. What the socket does not take at once waits; the owner bounds how much by
 * asking before it sends what may be left out (lines of output). */
#include "launch/node_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"

enum { READ_BYTES = 4096, READS_MAX = 64 };

static void watch(ls__node_link *link, int operation)
{
    struct epoll_event event = { .events = EPOLLIN | (link->writes ? EPOLLOUT : 0),
                                 .data.u64 = link->tag };
    epoll_ctl(link->epoll_fd, operation, link->fd, &event);
}

ls_status ls__node_link_open(ls__node_link *link, int fd, int epoll_fd, uint64_t tag)
{
    int on = 1;
    *link = (ls__node_link) { .fd = fd,
                              .epoll_fd = epoll_fd,
                              .tag = tag,
                              .writes = true, /* until it is connected */
                              .limit = LS__NODE_GREETING_MAX };
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(link, EPOLL_CTL_ADD);
    return LS_OK;
}

void ls__node_link_close(ls__node_link *link)
{
    if (link->fd >= 0) close(link->fd);
    link->fd = -1;
    ls__bytes_free(&link->in);
    ls__bytes_free(&link->out);
}

static void breaks(ls__node_link *link, const char *why)
{
    if (link->broken) return;
    link->broken = true;
    snprintf(link->why, sizeof link->why, "%s", why);
}

size_t ls__node_link_waiting(const ls__node_link *link)
{
    return link->out.end - link->out.begin;
}

void ls__node_link_flush(ls__node_link *link)
{
    while (!link->broken && ls__node_link_waiting(link) > 0) {
        ssize_t n = send(link->fd, link->out.data + link->out.begin, ls__node_link_waiting(link),
                         MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) break;
        if (n < 0) breaks(link, strerror(errno));
        if (n > 0) link->out.begin += (size_t)n;
    }
    if (ls__node_link_waiting(link) == 0) link->out.begin = link->out.end = 0;
    bool writes = ls__node_link_waiting(link) > 0;
    if (writes == link->writes || link->fd < 0) return;
    link->writes = writes;
    watch(link, EPOLL_CTL_MOD);
}

void ls__node_link_send(ls__node_link *link, const ls__node_frame *frame)
{
    if (link->broken || link->fd < 0) return;
    if (ls__node_frame_append(&link->out, frame) != LS_OK)
        breaks(link, ls_error_text());
    else
        ls__node_link_flush(link);
}

void ls__node_link_read(ls__node_link *link)
{
    for (int i = 0; i < READS_MAX && !link->broken; i++) {
        if (ls__bytes_reserve(&link->in, READ_BYTES) != LS_OK) {
            breaks(link, ls_error_text());
            return;
        }
        size_t room = link->in.capacity - link->in.end;
        ssize_t n = recv(link->fd, link->in.data + link->in.end, room, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) breaks(link, strerror(errno));
        if (n == 0) breaks(link, "its connection was closed");
        if (n > 0) {
            link->in.end += (size_t)n;
            link->received += n;
        }
        if (n < (ssize_t)room) return;
    }
}

/* Frames that came before the connection broke still count. */
bool ls__node_link_next(ls__node_link *link, ls__node_frame *frame)
{
    size_t used = 0, nbytes = link->in.end - link->in.begin;
    if (nbytes == 0) return false;
    ls_status status =
        ls__node_frame_parse(link->in.data + link->in.begin, nbytes, link->limit, frame, &used);
    if (status != LS_OK) {
        breaks(link, ls_error_text());
        link->in.begin = link->in.end;
        return false;
    }
    link->in.begin += used;
    return used > 0;
}

/* --- addresses --- */

/* IPv4, also mapped into IPv6. */
static bool as_ipv4(const struct sockaddr *a, struct in_addr *out)
{
    if (a->sa_family == AF_INET) {
        *out = ((const struct sockaddr_in *)(const void *)a)->sin_addr;
        return true;
    }
    if (a->sa_family != AF_INET6) return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(six)) return false;
    memcpy(out, six->s6_addr + 12, sizeof *out);
    return true;
}

void ls__address_text(const struct sockaddr *a, char out[LS__ADDRESS_TEXT])
{
    struct in_addr four;
    out[0] = '\0';
    if (as_ipv4(a, &four))
        inet_ntop(AF_INET, &four, out, LS__ADDRESS_TEXT);
    else if (a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, out,
                  LS__ADDRESS_TEXT);
}

bool ls__address_equal(const struct sockaddr *a, const struct sockaddr *b)
{
    char x[LS__ADDRESS_TEXT], y[LS__ADDRESS_TEXT];
    ls__address_text(a, x);
    ls__address_text(b, y);
    return x[0] && strcmp(x, y) == 0;
}

bool ls__address_is_loopback(const struct sockaddr *a)
{
    char text[LS__ADDRESS_TEXT];
    ls__address_text(a, text);
    return strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0;
}
