/* Network addresses. */
#ifndef LS_BASE_ADDRESS_H
#define LS_BASE_ADDRESS_H

#include <stdbool.h>

#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

/* getaddrinfo, which finds "localhost" also where no file and no server knows it: in minimal
 * containers (RFC 6761, section 6.3). */
int ls__address_find(const char *host, const char *service, const struct addrinfo *hints,
                     struct addrinfo **out);

/* The address from which this machine reaches host, a name or an address; "" = where its default
 * route begins. Sends nothing. False: there is no way; *what is how the look-up of the name ended,
 * for gai_strerror, 0 when it was not at fault. */
bool ls__address_towards(const char *host, struct sockaddr_storage *from, int *what);
/* The interface of this machine that has the address. False: none, or a loopback, which no other
 * machine knows. */
bool ls__address_interface_of(const struct sockaddr *address, char out[IF_NAMESIZE]);

#endif
