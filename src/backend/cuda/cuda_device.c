/* The GPU of this process: opened once, before any allocation.
 *
 * Device memory is three blocks that grow: the arena, in which every executable lies by its own
 * plan, and copies of the flat parameters and gradients. They are allocated while graphs are
 * compiled, so that a run allocates nothing. Parameters and gradients are many small arrays in
 * shared memory that cannot be pinned from here; they travel in blocks of a few MB through pinned
 * memory, at the speed of one copy on the host. */
#include "backend/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define MEMORY_HINT                                                                                \
    "; use a smaller batch size, more --micro-batches, or --recompute where the program has it "   \
    "(lockstep devices tells who else uses the GPU)"

static cuda_device device = { .lock = PTHREAD_MUTEX_INITIALIZER }; /* a process has one */
char ls__cuda_description_text[320];

cuda_device *ls__cuda_device(void)
{
    return &device;
}

/* --- errors --- */

/* CUDA's numbers: no kernel image for the device; PTX newer than the driver. */
enum { NO_CODE = 209, NO_CODE_OF_PTX = 222 };

/* Whether a kernel or the hardware failed, found out later by some other call. From then on every
 * call fails: only another process can use the GPU again. */
static bool is_lost(cudaError_t error)
{
    static const int lost[] = {
        46,                 /* no device is available to this process any more */
        214, 220,           /* memory or NVLink, not corrected */
        700, 702,           /* an illegal address; a kernel that was stopped */
        710, 714, 715, 716, /* an assertion; stack, instruction, alignment */
        717, 718, 719, 721, /* address space, program counter, launch failure, contained error */
        999,                /* unknown */
    };
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        if ((int)error == lost[i]) return true;
    return false;
}

ls_status ls__cuda_fail(cudaError_t error, const char *what)
{
    cudaGetLastError(); /* it is reported now */
    if (error == cudaErrorMemoryAllocation)
        return ls_fail(LS_ERR_MEMORY, "GPU %d is out of memory: %s" MEMORY_HINT, device.index,
                       what);
    if ((int)error == NO_CODE || (int)error == NO_CODE_OF_PTX)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "GPU %d: lockstep_cuda.so has no code for it (%s); build Lockstep for this "
                       "card: -DLS_CUDA_ARCHITECTURES= its compute capability, as %s",
                       device.index, cudaGetErrorString(error), ls__cuda_description_text);
    if (is_lost(error))
        return ls_fail(LS_ERR_DEVICE,
                       "GPU %d was lost: %s: %s; the same command goes on from the last checkpoint "
                       "(docs/gpu.md tells what else to look at)",
                       device.index, what, cudaGetErrorString(error));
    return ls_fail(LS_ERR_INTERNAL, "GPU %d: %s: %s", device.index, what,
                   cudaGetErrorString(error));
}

ls_status ls__cuda_fail_library(const char *library, bool memory, const char *text)
{
    cudaError_t error = cudaStreamQuery(device.stream); /* a lost GPU is what every call tells of */
    if (is_lost(error)) return ls__cuda_fail(error, library);
    cudaGetLastError();
    if (memory) return ls__cuda_fail(cudaErrorMemoryAllocation, library);
    return ls_fail(LS_ERR_INTERNAL, "GPU %d: %s: %s", device.index, library, text);
}

/* --- opening --- */

static ls_status choose_device(int index)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        cudaGetLastError();
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "no GPU can be used here: %s; is the driver loaded (nvidia-smi), was the "
                       "container started with --gpus?",
                       cudaGetErrorString(error));
    }
    if (index >= count)
        return ls_fail(LS_ERR_CONFIG, "GPU %d was chosen, and %d can be used here", index, count);
    device.index = index;
    LS_CUDA_TRY(cudaSetDevice(index), "choosing it");
    return LS_OK;
}

