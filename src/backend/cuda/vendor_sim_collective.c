/* Exchanges of the simulation: its devices' memory is each process's own, so what travels is put into
 * memory that the processes share, by the stream's thread, and taken out by the receiver's.
 *
 * Exchange k of a rank: it waits until everybody has taken what it sent in k - 1, writes its sends one
 * behind the other, says so, and takes what the others have for it. As with NCCL nothing tells a
 * waiting rank that a peer will not come: that is the host's to find out. And as with NCCL's rings a
 * reduce-scatter adds a part in the order in which it goes around, to its owner last: on three ranks
 * and more these are other bits than the tree's. */
#include "backend/cuda/vendor_collective.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda_roll.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

typedef struct cuda_memory {
    const char *begin;
    size_t nbytes;
} cuda_memory;

struct cuda_collective {
    cuda_roll roll;
    int device;
    size_t most_bytes;
    int64_t timeout_ns;            /* 0 = none */
    _Atomic int ended;             /* nothing is waited for any more */
    _Atomic int64_t waiting_since; /* of the stream's thread; 0 = it does not wait */
    const char *_Atomic what;
    _Atomic int injected;
    cuda_memory *memory; /* (nmemory) that may travel */
    int nmemory;
};

/* In the room of a rank: where each peer's bytes begin, then the bytes. */
static size_t *offsets_of(const cuda_collective *c, int rank)
{
    return (size_t *)(void *)ls__cuda_roll_room(&c->roll, rank);
}

static char *outbox_of(const cuda_collective *c, int rank)
{
    return ls__cuda_roll_room(&c->roll, rank) + (size_t)c->roll.size * sizeof(size_t);
}

/* False: it is given up. */
static bool await(cuda_collective *c, _Atomic uint64_t *word, uint64_t value)
{
    const struct timespec pause = { 0, 50000 };
    atomic_store(&c->waiting_since, ls__now_ns());
    while (atomic_load_explicit(word, memory_order_acquire) < value) {
        if (atomic_load(&c->ended)) return false;
        nanosleep(&pause, NULL);
    }
    atomic_store(&c->waiting_since, 0);
    return true;
}

typedef struct exchange exchange;
typedef struct exchange_kind {
    void (*put)(const exchange *e);
    bool (*take)(const exchange *e, uint64_t number);
} exchange_kind;

struct exchange {
    cuda_collective *c;
    const char *what;
    const exchange_kind *kind;
    int nsends, n;
    union {
        cuda_transfer transfer; /* sends, then receives */
        cuda_span span;
    } list[]; /* (n) */
};

static void put_transfers(const exchange *e)
{
    cuda_collective *c = e->c;
    size_t at = 0, *offsets = offsets_of(c, c->roll.rank);
    for (int p = 0; p < c->roll.size; p++) {
        offsets[p] = at;
        for (int i = 0; i < e->nsends; i++) {
            if (e->list[i].transfer.peer != p) continue;
            memcpy(outbox_of(c, c->roll.rank) + at, e->list[i].transfer.data,
                   e->list[i].transfer.nbytes);
            at += e->list[i].transfer.nbytes;
        }
    }
}

static bool take_transfers(const exchange *e, uint64_t number)
{
    cuda_collective *c = e->c;
    for (int p = 0; p < c->roll.size; p++) {
        size_t at = 0;
        for (int i = e->nsends; i < e->n; i++) {
            if (e->list[i].transfer.peer != p) continue;
            if (at == 0 && !await(c, &ls__cuda_roll_line(&c->roll, p)->begun, number)) return false;
            const char *from = outbox_of(c, p) + offsets_of(c, p)[c->roll.rank] + at;
            memcpy(e->list[i].transfer.data, from, e->list[i].transfer.nbytes);
            at += e->list[i].transfer.nbytes;
        }
    }
    return true;
}

/* --- collectives: what a rank has, span after span --- */

static void put_spans(const exchange *e, size_t parts)
{
    float *at = (float *)(void *)outbox_of(e->c, e->c->roll.rank);
    for (int i = 0; i < e->n; at += parts * e->list[i].span.count, i++)
        memcpy(at, e->list[i].span.from, parts * e->list[i].span.count * sizeof *at);
}

static void put_parts(const exchange *e)
{
    put_spans(e, (size_t)e->c->roll.size);
}

static void put_whole(const exchange *e)
{
    put_spans(e, 1);
}

static bool await_all(const exchange *e, uint64_t number)
{
    for (int p = 0; p < e->c->roll.size; p++)
        if (!await(e->c, &ls__cuda_roll_line(&e->c->roll, p)->begun, number)) return false;
    return true;
}

