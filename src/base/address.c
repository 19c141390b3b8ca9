/* Network addresses. */
#include "base/address.h"

#include <string.h>
#include <sys/socket.h>

int ls__address_find(const char *host, const char *service, const struct addrinfo *hints,
                     struct addrinfo **out)
{
    int error = getaddrinfo(host, service, hints, out);
    if (error == 0 || !host || strcmp(host, "localhost") != 0) return error;
    return getaddrinfo(hints->ai_family == AF_INET6 ? "::1" : "127.0.0.1", service, hints, out);
}
