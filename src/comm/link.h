/* Links: bytes between ranks of different machines.
 *
 * The seam behind which engines (Gloo, MPI) lie, each a plugin. An engine moves bytes between two
 * ranks and knows nothing else: no reduction, no collective, no meeting; every sum is ours, in the
 * tree, so that all engines give the same bits.
 *
 * Messages from one rank to another on one channel arrive in the order in which they were started;
 * a receive has the size of the message that it meets. A link is used by one thread. */
#ifndef LS_COMM_LINK_H
#define LS_COMM_LINK_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls__channel {
    LS__CHANNEL_FRAME,  /* between the first ranks of two nodes: meetings */
    LS__CHANNEL_REST,   /* what did not fit into a frame */
    LS__CHANNEL_SUM,    /* partial sums to the owner of a slice */
    LS__CHANNEL_SPREAD, /* finished slices to their counterparts on other nodes */
    LS__CHANNEL_SENDER, /* a pair: what the sender says about the message, */
    LS__CHANNEL_TAKER,  /* what the receiver does, */
    LS__CHANNEL_MAIL,   /* the message */
    LS__CHANNELS,
} ls__channel;

/* A message on its way. Where it is and its buffer stay until the wait for it has returned LS_OK or
 * the link was aborted. */
typedef struct ls__transfer {
    int peer;
    ls__channel channel;
    bool sends;
    void *data; /* (nbytes) */
    size_t nbytes;
    void *engine; /* the engine's own */
    bool done;    /* the caller's: it was waited for with success, and is not again */
} ls__transfer;

/* How long a wait may last. */
typedef struct ls__patience {
    int64_t deadline_ns;       /* ls__now_ns() scale; INT64_MAX = none */
    bool (*ended)(void *user); /* looked at now and then, by any thread: the job is being ended */
    void *user;
} ls__patience;

typedef struct ls__link ls__link;
struct ls__link {
    /* Never blocks for long. */
    ls_status (*start)(ls__link *link, ls__transfer *t);
    /* Until t is done. LS_ERR_TIMEOUT at the deadline, LS_ERR_PEER when the peer is lost or the job
     * ended; then the text says why, but not about whom. While a rank waits all its messages move. */
    ls_status (*wait)(ls__link *link, ls__transfer *t, const ls__patience *patience);
    /* Forgets every message on its way; their buffers are free. Peers that wait for this rank get
     * LS_ERR_PEER, where the engine can tell them. Only destroy may follow. */
    void (*abort)(ls__link *link);
    void (*destroy)(ls__link *link);
    /* optional: where messages move only inside calls. Moves them, and gives the CPU to others the
     * more, the more often (polls, from 1) the caller has looked in vain. */
    void (*progress)(ls__link *link, int64_t polls);
    /* Messages of at most so many bytes gain when they are started before their receives; 0: never.
     * The same on all ranks. */
    size_t eager;
};

/* A key-value store that all ranks share, for the rendezvous; each opening needs keys of its own (a
 * prefix). A value got is freed by ls__free. */
typedef struct ls__link_store {
    void *user;
    ls_status (*set)(void *user, const char *key, const void *value, size_t nbytes);
    ls_status (*get)(void *user, const char *key, int timeout_ms, char **value, size_t *nbytes);
} ls__link_store;

typedef struct ls__link_options {
    int rank, size;
    const int *nodes; /* (size) the machine of each rank; ranks of one machine are never linked */
    const ls__link_store *store;
    const char *root; /* host name or address at which rank 0's machine is reached; "" = unknown */
    int timeout_ms;   /* for opening; LS_NONE = none */
} ls__link_options;

/* What a plugin has under the name ls__link_table. */
typedef struct ls__link_table {
    const char *name;
    ls_status (*open)(const ls__link_options *options, ls__link **out); /* [all] */
    /* [all] Rank 0's text gets to all, by the engine alone: before there is a store. NULL: it needs
     * one. timeout_ms -1 = without end. */
    ls_status (*share)(int rank, int size, int timeout_ms, char *text, size_t limit);
} ls__link_table;

/* [all] Opens lockstep_NAME.so and a link by it: "gloo", "mpi". LS_ERR_UNSUPPORTED when this build
 * has no such plugin. */
ls_status ls__link_open(const char *name, const ls__link_options *options, ls__link **out);
/* [all] Opens the plugin for its share. LS_ERR_UNSUPPORTED when it has none. */
ls_status ls__link_share(const char *name, int rank, int size, int timeout_ms, char *text,
                         size_t limit);
/* Whether the plugin is there. */
bool ls__link_there(const char *name);

#ifdef __cplusplus
}
#endif
#endif
