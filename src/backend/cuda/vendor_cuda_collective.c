/* Exchanges of GPUs by NCCL, opened at run time: the plugin loads where it is not installed, and
 * exchanges through the host then.
 *
 * What is asked of NCCL is to move bytes: grouped sends and receives, all to all. It moves no more of
 * them than a reduce-scatter and an all-gather would, and every sum stays ours, in the tree.
 * Communicators are non-blocking: whatever hangs in NCCL is found by the waiting host and aborted.
 *
 * The few prototypes are our own, so that no header of NCCL's is needed to build; where there is one,
 * they are compared with it. */
#include "backend/cuda/vendor_collective.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/cuda_roll.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* --- NCCL as it is used here; valid from 2.14 on --- */

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7, NCCL_INT8 = 0, NCCL_ID_BYTES = 128 };
enum { NCCL_MAGIC = (int)0xcafebeef, NCCL_KNOWN_VERSION = 21400 };

typedef struct nccl_comm nccl_comm;
typedef struct nccl_id {
    char bytes[NCCL_ID_BYTES];
} nccl_id;
typedef struct nccl_config { /* of that version: later fields are taken as not set */
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;

#if defined(__has_include)
#if __has_include(<nccl.h>)
#include <nccl.h>
_Static_assert(NCCL_OK == (int)ncclSuccess && NCCL_INT8 == (int)ncclInt8, "as NCCL's");
_Static_assert(NCCL_IN_PROGRESS == (int)ncclInProgress, "as NCCL's");
_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "as NCCL's");
_Static_assert(offsetof(nccl_config, magic) == offsetof(ncclConfig_t, magic), "as NCCL's");
_Static_assert(offsetof(nccl_config, version) == offsetof(ncclConfig_t, version), "as NCCL's");
_Static_assert(offsetof(nccl_config, blocking) == offsetof(ncclConfig_t, blocking), "as NCCL's");
#endif
#endif

static struct nccl {
    int (*get_version)(int *version);
    int (*get_unique_id)(nccl_id *out);
    int (*init)(nccl_comm **out, int size, nccl_id id, int rank, nccl_config *config);
    int (*finalize)(nccl_comm *comm);
    int (*destroy)(nccl_comm *comm);
    int (*abort)(nccl_comm *comm);
    int (*async_error)(nccl_comm *comm, int *error);
    int (*send)(const void *data, size_t count, int type, int peer, nccl_comm *comm,
                cudaStream_t stream);
    int (*recv)(void *data, size_t count, int type, int peer, nccl_comm *comm, cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*error_string)(int result);
    const char *(*last_error)(nccl_comm *comm);
} nccl; /* a process opens it once */

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
    { "ncclGetVersion", offsetof(struct nccl, get_version) },
    { "ncclGetUniqueId", offsetof(struct nccl, get_unique_id) },
    { "ncclCommInitRankConfig", offsetof(struct nccl, init) },
    { "ncclCommFinalize", offsetof(struct nccl, finalize) },
    { "ncclCommDestroy", offsetof(struct nccl, destroy) },
    { "ncclCommAbort", offsetof(struct nccl, abort) },
    { "ncclCommGetAsyncError", offsetof(struct nccl, async_error) },
    { "ncclSend", offsetof(struct nccl, send) },
    { "ncclRecv", offsetof(struct nccl, recv) },
    { "ncclGroupStart", offsetof(struct nccl, group_start) },
    { "ncclGroupEnd", offsetof(struct nccl, group_end) },
    { "ncclGetErrorString", offsetof(struct nccl, error_string) },
    { "ncclGetLastError", offsetof(struct nccl, last_error) },
};

/* NULL, or why it cannot be used. */
static const char *open_library(void)
{
    static char missing[160];
    if (nccl.get_version) return NULL;
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* stays */
    if (!library) return "libnccl.so.2 is not installed";
    struct nccl found;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) {
            snprintf(missing, sizeof missing, "libnccl.so.2 has no %s: version 2.14 is needed",
                     symbols[i].name);
            return missing;
        }
        memcpy((char *)&found + symbols[i].at, &symbol, sizeof symbol);
    }
    nccl = found;
    return NULL;
}

/* --- a communicator --- */

struct cuda_collective {
    nccl_comm *comm; /* NULL = aborted */
    cuda_roll roll;  /* without memory where ranks are on several machines */
    int device, rank, size;
    int64_t timeout_ns;         /* 0 = none */
    cudaEvent_t started, ended; /* around what was launched last */
    bool launched;
    int64_t waiting_since; /* the device waits for other ranks; 0 = not that we know */
    const char *what;
    uint64_t begun;
};

static ls_status fail(const cuda_collective *c, int result, const char *what)
{
    const char *more = c->comm ? nccl.last_error(c->comm) : NULL;
    return ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: %s%s%.300s", c->device, what,
                   nccl.error_string(result), more && more[0] ? ": " : "", more ? more : "");
}

