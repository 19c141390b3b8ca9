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
    /* Of a job on several machines: the root of another one (its rank), or with -1 the root that has
     * the store, joined, said something, or its connection ended. */
    void (*node_joined)(void *user, int root, const char *host, int pid);
    void (*node_frame)(void *user, int root, const ls__frame *frame);
    void (*node_closed)(void *user, int root);
} ls__server_hooks;

/* What somebody who connects must say, and what it is given. */
typedef struct ls__greeting {
    const char *job;    /* must be equal on both sides */
    bool tcp;           /* else a Unix socket, where the peer's uid must be ours */
    const char *secret; /* over TCP both sides prove that they have it; NULL = none */
    int fds[2], nfds;   /* sent with the welcome, over a Unix socket */
    int root;           /* server: the rank that serves, told with the welcome */
    bool nodes;         /* server: who joins is the root of another machine */
    const char *who;    /* client: "process host", of such a root; NULL = none */
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

/* Roots of several machines. One of them has the store; of the others each is made a relay before it
 * serves, which keeps its ranks' requests until it has its connection to the store (taken over). */
ls_status ls__server_relay(ls__server *server);
ls_status ls__server_set_uplink(ls__server *server, int fd);
void ls__server_send_up(ls__server *server, const ls__frame *frame);
void ls__server_send_nodes(ls__server *server, const ls__frame *frame);
void ls__server_end_node(ls__server *server, int root, const ls__frame *last);
int ls__server_nodes(const ls__server *server); /* other machines that are connected */
/* Whether another machine has said nothing for so long; *root as in the hooks. */
bool ls__server_silent(const ls__server *server, double seconds, int *root);
void ls__server_forgive_silence(ls__server *server); /* it was this process that slept */
void ls__server_name_host(ls__server *server, int rank, const char *host);

/* TCP on address and port (0 = any free one; *port is it). */
/* address NULL: on all of this machine's. *fd = -1 and LS_ERR_PEER when the port is in use. */
ls_status ls__listen_tcp(const char *address, int *port, int *fd);
typedef struct ls__address {
    const char *host; /* TCP; NULL: name is an abstract Unix socket */
    int port;
    const char *name;
} ls__address;
/* A connection alone. */
ls_status ls__connect(const ls__address *address, int timeout_ms, int *fd);
typedef struct ls__welcome {
    int fd;     /* the connection */
    int fds[2]; /* (nfds) what came with the welcome, else -1 */
    int root;
} ls__welcome;
/* Connects and says hello within timeout_ms (-1 = none), trying again while nobody listens, or while
 * who listens belongs to another job: perhaps the one before. */
ls_status ls__server_join(const ls__address *address, int rank, int size,
                          const ls__greeting *greeting, int timeout_ms, ls__welcome *out);
/* A pidfd of the process at the other end of a Unix socket; -1 when it cannot be had. */
int ls__peer_pid_fd(int fd);
/* Its number; -1 the same. */
int ls__peer_pid(int fd);

#endif
