/* Choosing the address at which this machine listens for others.
 *
 * Not guessed from names of interfaces (docker0, ib0, eth1): all machines reach the first one, so
 * the kernel is asked from which address it would go there. A UDP socket is connected for that,
 * which sends nothing. */
#include "comm/gloo/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/check.h"

/* Numeric addresses of no machine (RFC 5737, RFC 3849): the way there is the default route. */
static const char nowhere_4[] = "192.0.2.1", nowhere_6[] = "2001:db8::1";

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static bool to_text(const struct sockaddr *address, char text[LS__INTERFACE_TEXT])
{
    socklen_t length =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo(address, length, text, LS__INTERFACE_TEXT, NULL, 0, NI_NUMERICHOST) == 0;
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

/* The source address towards host. numeric: look up no name. what: how the look-up ended. */
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

/* --- chosen by the user --- */

/* name is not terminated. */
static bool address_of(const struct ifaddrs *list, const char *name, size_t length, int family,
                       char text[LS__INTERFACE_TEXT])
{
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == family && (i->ifa_flags & IFF_UP) &&
            strlen(i->ifa_name) == length && !memcmp(i->ifa_name, name, length))
            return to_text(i->ifa_addr, text);
    return false;
}

static ls_status chosen(const char *names, char text[LS__INTERFACE_TEXT])
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return ls__fail_errno(LS_ERR_IO, "the network's interfaces cannot be listed");
    bool found = false;
    for (const char *name = names; *name && !found; name += strspn(name, ",")) {
        size_t length = strcspn(name, ",");
        found = address_of(list, name, length, AF_INET, text) ||
                address_of(list, name, length, AF_INET6, text);
        name += length;
    }
    freeifaddrs(list);
    if (found) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "GLOO_SOCKET_IFNAME is \"%s\", but this machine has no interface of that name "
                   "that is up and has an address (see: ip address)",
                   names);
}

ls_status ls__interface_probe(const char *root, char address[LS__INTERFACE_TEXT])
{
    struct sockaddr_storage from, other;
    const char *names = getenv("GLOO_SOCKET_IFNAME");
    int what = 0;
    if (names && *names) return chosen(names, address);
    bool found = *root ? probe(root, false, &from, &what) : default_route(&from);
    if (!found)
        return ls_fail(LS_ERR_CONFIG,
                       "no way to the first machine, \"%s\": %s; name an interface in "
                       "GLOO_SOCKET_IFNAME (see: ip address)",
                       root, what ? gai_strerror(what) : "no route");
    /* A machine's own name often stands for 127.0.1.1 in its /etc/hosts. */
    bool by_name = *root && strcmp(root, "localhost") != 0 && !probe(root, true, &other, &what);
    if (by_name && is_loopback((struct sockaddr *)&from) && default_route(&other)) from = other;
    if (!to_text((struct sockaddr *)&from, address))
        return ls_fail(LS_ERR_INTERNAL, "an address of family %d", (int)from.ss_family);
    return LS_OK;
}
