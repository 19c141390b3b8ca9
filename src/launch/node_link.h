/* One connection between launchers: frames in, frames out, never waiting for the other side. */
#ifndef LS_LAUNCH_NODE_LINK_H
#define LS_LAUNCH_NODE_LINK_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "launch/node_frame.h"

enum { LS__ADDRESS_TEXT = 64 };

typedef struct ls__node_link {
    int fd, epoll_fd;
    uint64_t tag;     /* of its events there */
    bool writes;      /* something waits to be sent */
    bool broken;      /* nothing comes or goes any more */
    size_t limit;     /* bytes of a frame that may come */
    int64_t received; /* bytes */
    ls__bytes in, out;
    char why[128]; /* it broke */
} ls__node_link;

/* Takes over fd, a connected (or connecting) socket, and watches it. */
ls_status ls__node_link_open(ls__node_link *link, int fd, int epoll_fd, uint64_t tag);
void ls__node_link_close(ls__node_link *link);
/* Failures show as broken. */
void ls__node_link_send(ls__node_link *link, const ls__node_frame *frame);
void ls__node_link_flush(ls__node_link *link);
/* Bytes that wait to be sent. */
size_t ls__node_link_waiting(const ls__node_link *link);
/* Reads what is there. */
void ls__node_link_read(ls__node_link *link);
/* The next frame that has come; false = none, or broken. It borrows until the next read. */
bool ls__node_link_next(ls__node_link *link, ls__node_frame *frame);

/* "10.0.0.7", without a port; mapped IPv4 addresses as such. */
void ls__address_text(const struct sockaddr *address, char out[LS__ADDRESS_TEXT]);
/* Whether two are the same host, mapped or not. */
bool ls__address_equal(const struct sockaddr *a, const struct sockaddr *b);
bool ls__address_is_loopback(const struct sockaddr *a);
/* The interface that has an address; "" = none, or only this machine uses it. */
void ls__address_interface(const struct sockaddr *a, char out[32]);
/* Whether it is in a network that this machine is in. */
bool ls__address_is_near(const struct sockaddr *peer);
/* An address of this machine that others may reach: of the first interface that is up and leads out. */
void ls__address_guess(char out[LS__ADDRESS_TEXT]);

#endif
