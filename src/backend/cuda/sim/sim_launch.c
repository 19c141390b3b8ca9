/* Launches: what a kernel is handed is checked, then it waits in the stream for its turn. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/sim/sim_internal.h"

/* In a call's arguments; the kernel and its parameters follow. */
typedef struct kernel_call {
    sim_launch launch;
    _Alignas(16) unsigned char bound[];
} kernel_call;

static void run_kernel(sim_stream *stream, const sim_call *call)
{
    const kernel_call *k = (const kernel_call *)call->arguments;
    int device = ls__sim_stream_device(stream);
    if (ls__sim_launch_fails()) {
        ls__sim_fault(device, cudaErrorLaunchFailure, "kernel %s: asked for by LOCKSTEP_SIM_FAIL",
                      k->launch.name);
        return;
    }
    sim_crew *crew = ls__sim_stream_crew(stream);
    if (crew)
        ls__sim_crew_run(crew, &k->launch, k->bound);
    else
        ls__sim_fault(device, cudaErrorMemoryAllocation, "kernel %s: no memory to run it",
                      k->launch.name);
}

static const sim_call_kind kernel_kind = { run_kernel, true };

/* --- shared memory beyond what every kernel may have --- */

enum { MAX_ALLOWED = 256 };

static pthread_mutex_t allowed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *kernel;
    size_t nbytes;
} allowed[MAX_ALLOWED];
static int nallowed;

cudaError_t ls__sim_allow_shared(const void *kernel, size_t nbytes)
{
    if (nbytes > SIM_SHARED_MOST)
        return ls__sim_error(cudaErrorInvalidValue, "%zu bytes of shared memory, of at most %d",
                             nbytes, SIM_SHARED_MOST);
    sim_lock(&allowed_lock);
    int i = 0;
    while (i < nallowed && allowed[i].kernel != kernel) i++;
    bool room = i < MAX_ALLOWED;
    if (room) {
        allowed[i].kernel = kernel;
        allowed[i].nbytes = nbytes;
        if (i == nallowed) nallowed++;
    }
    sim_unlock(&allowed_lock);
    return room ? cudaSuccess : ls__sim_error(cudaErrorNotSupported, "too many kernels");
}

static size_t shared_limit(const void *kernel)
{
    size_t limit = SIM_SHARED;
    sim_lock(&allowed_lock);
    for (int i = 0; i < nallowed; i++)
        if (allowed[i].kernel == kernel && allowed[i].nbytes > limit) limit = allowed[i].nbytes;
    sim_unlock(&allowed_lock);
    return limit;
}

/* --- checks --- */

static cudaError_t check_shape(const sim_launch *l)
{
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    bool grid_fits =
        l->grid.x - 1u < 0x7fffffffu && l->grid.y - 1u < 65535 && l->grid.z - 1u < 65535;
    if (threads < 1 || threads > SIM_MAX_BLOCK || l->block.z > 64 || !grid_fits)
        return ls__sim_error(cudaErrorInvalidConfiguration,
                             "kernel %s: a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads",
                             l->name, l->grid.x, l->grid.y, l->grid.z, l->block.x, l->block.y,
                             l->block.z);
    size_t limit = shared_limit(l->kernel);
    if (l->shared_bytes <= limit) return cudaSuccess;
    return ls__sim_error(cudaErrorInvalidValue,
                         "kernel %s: %zu bytes of shared memory, of at most %zu", l->name,
                         l->shared_bytes, limit);
}

static cudaError_t check_pointer(const sim_launch *l, int number, const void *p, int device)
{
    sim_range r;
    if (!p || (ls__sim_find(p, false, &r) && r.device == device)) return cudaSuccess;
    char what[160];
    ls__sim_describe(p, what, sizeof(what));
    ls__sim_fault(device, cudaErrorIllegalAddress,
                  "kernel %s: parameter %d points to %p, which is %s; it was launched on device %d",
                  l->name, number, p, what, device);
    return cudaErrorIllegalAddress;
}

