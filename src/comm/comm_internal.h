/* A communicator over shared memory: its layout, calls, meetings, waiting.
 *
 * All ranks make the same calls in the same order, so a call is known by its number. A rank enters
 * call s by writing what it calls (and up to 48 bytes) into one of its two heads, then the number s
 * into the same cache line; it has *met* the others when it has seen s in every rank's head. Two
 * heads are enough: nobody enters s+2 before it has met everybody in s+1, and whoever is in s+1 has
 * read the heads of s. The arena's slots are guarded by the same argument.
 *
 *     region:  lane[size]            one rank's lines, written by it alone
 *              pair[size * size]     pair[from * size + to], for send and recv
 *              arena[size][SLOTS]    pipeline slots of each rank for buffers that peers cannot read
 *              mail[size][2]         the same for what a rank is sending to one other
 *
 * Only what is used is ever touched. */
#ifndef LS_COMM_INTERNAL_H
#define LS_COMM_INTERNAL_H

#include "comm/reduction.h"
#include "comm/shm_internal.h"

typedef enum ls__op {
    LS__OP_NONE,
    LS__OP_BARRIER,
    LS__OP_ALL_REDUCE,
    LS__OP_REDUCE_SCATTER,
    LS__OP_ALL_GATHER,
    LS__OP_BROADCAST,
    LS__OP_SEND,
    LS__OP_RECV,
    LS__OP_ALLOC,
    LS__OP_FREE,
    LS__OP_AGREE,
    LS__OP_COMMIT,
} ls__op;

enum {
    LS__INLINE = 48, /* bytes that travel in the line of the flag */
    LS__SLOTS = 4,
    LS__PLACE = 200, /* bytes of a return address's text */
};

/* One call as the user made it. in and out are NULL where the operation has none. */
typedef struct ls__call {
    ls__op op;
    ls_dtype type;
    ls_reduce reduce;
    int peer; /* a broadcast's root, the other rank of a pair: as called in the job */
    int64_t count;
    const void *in;
    void *out;
    const void *site; /* return address in the user's code */
} ls__call;

/* `what` is the whole call in 64 bits, so that two calls agree exactly when the words are equal. */
typedef struct ls__head {
    _Alignas(LS__LINE) _Atomic uint64_t seq;
    uint64_t what;
    unsigned char inlined[LS__INLINE];
} ls__head;

typedef struct ls__lane {
    ls__head heads[2];
    _Alignas(LS__LINE) _Atomic uint64_t progress; /* steps inside calls, over the whole life */
    struct ls__record_line {
        _Alignas(LS__LINE) _Atomic uint64_t seq;
        _Atomic uint64_t what, site;
        _Atomic int pid;
        _Atomic int inside; /* 0: it has returned */
        _Atomic int placed; /* its failure is being reported: the site as text follows */
        char place[LS__PLACE];
    } record; /* the latest call; read for a report only */
} ls__lane;

/* One direction between two ranks. Either side announces its message number and, under the number's
 * parity, what it expects: nobody begins message m+2 before the other has finished m. */
typedef struct ls__pair_end {
    _Alignas(LS__LINE) _Atomic uint64_t seq;
    _Atomic uint64_t chunks; /* moved so far, over the whole life */
    struct {
        uint64_t what, site;
        uint64_t place; /* sender's buffer in the file; 0 = private */
    } calls[2];
} ls__pair_end;

typedef struct ls__pair {
    ls__pair_end sender, receiver;
} ls__pair;

typedef struct ls__allocation {
    size_t offset, stride; /* in the file; bytes of one rank's part, whole pages */
    unsigned char *base;   /* (size, stride) */
} ls__allocation;

static inline unsigned char *ls__allocation_part(const ls__allocation *a, int r)
{
    return a->base + (size_t)r * a->stride;
}

typedef struct ls__net ls__net;

/* Over one machine, or, with nodes, over several: then it has no region of its own but the
 * communicator of this node's ranks and links to other nodes' (net.h). */
struct ls_comm {
    int rank, size;
    const int
        *names;     /* (size) of a node's ranks, what they are called in the job; NULL = the same */
    ls__net *nodes; /* NULL: one machine */
    ls__shm *shm;   /* NULL: alone, or over several nodes */
    int64_t timeout_ns;
    int64_t spin_ns; /* before sleeping */
    int yields;
    size_t arena;

    size_t offset, nbytes; /* of the region */
    int number;            /* among the file's communicators */
    unsigned char *region;
    ls__lane *lanes;
    ls__lane *lane; /* own; NULL: alone, or over several nodes */
    ls__pair *pairs;
    unsigned char *slots, *mail;

