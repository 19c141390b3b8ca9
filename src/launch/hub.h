/* The hub: the first node's end of the connections between launchers. It lets launchers in, gives each
 * its place when all are there, notices who goes, and hands their frames to its owner. It knows nothing
 * of ranks' lives.
 *
 * A launcher is a connection; a node is a machine, which has several launchers where something else
 * (srun, mpirun) started one per device. Launchers are numbered in the order of their ranks. */
#ifndef LS_LAUNCH_HUB_H
#define LS_LAUNCH_HUB_H

#include "launch/node_link.h"

typedef struct ls__hub ls__hub;

typedef struct ls__hub_options {
    int launchers;            /* that make the job, this one included when it starts ranks */
    const ls__node_join *own; /* this one; node_rank is set. NULL: it starts no ranks */
    const char *secret;       /* borrowed; "" = none: then lets_in decides */
    const char *run_id;       /* borrowed; who ran ranks of another job stays out; NULL = nobody */
    const ls__node_join
        *before; /* (launchers) a first node that is back: who was where; NULL = new */
    bool (*lets_in)(void *user, const struct sockaddr *peer); /* NULL = everybody */
    int port;                                                 /* 0 = any free one */
    bool loopback;                                            /* nobody from outside */
    double silence; /* seconds without a word after which a launcher is lost; 0 = 5 */
    /* Somebody is there now (also again); somebody is gone; a frame has come. None may destroy the
     * hub. */
    void (*come)(void *user, int launcher);
    void (*lost)(void *user, int launcher, const char *why);
    void (*message)(void *user, int launcher, const ls__node_frame *frame);
    void *user;
} ls__hub_options;

ls_status ls__hub_create(const ls__hub_options *options, ls__hub **out);
void ls__hub_destroy(ls__hub *hub);
int ls__hub_port(const ls__hub *hub);
int ls__hub_fd(const ls__hub *hub); /* readable when there is work */
void ls__hub_serve(ls__hub *hub);   /* also when due */
double ls__hub_due(const ls__hub *hub);

/* The interface by which others reach this one; "" = they are on this machine. */
void ls__hub_interface(const ls__hub *hub, char out[32]);
int ls__hub_launchers(const ls__hub *hub);
/* Launchers that are there; all of them: the job can start. */
int ls__hub_here(const ls__hub *hub);
bool ls__hub_is_here(const ls__hub *hub, int launcher);
const ls__node_join *ls__hub_join_of(const ls__hub *hub, int launcher);
/* Seconds since a launcher's last word; 0 for the hub's own. */
double ls__hub_silence_of(const ls__hub *hub, int launcher);
/* "node 2" or "nodes 0, 2": who has not come; cut when long. */
void ls__hub_missing_text(const ls__hub *hub, char *out, size_t size);

/* When all are there: fixes the places and sends each its own. common: what is the same for all
 * (restarts, max_restarts, grace_ms, run_id, role, host, secret; master_addr "" = as each sees it).
 * *own gets the hub's own place (of its first rank; world and addresses also when it has none). */
ls_status ls__hub_start(ls__hub *hub, const ls__node_place *common, ls__node_place *own);
/* The launcher that starts a rank, after the start. */
int ls__hub_launcher_of(const ls__hub *hub, int rank);
int ls__hub_first_rank(const ls__hub *hub, int launcher);
int ls__hub_local_rank(const ls__hub *hub, int launcher); /* of its first rank */

void ls__hub_send(ls__hub *hub, int launcher, const ls__node_frame *frame);
void ls__hub_broadcast(ls__hub *hub, const ls__node_frame *frame);
/* Tells all who are there, and who come, that this is over. */
void ls__hub_refuse_all(ls__hub *hub, const char *why);
/* Sends what waits, for at most so many seconds, until the others have closed their ends. */
void ls__hub_drain(ls__hub *hub, double seconds);

#endif