static ls_status describe(void)
{
    struct cudaDeviceProp p;
    int runtime = 0;
    LS_CUDA_TRY(cudaGetDeviceProperties(&p, device.index), "asking for its properties");
    LS_CUDA_TRY(cudaRuntimeGetVersion(&runtime), "asking for CUDA's version");
    if (p.major < 8)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "GPU %d (%.200s) has compute capability %d.%d, and Lockstep needs 8.0 or "
                       "newer (Ampere and later); --devices cpu:N computes on CPUs",
                       device.index, p.name, p.major, p.minor);
    snprintf(ls__cuda_description_text, sizeof ls__cuda_description_text,
             "%.200s, compute capability %d.%d, CUDA %d.%d", p.name, p.major, p.minor,
             runtime / 1000, runtime % 1000 / 10);
    return LS_OK;
}

static size_t used_bytes(void)
{
    size_t available = 0, total = 0;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) cudaGetLastError();
    return total - available;
}

ls_status ls__cuda_open(int threads, int index)
{
    if (threads < 1 || index < 0)
        return ls_fail(LS_ERR_ARG, "%d threads, device %d", threads, index);
    device.threads = threads;
    if (device.opened) return LS_OK;
    const char *memory = getenv("LOCKSTEP_GPU_MEMORY");
    device.apart = memory && strcmp(memory, "apart") == 0;
    const char *capture = getenv("LOCKSTEP_GPU_CAPTURE");
    device.captures = !capture || strcmp(capture, "off") != 0;
    const char *state = getenv("LOCKSTEP_GPU_STATE");
    device.keeps = !state || strcmp(state, "host") != 0;
    LS_TRY(choose_device(index));
    LS_TRY(describe());
    LS_CUDA_TRY(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking),
                "making a stream");
    device.used = device.most = used_bytes();
    device.opened = true;
    return LS_OK;
}

ls_status ls__cuda_enter(cuda_device *d)
{
    pthread_mutex_lock(&d->lock);
    cudaError_t error = cudaSetDevice(d->index); /* of this thread */
    if (error == cudaSuccess) return LS_OK;
    pthread_mutex_unlock(&d->lock);
    return ls__cuda_fail(error, "choosing it");
}

void ls__cuda_enter_last(cuda_device *d)
{
    pthread_mutex_lock(&d->lock);
    if (cudaSetDevice(d->index) != cudaSuccess) cudaGetLastError();
}

void ls__cuda_leave(cuda_device *d)
{
    pthread_mutex_unlock(&d->lock);
}

/* --- memory --- */

ls_status ls__cuda_fail_memory(const cuda_device *d, cudaError_t error, size_t nbytes,
                               const char *what)
{
    if (error != cudaErrorMemoryAllocation) return ls__cuda_fail(error, what);
    size_t available = 0, total = 0;
    cudaGetLastError();
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) cudaGetLastError();
    return ls_fail(
        LS_ERR_MEMORY,
        "GPU %d is out of memory: %s take %.0f MB, and %.0f of its %.0f MB are free" MEMORY_HINT,
        d->index, what, (double)nbytes * 1e-6, (double)available * 1e-6, (double)total * 1e-6);
}

void ls__cuda_measure(cuda_device *d)
{
    size_t used = used_bytes();
    if (used > d->most) d->most = used;
}

int64_t ls__cuda_peak_bytes(void)
{
    cuda_device *d = ls__cuda_device();
    if (!d->opened) return 0;
    ls__cuda_enter_last(d);
    ls__cuda_measure(d);
    ls__cuda_leave(d);
    return (int64_t)(d->most - d->used);
}

ls_status ls__cuda_allocate(cuda_device *d, size_t nbytes, const char *what, void **out)
{
    cudaError_t error = cudaMalloc(out, nbytes ? nbytes : 1);
    ls__cuda_measure(d);
    if (error == cudaSuccess) return LS_OK;
    *out = NULL;
    return ls__cuda_fail_memory(d, error, nbytes, what);
}

static void free_block(cuda_block *block)
{
    if (block->data) cudaFree(block->data);
    *block = (cuda_block) { 0 };
}

ls_status ls__cuda_reserve(cuda_device *d, cuda_block *block, size_t nbytes, const char *what)
{
    void *data;
    if (nbytes <= block->nbytes) return LS_OK;
    LS_CUDA_TRY(cudaStreamSynchronize(d->stream), "waiting for it");
    free_block(block);
    d->generation++;
    if (block == &d->params) d->params_of = NULL;
    LS_TRY(ls__cuda_allocate(d, nbytes, what, &data));
    *block = (cuda_block) { data, nbytes };
    return LS_OK;
}