    uint64_t seq;      /* calls made */
    uint64_t progress; /* steps published */
    uint64_t settled;  /* of those, the ones that everybody is known to have done */
    bool entered;      /* call seq is published but not met */

    const ls__kernels *kernels;
    ls__tree *tree;       /* over the ranks */
    const void **sources; /* (size) of the call in hand */
    void **targets;       /* (size) */

    ls__allocation *allocations;
    int nallocations, allocations_capacity;

    ls_work *first, **last; /* started and not finished, in order */

    ls_status broken; /* the first error; nothing goes on after it */
    char broken_text[512];
};

uint64_t ls__call_what(const ls__call *call);
ls__call ls__call_unpack(uint64_t what); /* without buffers */

/* Enters the next call with up to LS__INLINE bytes for everybody; then meets the others. */
void ls__comm_enter(ls_comm *comm, const ls__call *call, const void *inlined, size_t nbytes);
ls_status ls__comm_meet(ls_comm *comm);
/* What rank r brought to the call met last. */
static inline const void *ls__comm_inlined(const ls_comm *comm, int r)
{
    return comm->lanes[r].heads[comm->seq & 1].inlined;
}
/* Both, for calls that have nothing to do between. */
ls_status ls__comm_gather_inlined(ls_comm *comm, const ls__call *call, const void *inlined,
                                  size_t nbytes);
/* One more step inside a call is done; and: until everybody has done that many. */
void ls__comm_step(ls_comm *comm);
ls_status ls__comm_await_step(ls_comm *comm, uint64_t progress);

/* Publishes a word that others wait for, and wakes them. */
void ls__comm_publish(ls_comm *comm, _Atomic uint64_t *word, uint64_t value);
/* Until *word, which rank `peer` publishes, is at least value. */
ls_status ls__comm_wait_slowly(ls_comm *comm, int peer, const _Atomic uint64_t *word,
                               uint64_t value);
static inline ls_status ls__comm_wait(ls_comm *comm, int peer, const _Atomic uint64_t *word,
                                      uint64_t value)
{
    if (atomic_load_explicit(word, memory_order_acquire) >= value) return LS_OK;
    return ls__comm_wait_slowly(comm, peer, word, value);
}

static inline int ls__comm_name(const ls_comm *comm, int r)
{
    return comm->names ? comm->names[r] : r;
}
/* Of the rank that is called so. */
static inline int ls__comm_index(const ls_comm *comm, int name)
{
    int r = comm->names ? 0 : name;
    while (comm->names && comm->names[r] != name) r++;
    return r;
}

/* [all] nbytes (to LS__INLINE) of every rank for everybody, on one machine or several. */
ls_status ls__comm_collect(ls_comm *comm, const ls__call *call, const void *mine, size_t nbytes);
const void *ls__comm_collected(const ls_comm *comm, int r, size_t nbytes);

/* Notes the call for reports. */
void ls__comm_note(ls_comm *comm, const ls__call *call, uint64_t seq);
void ls__comm_leave(ls_comm *comm); /* the call has succeeded */
/* The error of a broken communicator, each time it is used again. */
ls_status ls__comm_broken(ls_comm *comm);
/* Marks the communicator as broken with the thread's error text. */
ls_status ls__comm_break(ls_comm *comm, ls_status status);
ls_status ls__comm_report_timeout(ls_comm *comm);
ls_status ls__comm_report_mismatch(ls_comm *comm);
/* The job is being ended: LS_ERR_PEER with the rank that was lost. */
ls_status ls__comm_poisoned(ls_comm *comm);
ls_status ls__comm_report_pair(ls_comm *comm, const ls__call *call, uint64_t theirs, uint64_t site);

/* [all] Shared memory of `nbytes` per rank, zeroed; the first `touched` bytes of the own part are
 * taken at once. All get it or none; status: not LS_OK when this rank has failed already. */
ls_status ls__comm_reserve(ls_comm *comm, size_t nbytes, size_t touched, const ls__call *call,
                           ls_status status, ls__allocation *out);
/* [all] */
void ls__comm_release(ls_comm *comm, const ls__allocation *allocation, const ls__call *call);
/* Where p lies in the file, when the count bytes from it are in this rank's part of communicator
 * memory; else 0. */
size_t ls__comm_locate(const ls_comm *comm, const void *p, size_t nbytes);
/* The address of an offset that a peer's ls__comm_locate gave; NULL = nothing of ours. */
void *ls__comm_address(const ls_comm *comm, size_t offset);

void ls__allocation_unmap(ls_comm *comm, const ls__allocation *allocation);

#endif
