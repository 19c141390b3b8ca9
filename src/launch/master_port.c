/* MASTER_PORT. Finding a free port, closing it and telling its number leaves a moment in which somebody
 * else may get it. So the port stays bound, with SO_REUSEADDR and without listening, as long as the
 * job lives: the kernel gives it to nobody who asks for any port, and a server that sets
 * SO_REUSEADDR, as those of PyTorch, Gloo, NCCL and gRPC do, may bind and listen on it all the
 * same. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "launch/launcher.h"

/* The wildcard of IPv6, for both families; of IPv4 where there is no other. */
static socklen_t any_address(int family, int port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (family == AF_INET6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;
        a->sin6_family = AF_INET6;
        a->sin6_port = htons((uint16_t)port);
        return sizeof *a;
    }
    struct sockaddr_in *a = (struct sockaddr_in *)out;
    a->sin_family = AF_INET;
    a->sin_port = htons((uint16_t)port);
    return sizeof *a;
}

static int bound_socket(int family, int port)
{
    struct sockaddr_storage address;
    int on = 1, off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    socklen_t size = any_address(family, port, &address);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&address, size) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

ls_status ls__master_port_hold(int *port, int *fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    *fd = bound_socket(AF_INET6, *port);
    if (*fd < 0 && errno != EADDRINUSE && errno != EACCES) *fd = bound_socket(AF_INET, *port);
    if (*fd < 0 && *port > 0)
        return ls__fail_errno(LS_ERR_CONFIG,
                              "--master-port %d cannot be had; leave it out for a free one", *port);
    if (*fd < 0 || getsockname(*fd, (struct sockaddr *)&address, &size) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "cannot get a port for MASTER_PORT");
    *port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                : ((struct sockaddr_in *)&address)->sin_port);
    return LS_OK;
}