static void free_all(cuda_device *d)
{
    free_block(&d->arena);
    free_block(&d->params);
    free_block(&d->grads);
    d->params_of = NULL;
    d->generation++;
}

/* Once: pinning is slow, and 8 MB may stay for the next executable. */
static ls_status make_staging(cuda_device *d)
{
    for (int i = 0; i < 2; i++) {
        if (d->staged[i]) continue;
        if (!d->staging[i])
            LS_CUDA_TRY(
                cudaHostAlloc((void **)&d->staging[i], CUDA_STAGING_BYTES, cudaHostAllocDefault),
                "pinning memory to copy through");
        LS_CUDA_TRY(cudaEventCreateWithFlags(&d->staged[i], cudaEventDisableTiming),
                    "making an event");
    }
    return LS_OK;
}

ls_status ls__cuda_take(cuda_device *d)
{
    ls_status status = d->executables ? LS_OK : make_staging(d);
    if (status == LS_OK)
        d->executables++;
    else
        free_all(d);
    return status;
}

void ls__cuda_release(cuda_device *d)
{
    if (--d->executables == 0) free_all(d);
}

/* --- copies --- */

ls_status ls__cuda_upload(cuda_device *d, void *to, const void *from, size_t nbytes)
{
    int turn = 0;
    for (size_t at = 0; at < nbytes; at += CUDA_STAGING_BYTES, turn ^= 1) {
        size_t n = nbytes - at < CUDA_STAGING_BYTES ? nbytes - at : CUDA_STAGING_BYTES;
        LS_CUDA_TRY(cudaEventSynchronize(d->staged[turn]), "copying to it");
        memcpy(d->staging[turn], (const char *)from + at, n);
        LS_CUDA_TRY(cudaMemcpyAsync((char *)to + at, d->staging[turn], n, cudaMemcpyHostToDevice,
                                    d->stream),
                    "copying to it");
        LS_CUDA_TRY(cudaEventRecord(d->staged[turn], d->stream), "recording an event");
    }
    return LS_OK;
}

/* The part of [at, at + count) that is wanted, out of a staging block that holds it. */
static void unpack(float *to, const float *block, int64_t at, int64_t count,
                   const cuda_stretch *stretches, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t begin = stretches[i].at > at ? stretches[i].at : at;
        int64_t end = stretches[i].at + stretches[i].count;
        if (end > at + count) end = at + count;
        if (end > begin)
            memcpy(to + begin, block + (begin - at), (size_t)(end - begin) * sizeof *to);
    }
}

ls_status ls__cuda_download(cuda_device *d, float *to, const float *from,
                            const cuda_stretch *stretches, int n)
{
    enum { FLOATS = CUDA_STAGING_BYTES / sizeof(float) };
    if (n == 0) return LS_OK;
    int64_t first = stretches[0].at, end = stretches[n - 1].at + stretches[n - 1].count;
    /* One block further than there is: each turn asks for a block and empties the one before. */
    for (int64_t at = first, turn = 0; at < end + FLOATS; at += FLOATS, turn ^= 1) {
        if (at < end) {
            int64_t count = end - at < FLOATS ? end - at : FLOATS;
            LS_CUDA_TRY(cudaMemcpyAsync(d->staging[turn], from + at, (size_t)count * sizeof *from,
                                        cudaMemcpyDeviceToHost, d->stream),
                        "copying from it");
            LS_CUDA_TRY(cudaEventRecord(d->staged[turn], d->stream), "recording an event");
        }
        int64_t before = at - FLOATS, other = turn ^ 1;
        if (before < first) continue;
        int64_t count = end - before < FLOATS ? end - before : FLOATS;
        LS_CUDA_TRY(cudaEventSynchronize(d->staged[other]), "computing");
        unpack(to, (const float *)d->staging[other], before, count, stretches, n);
    }
    return LS_OK;
}
