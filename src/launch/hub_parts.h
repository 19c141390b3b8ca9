/* What the hub is made of; seen by hub*.c only. */
#ifndef LS_LAUNCH_HUB_PARTS_H
#define LS_LAUNCH_HUB_PARTS_H

#include "base/mac.h"
#include "launch/hub.h"

typedef enum ls__visitor_state {
    LS__VISITOR_NEW,     /* has said nothing */
    LS__VISITOR_ASKED,   /* was asked for the secret */
    LS__VISITOR_KNOWN,   /* may join */
    LS__VISITOR_JOINED,  /* has a slot */
    LS__VISITOR_LEAVING, /* was told that it may not; closed when it has read that */
} ls__visitor_state;

/* A connection. */
typedef struct ls__visitor {
    ls__node_link link;
    ls__visitor_state state;
    int launcher;    /* when joined */
    double since;    /* connected, or leaving */
    double heard_at; /* last bytes */
    struct sockaddr_storage peer, local;
    uint8_t nonce_c[LS__NONCE_BYTES], nonce_l[LS__NONCE_BYTES];
    struct ls__visitor *next;
} ls__visitor;

/* A place among the launchers. */
typedef struct ls__slot {
    bool here, own;
    ls__visitor *visitor;                         /* NULL: the hub's own, or nobody is here */
    ls__node_join join;                           /* of who is or was here */
    int node, first_rank, local_rank, local_size; /* once started */
} ls__slot;

struct ls__hub {
    ls__hub_options options;
    int listen_fd, epoll_fd, port;
    int own; /* this launcher's slot; -1 = none */
    int here, nvisitors;
    bool started, over;
    bool known; /* whose place each slot is: by a start, here or of the one before this */
    int nodes, world_size;
    int warned; /* strangers that were told of */
    double check_at;
    ls__slot *slots; /* (launchers) */
    ls__visitor *visitors;
};

/* A joined launcher, or somebody who becomes one, has sent this. hub_door.c */
void ls__visitor_take(ls__hub *hub, ls__visitor *visitor, const ls__node_frame *frame);
void ls__visitor_refuse(ls__hub *hub, ls__visitor *visitor, bool again, const char *why);
/* hub_places.c: numbers nodes and ranks. */
ls_status ls__hub_number(ls__hub *hub);

#endif
