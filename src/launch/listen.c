/* Sockets that listen for other launchers, and how an address of the first node is found. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/check.h"
#include "launch/launcher.h"
#include "launch/node_link.h"

enum { BACKLOG = 4096 };

static int try_listen(int family, bool loopback, int port)
{
    struct sockaddr_storage address = { .ss_family = (sa_family_t)family };
    socklen_t size = sizeof(struct sockaddr_in6);
    int on = 1, off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) {
        ((struct sockaddr_in6 *)&address)->sin6_port = htons((uint16_t)port);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    } else {
        struct sockaddr_in *a = (struct sockaddr_in *)&address;
        a->sin_port = htons((uint16_t)port);
        if (loopback) a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        size = sizeof *a;
    }
    if (bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

ls_status ls__listen(bool loopback, int *port, int *fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    *fd = loopback ? -1 : try_listen(AF_INET6, false, *port);
    if (*fd < 0 && (loopback || (errno != EADDRINUSE && errno != EACCES)))
        *fd = try_listen(AF_INET, loopback, *port);
    if (*fd < 0)
        return ls__fail_errno(LS_ERR_CONFIG, "cannot listen on port %d for the other nodes", *port);
    if (getsockname(*fd, (struct sockaddr *)&address, &size) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "getsockname");
    *port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                : ((struct sockaddr_in *)&address)->sin_port);
    return LS_OK;
}

/* Whether a socket here can be bound to it. */
static bool is_here(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool here = fd >= 0 && bind(fd, address, size) == 0;
    if (fd >= 0) close(fd);
    return here;
}

bool ls__address_is_here(const char *name)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    bool here = false;
    if (ls__address_find(name, NULL, &hints, &list) != 0) return false;
    for (const struct addrinfo *a = list; a && !here; a = a->ai_next)
        here = is_here(a->ai_addr, a->ai_addrlen);
    freeaddrinfo(list);
    return here;
}

/* Containers' bridges are no way to other machines. */
static int rank_of(const struct ifaddrs *i)
{
    static const char *const inner[] = { "docker", "virbr", "br-", "cni", "veth", "tun" };
    if (!(i->ifa_flags & IFF_UP) || !i->ifa_addr || (i->ifa_flags & IFF_LOOPBACK)) return 0;
    int rank = i->ifa_addr->sa_family == AF_INET ? 4 : i->ifa_addr->sa_family == AF_INET6 ? 3 : 0;
    if (rank == 3) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return 0;
    }
    for (size_t k = 0; rank > 0 && k < sizeof inner / sizeof inner[0]; k++)
        if (strncmp(i->ifa_name, inner[k], strlen(inner[k])) == 0) return rank - 2;
    return rank;
}

void ls__address_guess(char out[LS__ADDRESS_TEXT])
{
    struct ifaddrs *list = NULL;
    int best = 0;
    snprintf(out, LS__ADDRESS_TEXT, "127.0.0.1");
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        int rank = rank_of(i);
        if (rank <= best) continue;
        best = rank;
        ls__address_text(i->ifa_addr, out);
    }
    freeifaddrs(list);
}

/* a and b agree in the bits of mask. */
static bool same_network(const struct sockaddr *a, const struct sockaddr *b,
                         const struct sockaddr *mask)
{
    char texts[2][LS__ADDRESS_TEXT];
    struct in_addr x, y;
    if (!mask || b->sa_family != AF_INET || mask->sa_family != AF_INET)
        return ls__address_equal(a, b);
    ls__address_text(a, texts[0]);
    ls__address_text(b, texts[1]);
    if (inet_pton(AF_INET, texts[0], &x) != 1 || inet_pton(AF_INET, texts[1], &y) != 1)
        return false;
    uint32_t bits = ((const struct sockaddr_in *)(const void *)mask)->sin_addr.s_addr;
    return (x.s_addr & bits) == (y.s_addr & bits);
}

void ls__address_interface(const struct sockaddr *a, char out[32])
{
    struct ifaddrs *list = NULL;
    out[0] = '\0';
    if (ls__address_is_loopback(a) || getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *i = list; i && !out[0]; i = i->ifa_next)
        if (i->ifa_addr && ls__address_equal(i->ifa_addr, a) && !(i->ifa_flags & IFF_LOOPBACK))
            snprintf(out, 32, "%s", i->ifa_name);
    freeifaddrs(list);
}

bool ls__address_is_near(const struct sockaddr *peer)
{
    struct ifaddrs *list = NULL;
    bool near = ls__address_is_loopback(peer);
    if (near || getifaddrs(&list) != 0) return near;
    for (const struct ifaddrs *i = list; i && !near; i = i->ifa_next)
        near = i->ifa_addr && same_network(peer, i->ifa_addr, i->ifa_netmask);
    freeifaddrs(list);
    return near;
}
