/* The spoke: another node's end of its connection to the first one. It goes on trying until the first
 * node is there, proves and checks the secret, joins, and from then on hands frames to its owner. */
#ifndef LS_LAUNCH_SPOKE_H
#define LS_LAUNCH_SPOKE_H

#include "launch/node_link.h"

typedef struct ls__spoke ls__spoke;

typedef enum ls__spoke_state {
    LS__SPOKE_TRYING, /* not connected, or not let in yet */
    LS__SPOKE_JOINED, /* waits for the others, or for a new start */
    LS__SPOKE_PLACED, /* the job runs */
    LS__SPOKE_REFUSED,
    LS__SPOKE_LOST, /* the first node is gone */
} ls__spoke_state;

typedef struct ls__spoke_options {
    const char *host, *secret; /* borrowed; secret "" = none */
    int port;
    ls__node_join join;
    double silence; /* seconds without a word after which the first node is lost; 0 = 5 */
    void (*message)(void *user, const ls__node_frame *frame);
    /* The numbers behind the time of a ping: age of the last sign of life in ms, step. */
    void (*pulse)(void *user, int64_t numbers[2]);
    void *user;
} ls__spoke_options;

ls_status ls__spoke_create(const ls__spoke_options *options, ls__spoke **out);
void ls__spoke_destroy(ls__spoke *spoke);
/* After the first node was lost: begins anew, with what is said when it joins. */
void ls__spoke_again(ls__spoke *spoke, const ls__node_join *join);
int ls__spoke_fd(const ls__spoke *spoke);
void ls__spoke_serve(ls__spoke *spoke);
double ls__spoke_due(const ls__spoke *spoke);

ls__spoke_state ls__spoke_state_of(const ls__spoke *spoke);
/* Why it is not in (yet), or the first node lost. */
const char *ls__spoke_why(const ls__spoke *spoke);
const ls__node_place *ls__spoke_place(const ls__spoke *spoke); /* when PLACED */
/* A local time on the first node's clock. */
int64_t ls__spoke_time(const ls__spoke *spoke, int64_t ns);
/* Half of the shortest round trip: what the clocks are known to. Negative = not measured. */
double ls__spoke_uncertainty(const ls__spoke *spoke);

/* The interface by which the first node is reached; "" = it is this machine. */
void ls__spoke_interface(const ls__spoke *spoke, char out[32]);

void ls__spoke_send(ls__spoke *spoke, const ls__node_frame *frame);
/* Bytes that wait to be sent. */
size_t ls__spoke_waiting(const ls__spoke *spoke);
/* Sends what waits, for at most so many seconds. */
void ls__spoke_drain(ls__spoke *spoke, double seconds);

#endif
