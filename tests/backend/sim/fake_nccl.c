/* NCCL for tests: ranks are threads of one process, streams are the simulation's, bytes really move,
 * and every call is written down, so that order and arguments can be looked at. Compiled without our
 * prototypes: the declarations here are the interface as NVIDIA documents it, written a second time.
 * With FAKE_OLD it has what version 2.18 had.
 *
 * A test opens it by its path before the code under test asks for libnccl.so.2, and finds the
 * functions fake_nccl_... by dlsym. */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sim/sim_api.h"

typedef enum {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
} ncclConfig_t;
enum { RANKS = 8, OPS = 64, COMMS = 64, LOG = 8192, INT8 = 0, FLOAT32 = 7 };

typedef struct op {
    char kind; /* 's'end, 'r'ecv, 'a'dd, 'g'ather */
    const void *from;
    void *to;
    size_t count;
    int peer;
} op;
typedef struct group {
    struct ncclComm *comm;
    cudaStream_t stream;
    int n;
    op ops[OPS];
} group;
typedef struct crowd { /* the ranks of one communicator */
    int id, size, joined;
    bool broken; /* one has ended: the others wait for good */
    group posted[RANKS];
    uint64_t entered[RANKS], left[RANKS];
} crowd;
typedef struct ncclComm {
    crowd *crowd;
    int rank, polls, handles;
    uint64_t groups;
    bool ended, finalized;
    ncclResult_t error;
} * ncclComm_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct ncclComm comms[COMMS];
static crowd crowds[COMMS];
static int ncomms, ncrowds, nids;
static char logs[RANKS][LOG];
static int allocated; /* pieces of its own memory */
static struct {
    char what[32];
    int rank;
} failing;
static _Thread_local group pending;
static _Thread_local int depth;

/* --- for tests --- */
void fake_nccl_log(int rank, char *out, size_t size);
void fake_nccl_fail(const char *what, int rank);
void fake_nccl_forget(void);
int fake_nccl_allocated(void);

