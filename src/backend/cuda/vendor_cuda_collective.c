/* Exchanges of GPUs by NCCL.
 *
 * In the fixed tree NCCL only moves bytes: grouped sends and receives, all to all. Else its
 * reduce-scatter and all-gather do what they were written for. Communicators are non-blocking:
 * whatever hangs in NCCL is found by the waiting host and aborted, and an aborted one is never used
 * again: the processes end, and others begin with one of their own. */
#include "backend/cuda/vendor_collective.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/cuda_notes.h"
#include "backend/cuda/cuda_roll.h"
#include "backend/cuda/vendor_cuda_nccl.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* A rank that waits says so to other machines after half of this, or of its patience. */
static const int64_t NOTED_AFTER_NS = INT64_C(2000000000);

/* --- a communicator --- */

struct cuda_collective {
    const ls__nccl_table *nccl;
    nccl_comm *comm; /* NULL = aborted */
    void **handles;  /* (nhandles) of registered memory */
    int nhandles;
    cuda_roll roll;   /* of ranks of one machine, */
    cuda_notes notes; /* or of several */
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
    const char *more = c->comm ? c->nccl->last_error(c->comm) : NULL;
    return ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: %s%s%.300s", c->device, what,
                   c->nccl->error_string(result), more && more[0] ? ": " : "", more ? more : "");
}

static ls_status time_out(const cuda_collective *c, const char *what)
{
    double seconds = (double)c->timeout_ns * 1e-9;
    int last =
        c->roll.base ? ls__cuda_roll_last(&c->roll) : ls__cuda_notes_missing(&c->notes, c->begun);
    if (last < 0)
        return ls_fail(LS_ERR_TIMEOUT,
                       "the exchange of %s has not ended within %.3g s; NCCL_DEBUG=INFO tells what "
                       "NCCL waits for",
                       what, seconds);
    return ls_fail(LS_ERR_TIMEOUT, "rank %d has not come to the exchange of %s within %.3g s", last,
                   what, seconds);
}

/* Whether this rank has waited for long enough. Other machines learn that it does wait. */
static bool is_out_of_patience(cuda_collective *c, int64_t since)
{
    int64_t waited = ls__now_ns() - since;
    if (!c->timeout_ns) return false;
    if (waited > (c->timeout_ns < NOTED_AFTER_NS ? c->timeout_ns : NOTED_AFTER_NS) / 2)
        ls__cuda_notes_write(&c->notes, c->begun);
    return waited > c->timeout_ns;
}

/* Until NCCL has taken in what was asked of it. */
static ls_status await_taken(cuda_collective *c, int result, const char *what)
{
    const struct timespec pause = { 0, 20000 };
    int64_t since = ls__now_ns();
    while (result == NCCL_IN_PROGRESS) {
        int called = c->nccl->async_error(c->comm, &result);
        if (called != NCCL_OK) return fail(c, called, what);
        if (result != NCCL_IN_PROGRESS) break;
        LS_TRY(ls__cuda_roll_check(&c->roll));
        if (is_out_of_patience(c, since)) return time_out(c, what);
        nanosleep(&pause, NULL);
    }
    return result == NCCL_OK ? LS_OK : fail(c, result, what);
}

static void tell_begun(cuda_collective *c)
{
    c->begun++;
    if (!c->roll.base) return;
    cuda_roll_line *own = ls__cuda_roll_line(&c->roll, c->rank);
    atomic_store_explicit(&own->begun, c->begun, memory_order_release);
}

/* --- who is there --- */

typedef struct place {
    char host[64];
    int64_t bus;     /* domain, bus and device of the GPU */
    int64_t version; /* of NCCL; 0 = it is not there */
} place;

static int64_t bus_of(int device)
{
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return -1;
    return ((int64_t)p.pciDomainID << 16) | (p.pciBusID << 8) | p.pciDeviceID;
}

/* NULL: they can exchange. */
static const char *why_not(const place *all, int size)
{
    for (int i = 0; i < size; i++) {
        if (!all[i].version) return "a rank has no usable libnccl.so.2";
        if (all[i].version != all[0].version) return "ranks have NCCL of different versions";
        for (int j = 0; j < i; j++)
            if (all[i].bus == all[j].bus && strcmp(all[i].host, all[j].host) == 0)
                return "several ranks compute on one GPU";
    }
    return NULL;
}

static int64_t version_here(const char **why)
{
    int version = 0;
    const ls__nccl_table *nccl = ls__nccl(why);
    return nccl && nccl->get_version(&version) == NCCL_OK ? version : 0;
}

