/* What a world is made of; seen by this room's files only. */
#ifndef LS_WORLD_STATE_H
#define LS_WORLD_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "world/local_root.h"
#include "world/report.h"
#include "world/store_client.h"
#include "world/watcher.h"
#include "world/world_internal.h"

/* What ranks that are threads of one process share. */
typedef struct ls__shared_world {
    atomic_int users;
    ls__core *core;
    ls__nodes *nodes;
    ls__shm **shms; /* (nodes) */
} ls__shared_world;

struct ls_world {
    int rank, size, local_rank, local_size, node;
    ls__nodes *nodes;
    ls__started_by by;
    bool bare;         /* tests: no communicator */
    char address[256]; /* of rank 0's machine; "" = not told */
    ls_world_options program;
    ls__options *options;
    ls__launch launch;
    char **argv; /* as typed; NULL-ended */
    int restarts;
    char restart_folder[LS_PATH_MAX]; /* "" = none */
    char run_name[256];               /* the same */
    bool terminal;

    ls__shm *shm; /* of this node; NULL: alone on it */
    ls_comm *comm;
    ls__store *store;
    ls__board *board; /* NULL: there is none (yet) */
    int beat_fd;      /* the launcher's heartbeat file; -1 */
    ls__watcher *watcher;
    int peer_fd; /* pidfd of the local root; -1 */
    ls__local_root *root;
    ls__manager *manager;     /* that told where rank 0 is; NULL */
    ls__shared_world *shared; /* ranks as threads */
    ls__core *core;           /* alone */
    bool has_signals;         /* alone: handlers are installed */

    _Atomic int64_t step; /* for last words */
    pthread_mutex_t lock; /* of all below */
    char folder[LS_PATH_MAX], checkpoint[LS_PATH_MAX];
    int64_t next_progress_ns;
    int64_t nonce; /* ls_world_once calls so far */
    int stopped;   /* signal of an agreed stop */
};

/* A zeroed world with its lock; ls__world_free frees whatever has been filled in. */
ls_status ls__world_alloc(ls_world **out);
void ls__world_free(ls_world *world);
/* The last of its ranks frees it. */
void ls__shared_world_leave(ls__shared_world *shared);
/* Takes over nodes and says where this rank is among them. NULL: all ranks are on one node. */
ls_status ls__world_set_nodes(ls_world *world, ls__nodes *nodes);

/* Of ranks that others started: waits until all have come, and learns who is where. root_rank: the rank
 * that serves this one's machine. */
ls_status ls__come_together(ls_world *world, int root_rank);

/* [all] On several machines, before: rank 0's root is found and connected to; */
ls_status ls__connect_root(ls_world *world, const ls__place *place);
/* and after: world->address, where it was not told. */
ls_status ls__learn_way(ls_world *world, const ls__place *place, int root_rank);

/* [all] The communicator of ranks on several machines, by the engine named or "auto". */
ls_status ls__connect_nodes(ls_world *world, const char *engine);

/* Makes ready what a signal handler may have to write. */
void ls__world_prepare_last_words(ls_world *world);
/* The report of a program that is a whole job by itself. */
void ls__world_report(ls_world *world, const ls__end *end, bool print);

#endif
