/* Device memory: pages that the host cannot touch, between pages that nobody can.
 *
 * Every allocation is a mapping of its own and ends (but for the 255 bytes that CUDA's alignment
 * takes) where a guard page begins. All of it is without access unless some stream works; so a host
 * that touches device memory after it has synchronized is caught every time. Freed addresses stay
 * unused for a while, so that a late use is caught as well. Allocations are few (an arena,
 * parameters, batches), so a table in the order of addresses does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/sim/sim_capture.h"
#include "backend/cuda/sim/sim_internal.h"

enum { ALIGNMENT = 256, KEPT_FREED = 64, HUGE_PAGE = 2 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sim_range *table; /* by address */
static size_t ntable, table_room;
static int open_count;               /* streams that work */
static size_t used[SIM_MAX_DEVICES]; /* bytes */
static uint64_t frees;               /* how often; orders the freed ranges */

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static char *range_end(const sim_range *r)
{
    return r->begin + r->nbytes;
}

/* Index of the first range whose end is not before p. */
static size_t lower(const char *p)
{
    size_t a = 0, b = ntable;
    while (a < b) {
        size_t middle = a + (b - a) / 2;
        if (range_end(&table[middle]) < p)
            a = middle + 1;
        else
            b = middle;
    }
    return a;
}

static sim_range *range_of(const void *p)
{
    size_t i = lower(p);
    if (i + 1 < ntable && table[i + 1].begin == p) i++; /* not the end of the one before */
    return i < ntable && table[i].begin <= (const char *)p ? &table[i] : NULL;
}

/* The table is under the lock, which is hidden, so what the sanitizer intercepts is as well. */
static bool insert(sim_range range)
{
    if (ntable == table_room) {
        size_t room = table_room ? 2 * table_room : 64;
        sim_range *grown;
        SIM_UNSEEN(grown = ls__realloc(table, room, sizeof(*grown)));
        if (!grown) return false;
        table = grown;
        table_room = room;
    }
    size_t i = lower(range.begin);
    SIM_UNSEEN(memmove(table + i + 1, table + i, (ntable - i) * sizeof(*table)));
    table[i] = range;
    ntable++;
    return true;
}

static void take_out(sim_range *r)
{
    size_t i = (size_t)(r - table);
    SIM_UNSEEN(memmove(table + i, table + i + 1, (ntable - i - 1) * sizeof(*table)));
    ntable--;
}

static bool on_device(const sim_range *r)
{
    return r->device >= 0;
}

/* --- access --- */

static void protect(const sim_range *r, int protection)
{
    size_t page = page_size();
    mprotect(r->map + page, r->map_nbytes - 2 * page, protection);
}

static void protect_all(int protection)
{
    for (size_t i = 0; i < ntable; i++)
        if (on_device(&table[i]) && !table[i].freed) protect(&table[i], protection);
}

void ls__sim_memory_open(void)
{
    sim_lock(&lock);
    if (open_count++ == 0) protect_all(PROT_READ | PROT_WRITE);
    sim_unlock(&lock);
}

void ls__sim_memory_close(void)
{
    sim_lock(&lock);
    if (--open_count == 0) protect_all(PROT_NONE);
    sim_unlock(&lock);
}

bool ls__sim_find(const void *p, bool freed, sim_range *out)
{
    sim_lock(&lock);
    const sim_range *r = range_of(p);
    bool found = r && (freed || !r->freed);
    if (found) *out = *r;
    sim_unlock(&lock);
    return found;
}

