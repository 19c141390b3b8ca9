/* What a local root is made of; seen by its files only. */
#ifndef LS_WORLD_ROOT_STATE_H
#define LS_WORLD_ROOT_STATE_H

#include <pthread.h>

#include "world/job.h"
#include "world/local_root.h"

struct ls__local_root {
    ls__launch launch;
    ls__place place;
    ls__job job; /* of the thread alone, once it runs */
    pthread_t thread;
    bool told;    /* the report is out */
    int nleft;    /* ranks of this machine that said goodbye, or whose connection ended */
    int wake_fd;  /* something below is new; -1 = one machine */
    int port;     /* where rank 0's root listens */
    char way[64]; /* the address at which rank 0's machine was reached, of several */

    /* Of the thread, on several machines: */
    bool told_nodes, told_stop, done, dismissed;
    bool uplink_lost;
    double last_beat, last_look, done_at;
    struct ls__root_node *nodes; /* others that have joined */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    bool complete, over, reported, well;
    int uplink_fd; /* -1, or not yet taken by the thread */
};

/* Between machines. Those that are called on one machine do nothing there. */
static inline bool ls__root_several(const ls__local_root *root)
{
    return root->place.found != LS__FOUND_HERE;
}
static inline bool ls__root_is_head(const ls__local_root *root)
{
    return root->place.rank == 0;
}
void ls__root_node_joined(void *user, int root, const char *host, int pid);
void ls__root_node_frame(void *user, int root, const ls__frame *frame);
void ls__root_node_closed(void *user, int root);
/* What a rank here said that others have to know. True: that is all there is to do. */
bool ls__root_pass_on(ls__local_root *root, const ls__frame *frame);
/* Rank 0's: opens the port. */
ls_status ls__root_listen(ls__local_root *root);
/* Each round: takes a new uplink, tells ends and stops, beats and listens for beats. */
void ls__root_nodes_round(ls__local_root *root);
/* Whether other machines are still to be waited for. */
bool ls__root_nodes_pending(ls__local_root *root);
void ls__root_nodes_free(ls__local_root *root);

enum { LS__BEAT_MS = 1000 };

#endif