static bool take_sums(const exchange *e, uint64_t number)
{
    size_t rank = (size_t)e->c->roll.rank, size = (size_t)e->c->roll.size, at = 0;
    if (!await_all(e, number)) return false;
    for (int s = 0; s < e->n; s++) {
        size_t count = e->list[s].span.count;
        for (size_t turn = 1; turn <= size; turn++) {
            const char *outbox = outbox_of(e->c, (int)((rank + turn) % size));
            const float *from = (const float *)(const void *)outbox + at + rank * count;
            for (size_t i = 0; i < count; i++)
                e->list[s].span.to[i] = turn == 1 ? from[i] : e->list[s].span.to[i] + from[i];
        }
        at += size * count;
    }
    return true;
}

static bool take_wholes(const exchange *e, uint64_t number)
{
    size_t at = 0;
    if (!await_all(e, number)) return false;
    for (int s = 0; s < e->n; at += e->list[s].span.count, s++)
        for (int p = 0; p < e->c->roll.size; p++)
            memcpy(e->list[s].span.to + (size_t)p * e->list[s].span.count,
                   (const float *)(const void *)outbox_of(e->c, p) + at,
                   e->list[s].span.count * sizeof(float));
    return true;
}

static void run(const void *bytes)
{
    const exchange *e = bytes;
    cuda_collective *c = e->c;
    cuda_roll_line *own = ls__cuda_roll_line(&c->roll, c->roll.rank);
    uint64_t number = atomic_load_explicit(&own->begun, memory_order_relaxed) + 1;
    if (atomic_load(&c->ended)) return;
    atomic_store(&c->what, e->what);
    if (ls__sim_collective_fails()) {
        atomic_store(&c->injected, 1);
        return;
    }
    for (int p = 0; p < c->roll.size; p++)
        if (!await(c, &ls__cuda_roll_line(&c->roll, p)->taken, number - 1)) return;
    e->kind->put(e);
    atomic_store_explicit(&own->begun, number, memory_order_release);
    if (e->kind->take(e, number)) atomic_store_explicit(&own->taken, number, memory_order_release);
}

/* --- the seam --- */

cudaError_t ls__vendor_collective_allocate(size_t nbytes, void **out)
{
    *out = NULL;
    return cudaMalloc(out, nbytes);
}

void ls__vendor_collective_free(void *p)
{
    if (p) cudaFree(p);
}

bool ls__vendor_collective_available(ls_comm *comm, int device)
{
    (void)comm;
    (void)device;
    return true;
}

ls_status ls__vendor_collective_create(const cuda_collective_options *options,
                                       cuda_collective **out)
{
    *out = NULL;
    cuda_collective *c = ls__alloc(1, sizeof *c);
    size_t room = options->most_bytes + (size_t)ls_comm_size(options->comm) * sizeof(size_t);
    cuda_roll roll;
    ls_status status = ls__cuda_roll_create(options->comm, room, &roll);
    if (status == LS_OK && !c) ls__cuda_roll_destroy(&roll);
    if (status != LS_OK || !c) {
        ls__free(c);
        return status != LS_OK ? status : LS_ERR_MEMORY;
    }
    c->roll = roll;
    c->device = options->device;
    c->most_bytes = options->most_bytes;
    c->timeout_ns = options->timeout_ms > 0 ? options->timeout_ms * INT64_C(1000000) : 0;
    *out = c;
    return LS_OK;
}

void ls__vendor_collective_destroy(cuda_collective *c)
{
    if (!c) return;
    ls__cuda_roll_destroy(&c->roll);
    ls__free(c->memory);
    ls__free(c);
}

ls_status ls__vendor_collective_register(cuda_collective *c, void *p, size_t nbytes)
{
    cuda_memory *grown = ls__realloc(c->memory, (size_t)c->nmemory + 1, sizeof *grown);
    if (!grown) return LS_ERR_MEMORY;
    c->memory = grown;
    c->memory[c->nmemory++] = (cuda_memory) { p, nbytes };
    return LS_OK;
}

/* NCCL would copy what it was not told of, and nobody would notice. */
static ls_status check_memory(const cuda_collective *c, const char *what, const void *p,
                              size_t nbytes)
{
    const char *begin = p;
    for (int i = 0; i < c->nmemory; i++)
        if (begin >= c->memory[i].begin &&
            begin + nbytes <= c->memory[i].begin + c->memory[i].nbytes)
            return LS_OK;
    return ls_fail(LS_ERR_INTERNAL, "GPU %d: exchange of %s: memory that was not registered",
                   c->device, what);
}

static size_t bytes_of(const cuda_transfer *list, int n)
{
    size_t nbytes = 0;
    for (int i = 0; i < n; i++) nbytes += list[i].nbytes;
    return nbytes;
}

static size_t spans_bytes(const cuda_span *spans, int n)
{
    size_t nbytes = 0;
    for (int i = 0; i < n; i++) nbytes += spans[i].count * sizeof(float);
    return nbytes;
}