void ls__sim_describe(const void *p, char *out, size_t nbytes)
{
    /* Also called where a thread was interrupted that may hold the lock: then without details. */
    bool locked = false;
    SIM_HIDDEN(locked = pthread_mutex_trylock(&lock) == 0);
    const sim_range *r = NULL;
    for (size_t i = 0; locked && !r && i < ntable; i++) {
        const char *begin = table[i].map ? table[i].map : table[i].begin;
        size_t n = table[i].map ? table[i].map_nbytes : table[i].nbytes;
        if ((const char *)p >= begin && (const char *)p < begin + n) r = &table[i];
    }
    if (!r)
        snprintf(out, nbytes, "%s", locked ? "no memory of a device" : "memory");
    else {
        const char *freed = r->freed ? "freed " : "";
        long long at = (const char *)p - r->begin;
        char where[64] = "pinned host memory";
        if (on_device(r))
            snprintf(where, sizeof(where), "memory of simulated device %d", r->device);
        if (at >= (long long)r->nbytes)
            snprintf(out, nbytes, "%s%s, %lld bytes behind the end of %zu", freed, where,
                     at - (long long)r->nbytes, r->nbytes);
        else if (at < 0)
            snprintf(out, nbytes, "%s%s, %lld bytes before the begin of %zu", freed, where, -at,
                     r->nbytes);
        else
            snprintf(out, nbytes, "%s%s, byte %lld of %zu", freed, where, at, r->nbytes);
    }
    if (locked) sim_unlock(&lock);
}

/* --- allocation --- */

