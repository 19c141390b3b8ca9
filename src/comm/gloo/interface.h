/* By which of its addresses other machines reach this one. */
#ifndef LS_COMM_GLOO_INTERFACE_H
#define LS_COMM_GLOO_INTERFACE_H

#include <netinet/in.h>

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LS__INTERFACE_TEXT = INET6_ADDRSTRLEN + 16 }; /* a numeric address, "%" and a scope */

/* GLOO_SOCKET_IFNAME: the first address of the first interface named there that is up (of IPv4
 * first). Else the address from which root (a host name or an address; "" = unknown) is reached. */
ls_status ls__interface_probe(const char *root, char address[LS__INTERFACE_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
