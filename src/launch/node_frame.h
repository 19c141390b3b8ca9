/* What the launchers of a job's nodes say to each other: frames over one TCP connection per node.
 *
 *     bytes  0      4     5
 *            | rest | type | numbers (8 each) | length (4), bytes | ...
 *
 * Little endian; rest counts the bytes behind itself. How many numbers and byte strings a type has,
 * and how long those may be, is one table; a frame that is not exactly so ends the connection. Times
 * are nanoseconds of the first node's clock. */
#ifndef LS_LAUNCH_NODE_FRAME_H
#define LS_LAUNCH_NODE_FRAME_H

#include "world/report.h"
#include "world/store_frame.h"

enum {
    LS__NODE_PROTOCOL = 2, /* both sides must speak the same */
    LS__NODE_NUMBERS = 14,
    LS__NODE_TEXTS = 6,
    LS__NODE_NAME_MAX = 255,
    LS__NODE_TEXT_MAX = 2047,
    LS__NODE_LINE_MAX = 1 << 16,
    LS__NODE_GREETING_MAX = 256, /* bytes of a frame from somebody who has not proved anything */
    LS__NODE_FRAME_MAX = 5 + 8 * LS__NODE_NUMBERS + 4 + LS__NODE_LINE_MAX,
};

/* X(name, numbers, texts, longest of each text) */
#define LS__NODE_FRAME_MAP(X)                                                                      \
    X(HELLO, 1, 1, { 16 })                /* protocol; nonce */                                    \
    X(CHALLENGE, 1, 2, { 16, 32 })        /* whether a secret is wanted; nonce, code */            \
    X(ANSWER, 0, 1, { 32 })               /* code */                                               \
    X(JOIN, 5, 4, { 255, 255, 255, 255 }) /* ls__node_join */                                      \
    X(REFUSED, 1, 1, { 2047 })            /* whether to try again; why */                          \
    X(PLACE, 12, 6, { 255, 255, 255, 255, 255, 255 }) /* ls__node_place */                         \
    X(PING, 4, 0, { 0 }) /* time here; age of the last sign of life, ms; step; trip, ns */         \
    X(PONG, 2, 0, { 0 }) /* the ping's time; the first node's */                                   \
    X(FAILED, 11, 2, { 2047, 255 }) /* to node 0: an end; said, host */                            \
    X(TRACEBACK, 2, 0, { 0 })       /* to node 0: rank; when it began */                           \
    X(LINE, 3, 1, { 1 << 16 })      /* to node 0: rank, which, lines left out before; text */      \
    X(EVENT, 0, 1, { 1 << 16 })     /* to node 0: JSON */                                          \
    X(METRICS, 0, 1, { 1 << 16 })   /* to node 0: what rank 0 wrote */                             \
    X(SIGNAL, 1, 0, { 0 }) /* number; to node 0: somebody sent it, from node 0: act on it */       \
    X(VERDICT, 11, 2, { 2047, 255 }) /* from node 0: the job has failed so; end your ranks */      \
    X(ENDED, 3, 0, { 0 }) /* to node 0: no rank is left here: restarts, stop code, step */         \
    X(FINISH, 11, 2, { 2047, 255 }) /* from node 0: it is over, so */                              \
    X(LOOK, 0, 0, { 0 }) /* from node 0: somebody looks; tell what your ranks are doing */         \
    X(FIGURES, 0, 1, { 1 << 16 }) /* to node 0: JSON, ls__rank_looks_json */

typedef enum ls__node_frame_type {
#define LS__NODE_FRAME_ENUM(name, numbers, texts, ...) LS__NODE_##name,
    LS__NODE_FRAME_MAP(LS__NODE_FRAME_ENUM)
#undef LS__NODE_FRAME_ENUM
        LS__NODE_FRAMES
} ls__node_frame_type;

typedef struct ls__node_text {
    const char *data; /* (nbytes) not ended by NUL; borrowed */
    size_t nbytes;
} ls__node_text;

typedef struct ls__node_frame {
    ls__node_frame_type type;
    int64_t numbers[LS__NODE_NUMBERS];
    ls__node_text texts[LS__NODE_TEXTS];
} ls__node_frame;

/* Behind what is there; texts longer than their limit are cut. */
ls_status ls__node_frame_append(ls__bytes *bytes, const ls__node_frame *frame);
/* The first frame in data, of at most limit bytes. *used = 0 when it is not complete yet.
 * LS_ERR_DATA: not a frame. frame borrows data. */
ls_status ls__node_frame_parse(const void *data, size_t nbytes, size_t limit, ls__node_frame *frame,
                               size_t *used);

ls__node_text ls__node_text_of(const char *text);
/* A copy that ends with NUL, without control characters. */
void ls__node_text_copy(ls__node_text text, char *out, size_t size);

/* --- documents in frames --- */

/* What a launcher brings. */
typedef struct ls__node_join {
    int node_rank; /* -1 = as it comes */
    int size;      /* ranks it starts; 0 only for a first node that starts none */
    int port;      /* held there, for MASTER_PORT if rank 0 is its */
    int restarts;  /* of the job, as far as it knows: 0 when it is new */
    int pid;
    char host[LS__NODE_NAME_MAX + 1];    /* its name for people */
    char machine[LS__NODE_NAME_MAX + 1]; /* launchers of one machine say the same; "" = alone */
    char address[LS__NODE_NAME_MAX + 1]; /* MASTER_ADDR if it is the first; "" = as it is seen */
    char run_id[LS__NODE_NAME_MAX +
                1]; /* of the job that it ran ranks of, start .restarts; "" = new */
} ls__node_join;

/* What it becomes. */
typedef struct ls__node_place {
    int launcher, launchers;                            /* connections */
    int node, nodes;                                    /* machines */
    int first_rank, world_size, local_rank, local_size; /* of its first rank */
    int port;                                           /* MASTER_PORT */
    int restarts, max_restarts;
    int grace_ms; /* -1 = none */
    char master_addr[LS__NODE_NAME_MAX + 1], run_id[LS__NODE_NAME_MAX + 1];
    char role[LS__NODE_NAME_MAX + 1], host[LS__NODE_NAME_MAX + 1]; /* of the first node */
    char secret[LS__NODE_NAME_MAX + 1];   /* for ranks, where the launchers have none */
    char run_name[LS__NODE_NAME_MAX + 1]; /* of the run that the first node keeps; "" = none */
} ls__node_place;

void ls__node_join_frame(const ls__node_join *join, ls__node_frame *out); /* borrows */
/* LS_ERR_DATA when a number is beyond its limits. */
ls_status ls__node_join_read(const ls__node_frame *frame, ls__node_join *out);
void ls__node_place_frame(const ls__node_place *place, ls__node_frame *out);
ls_status ls__node_place_read(const ls__node_frame *frame, ls__node_place *out);
/* type: FAILED, VERDICT or FINISH. began: nanoseconds. */
void ls__node_end_frame(ls__node_frame_type type, const ls__end *end, const char *host,
                        int64_t began, ls__node_frame *out);
ls_status ls__node_end_read(const ls__node_frame *frame, ls__end *out,
                            char host[LS__NODE_NAME_MAX + 1], int64_t *began);

enum { LS__NODES_MAX = 1 << 16, LS__WORLD_MAX = 1 << 20 };

#endif
