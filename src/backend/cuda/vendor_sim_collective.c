/* Exchanges of the simulation: its devices' memory is each process's own, so what travels is put into
 * memory that the processes share, by the stream's thread, and taken out by the receiver's.
 *
 * Exchange k of a rank: it waits until everybody has taken what it sent in k - 1, writes its sends one
 * behind the other, says so, and takes what the others have for it. As with NCCL nothing tells a
 * waiting rank that a peer will not come: that is the host's to find out. */
#include "backend/cuda/vendor_collective.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda_roll.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

struct cuda_collective {
    cuda_roll roll;
    int device;
    size_t most_bytes;
    int64_t timeout_ns;            /* 0 = none */
    _Atomic int ended;             /* nothing is waited for any more */
    _Atomic int64_t waiting_since; /* of the stream's thread; 0 = it does not wait */
    const char *_Atomic what;
    _Atomic int injected;
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

typedef struct exchange {
    cuda_collective *c;
    const char *what;
    int nsends, nreceives;
    cuda_transfer list[]; /* sends, then receives */
} exchange;

static void put(cuda_collective *c, const exchange *e)
{
    size_t at = 0, *offsets = offsets_of(c, c->roll.rank);
    for (int p = 0; p < c->roll.size; p++) {
        offsets[p] = at;
        for (int i = 0; i < e->nsends; i++) {
            if (e->list[i].peer != p) continue;
            memcpy(outbox_of(c, c->roll.rank) + at, e->list[i].data, e->list[i].nbytes);
            at += e->list[i].nbytes;
        }
    }
}

static bool take(cuda_collective *c, const exchange *e, uint64_t number)
{
    for (int p = 0; p < c->roll.size; p++) {
        size_t at = 0;
        for (int i = e->nsends; i < e->nsends + e->nreceives; i++) {
            if (e->list[i].peer != p) continue;
            if (at == 0 && !await(c, &ls__cuda_roll_line(&c->roll, p)->begun, number)) return false;
            const char *from = outbox_of(c, p) + offsets_of(c, p)[c->roll.rank] + at;
            memcpy(e->list[i].data, from, e->list[i].nbytes);
            at += e->list[i].nbytes;
        }
    }
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
    put(c, e);
    atomic_store_explicit(&own->begun, number, memory_order_release);
    if (take(c, e, number)) atomic_store_explicit(&own->taken, number, memory_order_release);
}

/* --- the seam --- */

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
    ls__free(c);
}

static size_t bytes_of(const cuda_transfer *list, int n)
{
    size_t nbytes = 0;
    for (int i = 0; i < n; i++) nbytes += list[i].nbytes;
    return nbytes;
}

ls_status ls__vendor_collective_exchange(cuda_collective *c, cudaStream_t stream, const char *what,
                                         const cuda_transfer *sends, int nsends,
                                         const cuda_transfer *receives, int nreceives)
{
    size_t n = (size_t)(nsends + nreceives), nbytes = sizeof(exchange) + n * sizeof *sends;
    LS_ASSERT(bytes_of(sends, nsends) <= c->most_bytes);
    exchange *e = ls__alloc(1, nbytes);
    if (!e) return LS_ERR_MEMORY;
    *e = (exchange) { c, what, nsends, nreceives };
    if (nsends) memcpy(e->list, sends, (size_t)nsends * sizeof *sends);
    if (nreceives) memcpy(e->list + nsends, receives, (size_t)nreceives * sizeof *receives);
    cudaError_t error = ls__sim_work(stream, "exchange", run, e, nbytes);
    ls__free(e);
    if (error == cudaSuccess) return LS_OK;
    return ls_fail(LS_ERR_DEVICE, "GPU %d: exchange of %s: %s", c->device, what,
                   cudaGetErrorString(error));
}

/* Where the stream waits longer than it may: who is missing. */
static ls_status check_time(const cuda_collective *c)
{
    int64_t since = atomic_load(&c->waiting_since);
    if (!c->timeout_ns || !since || ls__now_ns() - since < c->timeout_ns) return LS_OK;
    const char *what = atomic_load(&c->what);
    int last = ls__cuda_roll_last(&c->roll);
    if (last < 0)
        return ls_fail(LS_ERR_TIMEOUT, "the exchange of %s has not ended within %.0f s", what,
                       (double)c->timeout_ns * 1e-9);
    return ls_fail(LS_ERR_TIMEOUT, "rank %d has not come to the exchange of %s within %.0f s", last,
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