bool ls__vendor_collective_available(ls_comm *comm, int device)
{
    int size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    const char *why = NULL;
    place own = { .bus = bus_of(device), .version = version_here(&why) };
    if (gethostname(own.host, sizeof own.host - 1) != 0) own.version = 0;
    place *all = ls__alloc((size_t)size, sizeof *all);
    if (!all) return false; /* the others find out in their next call */
    ls_status status = ls_comm_all_gather(comm, &own, all, (int64_t)sizeof own, LS_DTYPE_U8);
    const char *found = status == LS_OK ? why_not(all, size) : NULL;
    ls__free(all);
    if (found && rank == 0)
        ls__log(LS__LOG_WARN, "%s: gradients are exchanged through the host's memory",
                why ? why : found);
    return status == LS_OK && !found;
}

/* --- begin and end --- */

/* What rank 0 tells the others. */
typedef struct invitation {
    nccl_id id;
    int64_t result;
    char text[128];
} invitation;

static ls_status invite(cuda_collective *c, ls_comm *comm, nccl_id *out)
{
    invitation i = { .result = NCCL_OK };
    if (c->rank == 0) i.result = c->nccl->get_unique_id(&i.id);
    if (i.result != NCCL_OK)
        snprintf(i.text, sizeof i.text, "%s", c->nccl->error_string((int)i.result));
    LS_TRY(ls_comm_broadcast(comm, &i, (int64_t)sizeof i, LS_DTYPE_U8, 0));
    *out = i.id;
    if (i.result == NCCL_OK) return LS_OK;
    return ls_fail(LS_ERR_DEVICE, "rank 0: NCCL cannot be reached by the others: %.127s", i.text);
}

static ls_status connect(cuda_collective *c, const cuda_collective_options *options)
{
    nccl_id id;
    nccl_config config = { sizeof config, (unsigned)NCCL_MAGIC, NCCL_KNOWN_VERSION, 0 };
    int version = 0;
    ls__nccl_choose_interface(options->root);
    LS_TRY(invite(c, options->comm, &id));
    ls__cuda_notes_begin(&c->notes, &options->store, c->rank, c->size, &id, sizeof id);
    c->what = "addresses";
    tell_begun(c);
    LS_TRY(await_taken(c, c->nccl->init(&c->comm, c->size, id, c->rank, &config), c->what));
    if (c->rank == 0 && c->nccl->get_version(&version) == NCCL_OK)
        ls__log(LS__LOG_DEBUG, "NCCL %d.%d.%d connects the ranks%s", version / 10000,
                version / 100 % 100, version % 100,
                c->nccl->reg ? "" : ", and is too old to be told of what travels");
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
    cuda_roll roll = { .rank = ls_comm_rank(options->comm), .size = ls_comm_size(options->comm) };
    ls_status status = LS_OK;
    if (!options->store.get) status = ls__cuda_roll_create(options->comm, 0, &roll);
    if (status == LS_ERR_UNSUPPORTED) status = LS_OK; /* it only names who is missing */
    const char *why = NULL;
    const ls__nccl_table *nccl = ls__nccl(&why);
    uint8_t failed = !c || !nccl || status != LS_OK, any = 1;
    if (status == LS_OK)
        status = ls_comm_all_reduce(options->comm, &failed, &any, 1, LS_DTYPE_U8, LS_REDUCE_MAX);
    if (status == LS_OK && any)
        status = why ? ls_fail(LS_ERR_UNSUPPORTED, "%s", why) : LS_ERR_MEMORY;
    if (status != LS_OK) {
        ls__cuda_roll_destroy(&roll);
        ls__free(c);
        return status;
    }
    *c = (cuda_collective) {
        .nccl = nccl,
        .roll = roll,
        .device = options->device,
        .rank = ls_comm_rank(options->comm),
        .size = ls_comm_size(options->comm),
        .timeout_ns = options->timeout_ms > 0 ? options->timeout_ms * INT64_C(1000000) : 0,
    };
    status = connect(c, options);
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
    for (int i = 0; i < c->nhandles; i++) c->nccl->dereg(c->comm, c->handles[i]);
    c->timeout_ns = INT64_C(10000000000);
    if (await_taken(c, c->nccl->finalize(c->comm), "farewells") == LS_OK)
        c->nccl->destroy(c->comm);
    else
        c->nccl->abort(c->comm);
}

void ls__vendor_collective_destroy(cuda_collective *c)
{
    if (!c) return;
    close_comm(c);
    if (c->started) cudaEventDestroy(c->started);
    if (c->ended) cudaEventDestroy(c->ended);
    ls__cuda_roll_destroy(&c->roll);
    ls__free(c->handles);
    ls__free(c);
}

/* --- memory --- */

cudaError_t ls__vendor_collective_allocate(size_t nbytes, void **out)
{
    const char *why;
    const ls__nccl_table *nccl = ls__nccl(&why);
    *out = NULL;
    if (!nccl || !nccl->mem_alloc) return cudaMalloc(out, nbytes);
    if (nccl->mem_alloc(out, nbytes) == NCCL_OK) return cudaSuccess;
    cudaGetLastError();
    *out = NULL;
    return cudaErrorMemoryAllocation;
}

