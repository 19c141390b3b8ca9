/* Network addresses. */
#ifndef LS_BASE_ADDRESS_H
#define LS_BASE_ADDRESS_H

#include <netdb.h>

/* getaddrinfo, which finds "localhost" also where no file and no server knows it: in minimal
 * containers (RFC 6761, section 6.3). */
int ls__address_find(const char *host, const char *service, const struct addrinfo *hints,
                     struct addrinfo **out);

#endif