/* Whether a word of a struct can only be a pointer into the host's memory: in the high half of what a
 * process is given, and really mapped. Two numbers side by side look like that by no likely chance. */
static bool is_host_pointer(uintptr_t word)
{
    const uintptr_t least = (uintptr_t)0x5000 << 32;
    if (word < least || word >> 48) return false;
    uintptr_t page = word - word % (uintptr_t)sysconf(_SC_PAGESIZE);
    return msync((void *)page, 1, MS_ASYNC) == 0;
}

static cudaError_t check_struct(const sim_launch *l, int number, const sim_argument *a, int device)
{
    for (size_t at = 0; at + sizeof(uintptr_t) <= a->nbytes; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const char *)a->at + at, sizeof(word));
        if (is_host_pointer(word)) SIM_TRY(check_pointer(l, number, (const void *)word, device));
    }
    return cudaSuccess;
}

static cudaError_t check_arguments(const sim_launch *l, const sim_argument *arguments,
                                   int narguments, int device)
{
    for (int i = 0; i < narguments; i++) {
        const sim_argument *a = &arguments[i];
        if (a->is_pointer) {
            const void *p;
            memcpy(&p, a->at, sizeof(p));
            SIM_TRY(check_pointer(l, i + 1, p, device));
        } else if (a->nbytes > sizeof(uint64_t))
            SIM_TRY(check_struct(l, i + 1, a, device));
    }
    return cudaSuccess;
}

/* --- launching --- */

static cudaError_t enqueue(const sim_launch *l, const void *bound, size_t nbytes, sim_stream *s)
{
    kernel_call *k = ls__alloc(1, sizeof(*k) + nbytes);
    if (!k)
        return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a kernel's arguments");
    k->launch = *l;
    memcpy(k->bound, bound, nbytes);
    cudaError_t error = ls__sim_enqueue(s, &kernel_kind, l->name, k, sizeof(*k) + nbytes);
    ls__free(k);
    return error;
}

/* A wrong pointer is an error of the device, as it would be on a GPU, and the kernel does not run. */
void ls__sim_launch(const sim_launch *l, const void *bound, size_t nbytes,
                    const sim_argument *arguments, int narguments, cudaStream_t stream)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!s || check_shape(l) != cudaSuccess) return;
    if (check_arguments(l, arguments, narguments, ls__sim_stream_device(s)) != cudaSuccess) return;
    enqueue(l, bound, nbytes, s);
}

/* --- host functions --- */

typedef struct host_call {
    cudaHostFn_t fn;
    void *user;
} host_call;

static void run_host(sim_stream *stream, const sim_call *call)
{
    (void)stream;
    const host_call *h = (const host_call *)call->arguments;
    h->fn(h->user);
}

static const sim_call_kind host_kind = { run_host, false };

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    sim_stream *s = ls__sim_stream(stream);
    host_call call = { fn, user };
    if (!s) return cudaErrorMemoryAllocation;
    return ls__sim_enqueue(s, &host_kind, "host function", &call, sizeof(call));
}

typedef struct work_call {
    void (*fn)(const void *arguments);
    _Alignas(16) unsigned char arguments[];
} work_call;

static void run_work(sim_stream *stream, const sim_call *call)
{
    (void)stream;
    const work_call *w = (const work_call *)call->arguments;
    w->fn(w->arguments);
}

static const sim_call_kind work_kind = { run_work, true };

cudaError_t ls__sim_work(cudaStream_t stream, const char *name, void (*fn)(const void *arguments),
                         const void *arguments, size_t nbytes)
{
    sim_stream *s = ls__sim_stream(stream);
    if (!s) return cudaErrorMemoryAllocation;
    work_call *w = ls__alloc(1, sizeof(*w) + nbytes);
    if (!w) return ls__sim_error(cudaErrorMemoryAllocation, "of the host, for a call's arguments");
    w->fn = fn;
    if (nbytes) memcpy(w->arguments, arguments, nbytes);
    cudaError_t error = ls__sim_enqueue(s, &work_kind, name, w, sizeof(*w) + nbytes);
    ls__free(w);
    return error;
}