void ls__vendor_collective_free(void *p)
{
    const char *why;
    const ls__nccl_table *nccl = ls__nccl(&why);
    if (p && nccl && nccl->mem_alloc)
        nccl->mem_free(p);
    else if (p)
        cudaFree(p);
}

/* A refusal costs speed and nothing else. */
ls_status ls__vendor_collective_register(cuda_collective *c, void *p, size_t nbytes)
{
    void *handle = NULL;
    if (!c->nccl->reg || !c->comm) return LS_OK;
    void **grown = ls__realloc(c->handles, (size_t)c->nhandles + 1, sizeof *grown);
    if (!grown) return LS_ERR_MEMORY;
    c->handles = grown;
    if (await_taken(c, c->nccl->reg(c->comm, p, nbytes, &handle), "addresses") != LS_OK) {
        ls__log(LS__LOG_DEBUG, "%zu bytes are not registered: %s", nbytes, ls_error_text());
        return LS_OK;
    }
    if (handle) c->handles[c->nhandles++] = handle;
    return LS_OK;
}

/* --- exchanges --- */

/* One group of NCCL's. */
typedef struct work {
    const cuda_transfer *sends, *receives;
    int nsends, nreceives;
    const cuda_span *spans;
    int nspans;
    bool gathers; /* or adds */
} work;

static bool is_taken(int result)
{
    return result == NCCL_OK || result == NCCL_IN_PROGRESS;
}

static int start_span(cuda_collective *c, cudaStream_t stream, const cuda_span *s, bool gathers)
{
    return gathers ? c->nccl->all_gather(s->from, s->to, s->count, NCCL_FLOAT, c->comm, stream)
                   : c->nccl->reduce_scatter(s->from, s->to, s->count, NCCL_FLOAT, NCCL_SUM,
                                             c->comm, stream);
}

/* A group is ended whatever came before, or NCCL stays in it. */
static int start(cuda_collective *c, cudaStream_t stream, const work *w)
{
    int result = c->nccl->group_start();
    if (!is_taken(result)) return result;
    for (int i = 0; i < w->nsends && is_taken(result); i++)
        result = c->nccl->send(w->sends[i].data, w->sends[i].nbytes, NCCL_INT8, w->sends[i].peer,
                               c->comm, stream);
    for (int i = 0; i < w->nreceives && is_taken(result); i++)
        result = c->nccl->recv(w->receives[i].data, w->receives[i].nbytes, NCCL_INT8,
                               w->receives[i].peer, c->comm, stream);
    for (int i = 0; i < w->nspans && is_taken(result); i++)
        result = start_span(c, stream, &w->spans[i], w->gathers);
    int ended = c->nccl->group_end();
    return is_taken(result) ? ended : result;
}

static ls_status launch(cuda_collective *c, cudaStream_t stream, const char *what, const work *w)
{
    if (!c->comm) return ls_fail(LS_ERR_DEVICE, "the exchange of %s has been given up", what);
    c->what = what;
    tell_begun(c);
    if (w->nsends + w->nreceives + w->nspans == 0) return LS_OK;
    cudaError_t error = cudaEventRecord(c->started, stream);
    LS_TRY(await_taken(c, start(c, stream, w), what));
    if (error == cudaSuccess) error = cudaEventRecord(c->ended, stream);
    if (error != cudaSuccess)
        return ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: %s", c->device, what,
                       cudaGetErrorString(error));
    c->launched = true;
    return LS_OK;
}

ls_status ls__vendor_collective_exchange(cuda_collective *c, cudaStream_t stream, const char *what,
                                         const cuda_transfer *sends, int nsends,
                                         const cuda_transfer *receives, int nreceives)
{
    return launch(
        c, stream, what,
        &(work) { .sends = sends, .nsends = nsends, .receives = receives, .nreceives = nreceives });
}

ls_status ls__vendor_collective_reduce_scatter(cuda_collective *c, cudaStream_t stream,
                                               const char *what, const cuda_span *spans, int n)
{
    return launch(c, stream, what, &(work) { .spans = spans, .nspans = n });
}

ls_status ls__vendor_collective_all_gather(cuda_collective *c, cudaStream_t stream,
                                           const char *what, const cuda_span *spans, int n)
{
    return launch(c, stream, what, &(work) { .spans = spans, .nspans = n, .gathers = true });
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
    if (status == LS_OK && c->nccl->async_error(c->comm, &error) == NCCL_OK && error != NCCL_OK &&
        error != NCCL_IN_PROGRESS)
        status = fail(c, error, c->what ? c->what : "nothing");
    if (status == LS_OK && is_waiting(c) && is_out_of_patience(c, c->waiting_since))
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
    if (c->comm) c->nccl->abort(c->comm);
    c->comm = NULL;
}
