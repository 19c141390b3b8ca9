/* Network addresses.
 *
 * By which of its addresses others reach this machine is not guessed from names of interfaces
 * (docker0, ib0, eth1): the kernel is asked from which one it would go to them. A UDP socket is
 * connected for that, which sends nothing. */
#include "base/address.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Numeric addresses of no machine (RFC 5737, RFC 3849): the way there is the default route. */
static const char nowhere_4[] = "192.0.2.1", nowhere_6[] = "2001:db8::1";

int ls__address_find(const char *host, const char *service, const struct addrinfo *hints,
                     struct addrinfo **out)
{
    int error = getaddrinfo(host, service, hints, out);
    if (error == 0 || !host || strcmp(host, "localhost") != 0) return error;
    return getaddrinfo(hints->ai_family == AF_INET6 ? "::1" : "127.0.0.1", service, hints, out);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static bool source_towards(const struct addrinfo *to, struct sockaddr_storage *from)
{
    socklen_t length = sizeof *from;
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool found = connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                 getsockname(fd, (struct sockaddr *)from, &length) == 0;
    close(fd);
    return found;
}

/* numeric: look up no name. */
static bool probe(const char *host, bool numeric, struct sockaddr_storage *from, int *what)
{
    struct addrinfo *list = NULL;
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM,
                              .ai_flags =
                                  numeric ? AI_NUMERICHOST | AI_NUMERICSERV : AI_NUMERICSERV };
    *what = ls__address_find(host, "9", &hints, &list);
    if (*what != 0) return false;
    bool found = false;
    for (const struct addrinfo *a = list; a && !found; a = a->ai_next)
        found = source_towards(a, from);
    freeaddrinfo(list);
    return found;
}

static bool default_route(struct sockaddr_storage *from)
{
    int what;
    return probe(nowhere_4, true, from, &what) || probe(nowhere_6, true, from, &what);
}

bool ls__address_towards(const char *host, struct sockaddr_storage *from, int *what)
{
    struct sockaddr_storage other;
    int ignored;
    *what = 0;
    if (!*host) return default_route(from);
    if (!probe(host, false, from, what)) return false;
    /* A machine's own name often stands for 127.0.1.1 in its /etc/hosts. */
    bool by_name = strcmp(host, "localhost") != 0 && !probe(host, true, &other, &ignored);
    if (by_name && is_loopback((struct sockaddr *)from) && default_route(&other)) *from = other;
    return true;
}

static bool is_same(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family) return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                      &((const struct sockaddr_in *)(const void *)b)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    return a->sa_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                              &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr);
}

bool ls__address_interface_of(const struct sockaddr *address, char out[IF_NAMESIZE])
{
    struct ifaddrs *list;
    bool found = false;
    if (is_loopback(address) || getifaddrs(&list) != 0) return false;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next)
        if (i->ifa_addr && is_same(i->ifa_addr, address)) {
            snprintf(out, IF_NAMESIZE, "%s", i->ifa_name);
            found = true;
        }
    freeifaddrs(list);
    return found;
}