static ls_status time_out(const cuda_collective *c, const char *what)
{
    double seconds = (double)c->timeout_ns * 1e-9;
    int last = ls__cuda_roll_last(&c->roll);
    if (last < 0)
        return ls_fail(LS_ERR_TIMEOUT,
                       "the exchange of %s has not ended within %.0f s, and it is not known which "
                       "rank is missing; NCCL_DEBUG=INFO tells what NCCL waits for",
                       what, seconds);
    return ls_fail(LS_ERR_TIMEOUT, "rank %d has not come to the exchange of %s within %.0f s", last,
                   what, seconds);
}

/* Until NCCL has taken in what was asked of it. */
static ls_status await_taken(cuda_collective *c, int result, const char *what)
{
    const struct timespec pause = { 0, 20000 };
    int64_t until = ls__now_ns() + c->timeout_ns;
    while (result == NCCL_IN_PROGRESS) {
        int called = nccl.async_error(c->comm, &result);
        if (called != NCCL_OK) return fail(c, called, what);
        if (result != NCCL_IN_PROGRESS) break;
        LS_TRY(ls__cuda_roll_check(&c->roll));
        if (c->timeout_ns && ls__now_ns() > until) return time_out(c, what);
        nanosleep(&pause, NULL);
    }
    return result == NCCL_OK ? LS_OK : fail(c, result, what);
}

/* --- who is there --- */

typedef struct place {
    char host[64];
    int64_t bus;     /* domain, bus and device of the GPU */
    int64_t missing; /* this rank has no NCCL */
} place;

static int64_t bus_of(int device)
{
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return -1;
    return ((int64_t)p.pciDomainID << 16) | (p.pciBusID << 8) | p.pciDeviceID;
}

bool ls__vendor_collective_available(ls_comm *comm, int device)
{
    int size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    const char *why = open_library();
    place own = { .bus = bus_of(device), .missing = why != NULL };
    if (gethostname(own.host, sizeof own.host - 1) != 0) own.missing = 1;
    place *all = ls__alloc((size_t)size, sizeof *all);
    if (!all) return false; /* the others find out in their next call */
    ls_status status = ls_comm_all_gather(comm, &own, all, (int64_t)sizeof own, LS_DTYPE_U8);
    bool good = status == LS_OK;
    for (int i = 0; good && i < size; i++) {
        if (all[i].missing && !why) why = "a rank has no libnccl.so.2";
        for (int j = 0; j < i; j++)
            if (all[i].bus == all[j].bus && strcmp(all[i].host, all[j].host) == 0 && !why)
                why = "several ranks compute on one GPU";
    }
    ls__free(all);
    if (good && why && rank == 0)
        ls__log(LS__LOG_WARN, "%s: gradients are exchanged through the host's memory", why);
    return good && !why;
}

/* --- begin and end --- */

static ls_status connect(cuda_collective *c, ls_comm *comm)
{
    nccl_id id = { { 0 } };
    nccl_config config = { sizeof config, (unsigned)NCCL_MAGIC, NCCL_KNOWN_VERSION, 0 };
    int result = c->rank == 0 ? nccl.get_unique_id(&id) : NCCL_OK, version = 0;
    LS_TRY(ls_comm_broadcast(comm, &id, (int64_t)sizeof id, LS_DTYPE_U8, 0));
    if (result != NCCL_OK) return fail(c, result, "addresses");
    result = nccl.init(&c->comm, c->size, id, c->rank, &config);
    LS_TRY(await_taken(c, result, "addresses"));
    if (c->rank == 0 && nccl.get_version(&version) == NCCL_OK)
        ls__log(LS__LOG_DEBUG, "NCCL %d.%d.%d connects the ranks", version / 10000,
                version / 100 % 100, version % 100);
    return LS_OK;
}

static ls_status make_events(cuda_collective *c)
{
    cudaError_t error = cudaEventCreateWithFlags(&c->started, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->ended, cudaEventDisableTiming);
    return error == cudaSuccess ? LS_OK
                                : ls_fail(LS_ERR_DEVICE, "GPU %d: making an event: %s", c->device,
                                          cudaGetErrorString(error));
}

ls_status ls__vendor_collective_create(const cuda_collective_options *options,
                                       cuda_collective **out)
{
    *out = NULL;
    cuda_collective *c = ls__alloc(1, sizeof *c);
    cuda_roll roll;
    ls_status status = ls__cuda_roll_create(options->comm, 0, &roll);
    if (status == LS_ERR_UNSUPPORTED)
        status = LS_OK; /* several machines: it only names who is missing */
    uint8_t failed = !c || status != LS_OK, any = 1;
    if (status == LS_OK)
        status = ls_comm_all_reduce(options->comm, &failed, &any, 1, LS_DTYPE_U8, LS_REDUCE_MAX);
    if (status == LS_OK && any) status = LS_ERR_MEMORY;
    if (status != LS_OK) {
        ls__cuda_roll_destroy(&roll);
        ls__free(c);
        return status;
    }
    *c = (cuda_collective) {
        .roll = roll,
        .device = options->device,
        .rank = ls_comm_rank(options->comm),
        .size = ls_comm_size(options->comm),
        .timeout_ns = options->timeout_ms > 0 ? options->timeout_ms * INT64_C(1000000) : 0,
    };
    status = connect(c, options->comm);
    if (status == LS_OK) status = make_events(c);
    if (status != LS_OK) {
        char text[CUDA_ROLL_TEXT];
        snprintf(text, sizeof text, "%s", ls_error_text());
        ls__vendor_collective_abort(c, text);
        ls__vendor_collective_destroy(c);
        return ls_fail(status, "%s", text);
    }
    *out = c;
    return LS_OK;
}

