/* What a server is made of; seen by its files only. */
#ifndef LS_WORLD_STORE_SERVER_INTERNAL_H
#define LS_WORLD_STORE_SERVER_INTERNAL_H

#include "base/mac.h"
#include "world/store_core.h"
#include "world/store_server.h"

typedef enum ls__peer {
    LS__PEER_STRANGER, /* has not said hello */
    LS__PEER_RANK,
    LS__PEER_NODE,   /* the root of another machine; rank is its own */
    LS__PEER_UPLINK, /* the root that has the store; requests go there */
} ls__peer;

typedef struct ls__connection ls__connection;

/* A rank of another machine, as a client of the core. */
typedef struct ls__proxy {
    struct ls__proxy *next;
    ls__connection *link;
    int rank;
} ls__proxy;

typedef struct ls__listener {
    int fd;
    ls__greeting greeting;
} ls__listener;

struct ls__connection {
    ls__connection *next;
    ls__server *server;
    const ls__listener *from; /* of a stranger */
    int fd;                   /* of an uplink -1 until it is connected */
    int pid_fd; /* of who joined: a child of it may keep the socket open after its death */
    ls__peer peer;
    int rank; /* -1: has not said hello */
    double since, heard;
    bool dead; /* closed and freed after the round of events */
    bool writing;
    bool called; /* has been given a challenge: */
    uint8_t nonce_c[LS__NONCE_BYTES], nonce_l[LS__NONCE_BYTES];
    ls__proxy *proxies; /* of a node */
    ls__bytes in, out;
};

enum { LS__LISTENERS = 2 };

struct ls__server {
    int size, epoll_fd;
    ls__listener listeners[LS__LISTENERS];
    int nlisteners;
    ls__server_hooks hooks;
    ls__core *core;
    ls__connection *links;
    ls__connection *uplink; /* NULL: requests are served here */
    int *pids;              /* (size) of who joined by hello */
};

/* store_hello.c: a frame of a stranger, who becomes a rank or a node, or is refused and closed. */
void ls__server_stranger(ls__connection *l, const ls__frame *frame);
/* store_relay.c: */
void ls__server_node_frame(ls__connection *l, const ls__frame *frame);
void ls__server_uplink_frame(ls__connection *l, const ls__frame *frame);
void ls__server_forward(ls__connection *l, const ls__frame *request);
void ls__server_forget_proxies(ls__connection *l);

void ls__connection_send(ls__connection *l, const ls__frame *frame);
void ls__connection_flush(ls__connection *l);
/* Ends a connection; the memory stays until the round of events is over. */
void ls__connection_close(ls__connection *l);
bool ls__frame_is_request(const ls__frame *frame);

#endif
