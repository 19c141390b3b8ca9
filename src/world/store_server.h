/* The store's server: connections around a core. It never blocks and has no thread of its own:
 * whoever has it watches ls__server_fd and calls ls__server_serve. One thread at a time. */
#ifndef LS_WORLD_STORE_SERVER_H
#define LS_WORLD_STORE_SERVER_H

#include "world/store_frame.h"

typedef struct ls__server ls__server;

typedef struct ls__server_hooks {
    void *user;
    /* A control frame of a rank (GOODBYE, FAILED, ...). */
    void (*frame)(void *user, int rank, const ls__frame *frame);
    /* A rank's connection ended, or the process that made it. */
    void (*closed)(void *user, int rank);
    /* optional: a rank joined through a listening socket; pid is -1 over TCP */
    void (*joined)(void *user, int rank, int pid);
} ls__server_hooks;

enum { LS__SECRET_SIZE = 32 };

/* What somebody who connects must say, and what it is given. */
typedef struct ls__greeting {
    const char *job;    /* must be equal on both sides */
    const char *secret; /* (LS__SECRET_SIZE); NULL = none: then the peer's uid must be ours */
    int fds[2], nfds;   /* sent with the welcome, over a Unix socket */
} ls__greeting;

/* size: ranks are [0, size). */
ls_status ls__server_create(int size, const ls__server_hooks *hooks, ls__server **out);
void ls__server_destroy(ls__server *server);
int ls__server_fd(const ls__server *server); /* readable when there is work */
ls_status ls__server_serve(ls__server *server);

/* Handles what a rank has sent, to the last byte: it is about to be looked at as ended. */
void ls__server_drain(ls__server *server, int rank);

/* A connected socket whose peer is known to be this rank; taken over, also on failure. */
ls_status ls__server_add(ls__server *server, int fd, int rank);
/* A listening socket (Unix or TCP), taken over; greeting's texts and descriptors must outlive the
 * server. A second claimant of a rank is refused with a text. */
ls_status ls__server_listen(ls__server *server, int fd, const ls__greeting *greeting);

void ls__server_send(ls__server *server, int rank, const ls__frame *frame);
void ls__server_broadcast(ls__server *server, const ls__frame *frame);
int ls__server_connected(const ls__server *server); /* ranks with a connection */

/* TCP on address and port (0 = any free one; *port is it). */
ls_status ls__listen_tcp(const char *address, int *port, int *fd);
/* Connects and says hello within timeout_ms (-1 = none), trying again while nobody listens. fds:
 * (nfds) what came with the welcome. */
typedef struct ls__address {
    const char *host; /* TCP; NULL: name is an abstract Unix socket */
    int port;
    const char *name;
} ls__address;
ls_status ls__server_join(const ls__address *address, int rank, int size,
                          const ls__greeting *greeting, int timeout_ms, int *fd, int *fds);
/* A pidfd of the process at the other end of a Unix socket; -1 when it cannot be had. */
int ls__peer_pid_fd(int fd);

#endif