static void close_comm(cuda_collective *c)
{
    if (!c->comm) return;
    c->timeout_ns = INT64_C(10000000000);
    if (await_taken(c, nccl.finalize(c->comm), "farewells") == LS_OK)
        nccl.destroy(c->comm);
    else
        nccl.abort(c->comm);
}

void ls__vendor_collective_destroy(cuda_collective *c)
{
    if (!c) return;
    close_comm(c);
    if (c->started) cudaEventDestroy(c->started);
    if (c->ended) cudaEventDestroy(c->ended);
    ls__cuda_roll_destroy(&c->roll);
    ls__free(c);
}

/* --- exchanges --- */

static bool is_taken(int result)
{
    return result == NCCL_OK || result == NCCL_IN_PROGRESS;
}

/* A group is ended whatever came before, or NCCL stays in it. */
static int move(cuda_collective *c, cudaStream_t stream, const cuda_transfer *sends, int nsends,
                const cuda_transfer *receives, int nreceives)
{
    int result = nccl.group_start();
    if (!is_taken(result)) return result;
    for (int i = 0; i < nsends && is_taken(result); i++)
        result =
            nccl.send(sends[i].data, sends[i].nbytes, NCCL_INT8, sends[i].peer, c->comm, stream);
    for (int i = 0; i < nreceives && is_taken(result); i++)
        result = nccl.recv(receives[i].data, receives[i].nbytes, NCCL_INT8, receives[i].peer,
                           c->comm, stream);
    int ended = nccl.group_end();
    return is_taken(result) ? ended : result;
}

static void tell_begun(cuda_collective *c)
{
    c->begun++;
    if (!c->roll.base) return;
    cuda_roll_line *own = ls__cuda_roll_line(&c->roll, c->rank);
    atomic_store_explicit(&own->begun, c->begun, memory_order_release);
}

ls_status ls__vendor_collective_exchange(cuda_collective *c, cudaStream_t stream, const char *what,
                                         const cuda_transfer *sends, int nsends,
                                         const cuda_transfer *receives, int nreceives)
{
    if (!c->comm) return ls_fail(LS_ERR_DEVICE, "the exchange of %s has been given up", what);
    c->what = what;
    tell_begun(c);
    if (nsends + nreceives == 0) return LS_OK;
    cudaError_t error = cudaEventRecord(c->started, stream);
    LS_TRY(await_taken(c, move(c, stream, sends, nsends, receives, nreceives), what));
    if (error == cudaSuccess) error = cudaEventRecord(c->ended, stream);
    if (error != cudaSuccess)
        return ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: %s", c->device, what,
                       cudaGetErrorString(error));
    c->launched = true;
    return LS_OK;
}

/* The device has come to the exchange, and is not through with it. */
static bool is_waiting(cuda_collective *c)
{
    bool waits = c->launched && cudaEventQuery(c->started) == cudaSuccess &&
                 cudaEventQuery(c->ended) == cudaErrorNotReady;
    cudaGetLastError();
    if (!waits)
        c->waiting_since = 0;
    else if (!c->waiting_since)
        c->waiting_since = ls__now_ns();
    return waits;
}

ls_status ls__vendor_collective_check(cuda_collective *c)
{
    int error = NCCL_OK;
    ls_status status = ls__cuda_roll_check(&c->roll);
    if (status == LS_OK && !c->comm)
        status = ls_fail(LS_ERR_DEVICE, "the exchange of %s has been given up", c->what);
    if (status == LS_OK && nccl.async_error(c->comm, &error) == NCCL_OK && error != NCCL_OK &&
        error != NCCL_IN_PROGRESS)
        status = fail(c, error, c->what ? c->what : "nothing");
    if (status == LS_OK && is_waiting(c) && c->timeout_ns &&
        ls__now_ns() - c->waiting_since > c->timeout_ns)
        status = time_out(c, c->what);
    if (status == LS_OK) return LS_OK;
    char text[CUDA_ROLL_TEXT];
    snprintf(text, sizeof text, "%s", ls_error_text());
    ls__vendor_collective_abort(c, text);
    return ls_fail(status, "%s", text);
}

void ls__vendor_collective_abort(cuda_collective *c, const char *why)
{
    ls__cuda_roll_fail(&c->roll, why);
    if (c->comm) nccl.abort(c->comm);
    c->comm = NULL;
}