static size_t size_of(int n)
{
    exchange *e;
    return sizeof *e + (size_t)n * sizeof e->list[0];
}

static exchange *make(cuda_collective *c, const char *what, const exchange_kind *kind, int n)
{
    exchange *e = ls__alloc(1, size_of(n));
    if (e) *e = (exchange) { .c = c, .what = what, .kind = kind, .n = n };
    return e;
}

/* The stream gets a copy, if it may. */
static ls_status launch(cuda_collective *c, cudaStream_t stream, exchange *e, ls_status status)
{
    const char *what = e->what;
    cudaError_t error = cudaSuccess;
    if (status == LS_OK) error = ls__sim_work(stream, "exchange", run, e, size_of(e->n));
    ls__free(e);
    if (status != LS_OK) return status;
    if (error == cudaSuccess) return LS_OK;
    return ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: %s", c->device, what,
                   cudaGetErrorString(error));
}

ls_status ls__vendor_collective_exchange(cuda_collective *c, cudaStream_t stream, const char *what,
                                         const cuda_transfer *sends, int nsends,
                                         const cuda_transfer *receives, int nreceives)
{
    static const exchange_kind kind = { put_transfers, take_transfers };
    exchange *e = make(c, what, &kind, nsends + nreceives);
    if (!e) return LS_ERR_MEMORY;
    LS_ASSERT(bytes_of(sends, nsends) <= c->most_bytes);
    e->nsends = nsends;
    ls_status status = LS_OK;
    for (int i = 0; i < e->n && status == LS_OK; i++) {
        cuda_transfer t = e->list[i].transfer = i < nsends ? sends[i] : receives[i - nsends];
        status = check_memory(c, what, t.data, t.nbytes);
    }
    return launch(c, stream, e, status);
}

/* from, to: how many counts lie there. */
static ls_status launch_spans(cuda_collective *c, cudaStream_t stream, const char *what,
                              const exchange_kind *kind, const cuda_span *spans, int n, int from,
                              int to)
{
    exchange *e = make(c, what, kind, n);
    if (!e) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    for (int i = 0; i < n && status == LS_OK; i++) {
        size_t nbytes = spans[i].count * sizeof(float);
        e->list[i].span = spans[i];
        status = check_memory(c, what, spans[i].from, (size_t)from * nbytes);
        if (status == LS_OK) status = check_memory(c, what, spans[i].to, (size_t)to * nbytes);
    }
    return launch(c, stream, e, status);
}

ls_status ls__vendor_collective_reduce_scatter(cuda_collective *c, cudaStream_t stream,
                                               const char *what, const cuda_span *spans, int n)
{
    static const exchange_kind kind = { put_parts, take_sums };
    LS_ASSERT((size_t)c->roll.size * spans_bytes(spans, n) <= c->most_bytes);
    return launch_spans(c, stream, what, &kind, spans, n, c->roll.size, 1);
}

ls_status ls__vendor_collective_all_gather(cuda_collective *c, cudaStream_t stream,
                                           const char *what, const cuda_span *spans, int n)
{
    static const exchange_kind kind = { put_whole, take_wholes };
    LS_ASSERT(spans_bytes(spans, n) <= c->most_bytes);
    return launch_spans(c, stream, what, &kind, spans, n, 1, c->roll.size);
}

/* Where the stream waits longer than it may: who is missing. */
static ls_status check_time(const cuda_collective *c)
{
    int64_t since = atomic_load(&c->waiting_since);
    if (!c->timeout_ns || !since || ls__now_ns() - since < c->timeout_ns) return LS_OK;
    const char *what = atomic_load(&c->what);
    int last = ls__cuda_roll_last(&c->roll);
    if (last < 0)
        return ls_fail(LS_ERR_TIMEOUT, "the exchange of %s has not ended within %.3g s", what,
                       (double)c->timeout_ns * 1e-9);
    return ls_fail(LS_ERR_TIMEOUT, "rank %d has not come to the exchange of %s within %.3g s", last,
                   what, (double)c->timeout_ns * 1e-9);
}

ls_status ls__vendor_collective_check(cuda_collective *c)
{
    ls_status status = ls__cuda_roll_check(&c->roll);
    if (status == LS_OK && atomic_load(&c->injected))
        status = ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: unhandled error of a peer's link",
                         c->device, atomic_load(&c->what));
    if (status == LS_OK) status = check_time(c);
    if (status == LS_OK) return LS_OK;
    ls__vendor_collective_abort(c, ls_error_text());
    return status;
}

void ls__vendor_collective_abort(cuda_collective *c, const char *why)
{
    ls__cuda_roll_fail(&c->roll, why);
    atomic_store(&c->ended, 1);
}