/* Reserves nbytes without access that begin `before` bytes in front of a multiple of unit. */
static char *reserve(size_t nbytes, size_t before, size_t unit)
{
    char *p =
        mmap(NULL, nbytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t skip = (unit - ((uintptr_t)p + before) % unit) % unit;
    if (skip > 0) munmap(p, skip);
    if (skip < unit) munmap(p + skip + nbytes, unit - skip);
    return p + skip;
}

/* Maps nbytes between two guard pages, at the end of what lies between them. Large ones in huge
 * pages: access is given and taken page by page, as often as a stream begins and ends to work. */
static bool map_range(size_t nbytes, sim_range *out)
{
    size_t page = page_size(), unit = nbytes >= 2 * HUGE_PAGE ? HUGE_PAGE : page;
    if (nbytes > SIZE_MAX / 2) return false;
    size_t room = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t aligned = (room + unit - 1) / unit * unit;
    out->map_nbytes = aligned + 2 * page;
    out->map = reserve(out->map_nbytes, page, unit);
    if (!out->map) return false;
    out->begin = out->map + page + aligned - room;
    out->nbytes = nbytes;
    protect(out, PROT_READ | PROT_WRITE);
    if (unit == HUGE_PAGE) madvise(out->map + page, aligned, MADV_HUGEPAGE);
    return true;
}

static void unmap_range(const sim_range *r)
{
    sim_unpoison(r->map, r->map_nbytes);
    munmap(r->map, r->map_nbytes);
}

/* What a GPU's memory holds is anybody's guess; bytes of ones are NaN. */
static void make_new(const sim_range *r)
{
    SIM_UNSEEN(memset(r->begin, 0xff, r->nbytes)); /* no one's write */
    sim_poison(r->map, r->map_nbytes);
    sim_unpoison(r->begin, r->nbytes);
}

static cudaError_t add_range(const sim_range *r)
{
    sim_lock(&lock);
    size_t limit = ls__sim_memory_limit();
    bool fits = !on_device(r) || r->nbytes <= limit - used[r->device];
    bool added = fits && insert(*r);
    if (added && on_device(r)) {
        used[r->device] += r->nbytes;
        if (open_count == 0) protect(r, PROT_NONE);
    }
    sim_unlock(&lock);
    return added ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t allocate(int device, size_t nbytes, void **out)
{
    *out = NULL;
    sim_range r = { .device = device };
    if (nbytes == 0) return cudaSuccess;
    if ((device >= 0 && nbytes > ls__sim_memory_limit()) || !map_range(nbytes, &r))
        return ls__sim_error(cudaErrorMemoryAllocation, "no %zu bytes", nbytes);
    make_new(&r);
    if (add_range(&r) != cudaSuccess) {
        unmap_range(&r);
        return ls__sim_error(cudaErrorMemoryAllocation, "no %zu bytes", nbytes);
    }
    *out = r.begin;
    return cudaSuccess;
}

cudaError_t ls__sim_malloc(int device, size_t nbytes, void **out)
{
    *out = NULL;
    SIM_TRY(ls__sim_known(device));
    if (ls__sim_malloc_fails())
        return ls__sim_error(cudaErrorMemoryAllocation, "asked for by LOCKSTEP_SIM_FAIL");
    ls__sim_watch_faults();
    return allocate(device, nbytes, out);
}

cudaError_t cudaMalloc(void **out, size_t nbytes)
{
    *out = NULL;
    SIM_TRY(ls__sim_capture_forbids("cudaMalloc"));
    return ls__sim_malloc(ls__sim_device(), nbytes, out);
}

cudaError_t cudaHostAlloc(void **out, size_t nbytes, unsigned flags)
{
    (void)flags;
    return allocate(-1, nbytes, out);
}

cudaError_t cudaMallocHost(void **out, size_t nbytes)
{
    return cudaHostAlloc(out, nbytes, cudaHostAllocDefault);
}

/* Of the freed ranges the oldest goes once there are more than are kept. */
static bool take_oldest_freed(sim_range *out)
{
    size_t count = 0, oldest = 0;
    for (size_t i = 0; i < ntable; i++) {
        if (!table[i].freed) continue;
        if (count == 0 || table[i].freed_at < table[oldest].freed_at) oldest = i;
        count++;
    }
    if (count <= KEPT_FREED) return false;
    *out = table[oldest];
    take_out(&table[oldest]);
    return true;
}

/* The pages go back to the system, the addresses stay taken. */
static void retire(sim_range *r)
{
    protect(r, PROT_NONE);
    madvise(r->map, r->map_nbytes, MADV_DONTNEED);
    sim_poison(r->map, r->map_nbytes);
    r->freed = true;
    r->freed_at = ++frees;
    if (on_device(r)) used[r->device] -= r->nbytes;
}

static cudaError_t free_range(void *p, bool device_memory)
{
    if (!p) return cudaSuccess;
    sim_range oldest;
    bool drop = false;
    sim_lock(&lock);
    sim_range *r = range_of(p);
    bool found = r && r->begin == p && !r->freed && !r->registered && on_device(r) == device_memory;
    if (found) {
        retire(r);
        drop = take_oldest_freed(&oldest);
    }
    sim_unlock(&lock);
    if (drop) unmap_range(&oldest);
    if (found) return cudaSuccess;
    char what[128];
    ls__sim_describe(p, what, sizeof(what));
    return ls__sim_error(cudaErrorInvalidValue, "%p cannot be freed here: it is %s", p, what);
}

cudaError_t ls__sim_free_now(void *p)
{
    return free_range(p, true);
}

/* As on a GPU it waits for everything that may still use it. */
cudaError_t cudaFree(void *p)
{
    if (!p) return cudaSuccess;
    SIM_TRY(ls__sim_capture_forbids("cudaFree"));
    sim_range r;
    ls__sim_device_wait(ls__sim_find(p, false, &r) && on_device(&r) ? r.device : ls__sim_device());
    return free_range(p, true);
}

cudaError_t cudaFreeHost(void *p)
{
    return free_range(p, false);
}

cudaError_t cudaHostRegister(void *p, size_t nbytes, unsigned flags)
{
    (void)flags;
    sim_range r = { .begin = p, .nbytes = nbytes, .device = -1, .registered = true };
    if (!p || nbytes == 0) return ls__sim_error(cudaErrorInvalidValue, "nothing to register");
    return add_range(&r) == cudaSuccess ? cudaSuccess
                                        : ls__sim_error(cudaErrorMemoryAllocation, NULL);
}

cudaError_t cudaHostUnregister(void *p)
{
    sim_lock(&lock);
    sim_range *r = range_of(p);
    bool found = r && r->begin == p && r->registered;
    if (found) take_out(r);
    sim_unlock(&lock);
    return found ? cudaSuccess : ls__sim_error(cudaErrorInvalidValue, "%p is not registered", p);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    int device = ls__sim_device();
    SIM_TRY(ls__sim_known(device));
    sim_lock(&lock);
    *total = ls__sim_memory_limit();
    *available = *total - used[device];
    sim_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    sim_range r;
    *out = (struct cudaPointerAttributes) { .device = -1 };
    if (!ls__sim_find(p, false, &r)) return cudaSuccess;
    out->type = on_device(&r) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    out->device = on_device(&r) ? r.device : ls__sim_device();
    if (on_device(&r))
        out->devicePointer = (void *)(uintptr_t)p;
    else
        out->hostPointer = (void *)(uintptr_t)p;
    return cudaSuccess;
}
