/* Ranks that somebody else started: they meet at an abstract Unix socket, whose name follows from
 * what the environment says about the job. The first local rank is the local root: it serves the
 * store, hands out the shared memory, and watches: a connection that ends without goodbye is a
 * death. */
#ifndef LS_WORLD_LOCAL_ROOT_H
#define LS_WORLD_LOCAL_ROOT_H

#include "comm/shm.h"
#include "world/board.h"
#include "world/launch.h"
#include "world/manager.h"

typedef struct ls__local_root ls__local_root;

typedef struct ls__meeting {
    int socket_fd; /* to the local root */
    int root_rank; /* its */
    ls__shm *shm;  /* owned by the caller; the root's is its own copy */
    ls__board *board;
    ls__local_root *root; /* of local rank 0; NULL on the others */
} ls__meeting;

/* Waits for the local root, at most --timeout. Refusals (another size, a rank that is taken) are
 * LS_ERR_CONFIG with the root's text. That all ranks have come is another matter: see the store's
 * barrier. */
ls_status ls__local_meet(const ls__place *place, const ls__launch *launch, ls__meeting *out);

/* Where rank 0's root is reached, for its process manager. */
ls_status ls__local_root_where(const ls__local_root *root, char text[LS__WHERE_TEXT]);
/* On several machines, after the rank has its store: rank 0's root is made known to the others, each
 * other root connects to it, at most --timeout. where: what the process manager has handed out. */
ls_status ls__local_root_connect(ls__local_root *root, const char *where);
/* The address at which another root has reached rank 0's machine. */
const char *ls__local_root_address(const ls__local_root *root);
/* The root counts as one rank; when it has said goodbye it stays until all others have. Returns
 * whether the job ended well. Frees. */
bool ls__local_root_finish(ls__local_root *root);
/* All ranks are together: from now on timeouts are no longer those of the rendezvous. */
void ls__local_root_complete(ls__local_root *root);
/* The root's own rank has told of its failure: waits until the report is out. */
void ls__local_root_reported(ls__local_root *root);

#endif
