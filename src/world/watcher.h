/* The watcher: one small thread per rank that reads its socket and sees to it that no rank outlives
 * its job. It hands replies to waiting requests; after poison, or when the other end is gone, all
 * waits fail with LS_ERR_PEER, and one second later the process ends with 69, whatever its other
 * threads do. */
#ifndef LS_WORLD_WATCHER_H
#define LS_WORLD_WATCHER_H

#include "comm/shm.h"
#include "world/store_client.h"

typedef struct ls__watcher ls__watcher;

typedef struct ls__watcher_options {
    ls__store *store; /* with a socket; borrowed */
    ls__shm *shm;     /* optional; borrowed */
    int peer_fd; /* pidfd of the process at the other end, whose children may keep the socket open
                    after its death; -1 = none; borrowed */
    bool forward_signals; /* SIGTERM, SIGINT and SIGUSR1 are told to the other end */
    bool survives;        /* tests: never ends the process */
} ls__watcher_options;

ls_status ls__watcher_start(const ls__watcher_options *options, ls__watcher **out);
void ls__watcher_stop(ls__watcher *watcher);       /* NULL is fine */
bool ls__watcher_lost(const ls__watcher *watcher); /* poison has come, or the other end is gone */

#endif