static void note(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(int rank, const char *format, ...)
{
    va_list args;
    size_t n = strlen(logs[rank]);
    va_start(args, format);
    vsnprintf(logs[rank] + n, LOG - n, format, args);
    va_end(args);
}

/* What was called by a rank, line by line. */
void fake_nccl_log(int rank, char *out, size_t size)
{
    pthread_mutex_lock(&lock);
    snprintf(out, size, "%s", logs[rank]);
    pthread_mutex_unlock(&lock);
}

/* From now on this call fails on that rank; "async": while it is polled. "" = none. */
void fake_nccl_fail(const char *what, int rank)
{
    pthread_mutex_lock(&lock);
    snprintf(failing.what, sizeof failing.what, "%s", what);
    failing.rank = rank;
    pthread_mutex_unlock(&lock);
}

void fake_nccl_forget(void)
{
    pthread_mutex_lock(&lock);
    memset(logs, 0, sizeof logs);
    ncomms = ncrowds = 0;
    pthread_mutex_unlock(&lock);
}

int fake_nccl_allocated(void)
{
    return allocated;
}

static bool fails(const char *what, int rank)
{
    return strcmp(failing.what, what) == 0 && failing.rank == rank;
}

/* --- a group's work, by the stream's thread --- */

static const op *message_for(const group *from, int rank, int number)
{
    for (int i = 0; i < from->n; i++)
        if (from->ops[i].kind == 's' && from->ops[i].peer == rank && number-- == 0)
            return &from->ops[i];
    return NULL;
}

static void add(const group *g, int at)
{
    const op *o = &g->ops[at];
    size_t rank = (size_t)g->comm->rank;
    for (size_t i = 0; i < o->count; i++) {
        float sum = 0;
        for (int p = 0; p < g->comm->crowd->size; p++)
            sum += ((const float *)g->comm->crowd->posted[p].ops[at].from)[rank * o->count + i];
        ((float *)o->to)[i] = sum;
    }
}

static void compute(const group *g)
{
    int taken[RANKS] = { 0 };
    for (int i = 0; i < g->n; i++) {
        const op *o = &g->ops[i], *other;
        size_t nbytes = o->count * sizeof(float);
        if (o->kind == 'a') add(g, i);
        for (int p = 0; o->kind == 'g' && p < g->comm->crowd->size; p++) {
            char *to = (char *)o->to + (size_t)p * nbytes;
            if (to != g->comm->crowd->posted[p].ops[i].from) /* in place */
                memcpy(to, g->comm->crowd->posted[p].ops[i].from, nbytes);
        }
        if (o->kind == 'r' && (other = message_for(&g->comm->crowd->posted[o->peer], g->comm->rank,
                                                   taken[o->peer]++)))
            memcpy(o->to, other->from, o->count);
    }
}

static bool all_are(const uint64_t *counts, const crowd *c, uint64_t number)
{
    for (int p = 0; p < c->size; p++)
        if (counts[p] < number) return false;
    return true;
}

static void run(const void *argument)
{
    const group *g = argument;
    ncclComm_t comm = g->comm;
    crowd *c = comm->crowd;
    pthread_mutex_lock(&lock);
    uint64_t number = ++comm->groups;
    c->posted[comm->rank] = *g;
    c->entered[comm->rank] = number;
    pthread_cond_broadcast(&changed);
    while (!comm->ended && (c->broken || !all_are(c->entered, c, number)))
        pthread_cond_wait(&changed, &lock);
    if (!comm->ended) compute(g);
    c->left[comm->rank] = number;
    pthread_cond_broadcast(&changed);
    while (!comm->ended && (c->broken || !all_are(c->left, c, number)))
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* --- NCCL --- */

#define FAKE(name, ...)                                                                            \
    ncclResult_t name(__VA_ARGS__);                                                                \
    ncclResult_t name(__VA_ARGS__)

static ncclResult_t add_op(ncclComm_t comm, cudaStream_t stream, op o)
{
    pending.comm = comm;
    pending.stream = stream;
    if (depth == 0 || pending.n == OPS) return ncclInvalidUsage; /* all calls are grouped here */
    pending.ops[pending.n++] = o;
    return ncclSuccess;
}

FAKE(ncclGetVersion, int *version)
{
#ifdef FAKE_OLD
    *version = 21805;
#else
    *version = 22803;
#endif
    return ncclSuccess;
}

static const char *interface(void)
{
    const char *name = getenv("NCCL_SOCKET_IFNAME");
    return name ? name : "any";
}

FAKE(ncclGetUniqueId, ncclUniqueId *out)
{
    pthread_mutex_lock(&lock);
    bool bad = fails("unique_id", 0);
    memset(out, 0, sizeof *out);
    snprintf(out->internal, sizeof out->internal, "%d", ++nids);
    note(0, "unique_id over %s\n", interface());
    pthread_mutex_unlock(&lock);
    return bad ? ncclSystemError : ncclSuccess;
}

FAKE(ncclCommInitRankConfig, ncclComm_t *out, int size, ncclUniqueId id, int rank,
     ncclConfig_t *config)
{
    pthread_mutex_lock(&lock);
    int number = atoi(id.internal), i = 0;
    while (i < ncrowds && crowds[i].id != number) i++;
    if (i == ncrowds) crowds[ncrowds++] = (crowd) { .id = number, .size = size };
    bool bad = fails("init", rank);
    crowds[i].joined += !bad; /* the others wait for it */
    *out = &comms[ncomms++];
    **out = (struct ncclComm) { .crowd = &crowds[i], .rank = rank };
    note(rank, "init %d of %d %s over %s\n", rank, size,
         config->magic == 0xcafebeefu && config->size >= 20 && config->blocking == 0
             ? "non-blocking"
             : "badly configured",
         interface());
    pthread_mutex_unlock(&lock);
    return bad ? ncclSystemError : ncclInProgress;
}

FAKE(ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *out)
{
    pthread_mutex_lock(&lock);
    bool ready = comm->polls++ >= 2 && comm->crowd->joined == comm->crowd->size;
    *out = fails("async", comm->rank) ? ncclRemoteError : ready ? ncclSuccess : ncclInProgress;
    if (comm->ended) note(comm->rank, "used after its end\n");
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

FAKE(ncclGroupStart, void)
{
    depth++;
    return ncclSuccess;
}

static const char *name_of(char kind)
{
    return kind == 's'   ? "send"
           : kind == 'r' ? "recv"
           : kind == 'a' ? "reduce_scatter"
                         : "all_gather";
}

FAKE(ncclGroupEnd, void)
{
    if (--depth > 0 || pending.n == 0) return ncclSuccess;
    ncclComm_t comm = pending.comm;
    pthread_mutex_lock(&lock);
    note(comm->rank, "group");
    for (int i = 0; i < pending.n; i++) {
        const op *o = &pending.ops[i];
        note(comm->rank, " %s", name_of(o->kind));
        if (o->peer >= 0) note(comm->rank, " %d", o->peer);
        note(comm->rank, " %zu%s", o->count, i + 1 < pending.n ? "," : "\n");
    }
    bool bad = fails("group", comm->rank);
    comm->polls = 0; /* taken in after some polls */
    pthread_mutex_unlock(&lock);
    bool launched =
        bad || ls__sim_work(pending.stream, "nccl", run, &pending, sizeof pending) == cudaSuccess;
    pending.n = 0;
    return bad || !launched ? ncclSystemError : ncclInProgress;
}

FAKE(ncclSend, const void *data, size_t count, int type, int peer, ncclComm_t comm,
     cudaStream_t stream)
{
    if (type != INT8) return ncclInvalidUsage;
    return add_op(comm, stream, (op) { 's', data, NULL, count, peer });
}

FAKE(ncclRecv, void *data, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    if (type != INT8) return ncclInvalidUsage;
    return add_op(comm, stream, (op) { 'r', NULL, data, count, peer });
}

FAKE(ncclReduceScatter, const void *from, void *to, size_t count, int type, int operation,
     ncclComm_t comm, cudaStream_t stream)
{
    if (type != FLOAT32 || operation != 0) return ncclInvalidUsage;
    return add_op(comm, stream, (op) { 'a', from, to, count, -1 });
}

FAKE(ncclAllGather, const void *from, void *to, size_t count, int type, ncclComm_t comm,
     cudaStream_t stream)
{
    if (type != FLOAT32) return ncclInvalidUsage;
    return add_op(comm, stream, (op) { 'g', from, to, count, -1 });
}

static ncclResult_t end(ncclComm_t comm, const char *what, bool aborts)
{
    pthread_mutex_lock(&lock);
    if (comm->ended) note(comm->rank, "used after its end\n");
    if (!aborts && !comm->finalized) note(comm->rank, "not finalized\n");
    if (!aborts && comm->handles) note(comm->rank, "memory is still registered\n");
    note(comm->rank, "%s\n", what);
    comm->ended = true;
    comm->crowd->broken |= aborts;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

FAKE(ncclCommFinalize, ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    note(comm->rank, "finalize\n");
    comm->finalized = true;
    comm->polls = 0;
    pthread_mutex_unlock(&lock);
    return ncclInProgress;
}

FAKE(ncclCommDestroy, ncclComm_t comm)
{
    return end(comm, "destroy", false);
}

FAKE(ncclCommAbort, ncclComm_t comm)
{
    return end(comm, "abort", true);
}

const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSystemError   ? "unhandled system error"
           : result == ncclRemoteError ? "remote process exited or there was a network error"
                                       : "invalid usage";
}

const char *ncclGetLastError(ncclComm_t comm);
const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? "a cable is loose" : "";
}

#ifndef FAKE_OLD
FAKE(ncclCommRegister, const ncclComm_t comm, void *data, size_t nbytes, void **handle)
{
    pthread_mutex_lock(&lock);
    bool bad = fails("register", comm->rank);
    note(comm->rank, "register %zu\n", nbytes);
    if (!bad) comm->handles++;
    *handle = bad ? NULL : data;
    pthread_mutex_unlock(&lock);
    return bad ? ncclSystemError : ncclSuccess;
}

FAKE(ncclCommDeregister, const ncclComm_t comm, void *handle)
{
    pthread_mutex_lock(&lock);
    note(comm->rank, "deregister%s\n", handle ? "" : " nothing");
    comm->handles--;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

FAKE(ncclMemAlloc, void **out, size_t nbytes)
{
    pthread_mutex_lock(&lock);
    allocated++;
    bool bad = failing.what[0] && strcmp(failing.what, "memory") == 0;
    pthread_mutex_unlock(&lock);
    return bad || cudaMalloc(out, nbytes) != cudaSuccess ? ncclSystemError : ncclSuccess;
}

FAKE(ncclMemFree, void *data)
{
    pthread_mutex_lock(&lock);
    allocated--;
    pthread_mutex_unlock(&lock);
    return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclSystemError;
}
#endif
