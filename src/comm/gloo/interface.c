/* Choosing the address at which this machine listens for others.
 *
 * Not guessed from names of interfaces (docker0, ib0, eth1): all machines reach the first one, so
 * the kernel is asked from which address it would go there (base/address.h). */
#include "comm/gloo/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/check.h"

static bool to_text(const struct sockaddr *address, char text[LS__INTERFACE_TEXT])
{
    socklen_t length =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo(address, length, text, LS__INTERFACE_TEXT, NULL, 0, NI_NUMERICHOST) == 0;
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
    struct sockaddr_storage from;
    const char *names = getenv("GLOO_SOCKET_IFNAME");
    int what;
    if (names && *names) return chosen(names, address);
    if (!ls__address_towards(root, &from, &what))
        return ls_fail(LS_ERR_CONFIG,
                       "no way to the first machine, \"%s\": %s; name an interface in "
                       "GLOO_SOCKET_IFNAME (see: ip address)",
                       root, what ? gai_strerror(what) : "no route");
    if (!to_text((struct sockaddr *)&from, address))
        return ls_fail(LS_ERR_INTERNAL, "an address of family %d", (int)from.ss_family);
    return LS_OK;
}
