/* The GPU of this process: its stream, its memory, and how bytes get there and back. */
#ifndef LS_BACKEND_CUDA_DEVICE_H
#define LS_BACKEND_CUDA_DEVICE_H

#include <pthread.h>

#include "backend/cuda/runtime.h"
#include "base/check.h"
#include "base/memory.h"
#include "graph/backend.h"

/* A call of CUDA's; what: a string that says what was being done. */
#define LS_CUDA_TRY(call, what)                                                                    \
    do {                                                                                           \
        cudaError_t ls__error = (call);                                                            \
        if (ls__error != cudaSuccess) return ls__cuda_fail(ls__error, (what));                     \
    } while (0)
ls_status ls__cuda_fail(cudaError_t error, const char *what);

/* A library's call failed: for lack of memory, or as text says, unless the GPU was lost before. */
ls_status ls__cuda_fail_library(const char *library, bool memory, const char *text);

typedef struct cuda_block { /* device memory that grows and never shrinks */
    char *data;
    size_t nbytes;
} cuda_block;

enum { CUDA_STAGING_BYTES = 4 << 20 };

/* One per process. Only one thread at a time is inside: it holds the lock. */
typedef struct cuda_device {
    pthread_mutex_t lock;
    int index;
    int threads; /* of the host */
    bool opened;
    bool captures;     /* steps become graphs */
    bool keeps;        /* training state, where a run's optimizer allows */
    size_t used, most; /* bytes in use when it was opened, and at most since */
    bool apart; /* each tensor in memory of its own, for tests: kernels that leave it are caught */
    cudaStream_t stream;
    int executables;

    cuda_block arena;         /* shared by all executables: one runs at a time */
    cuda_block params, grads; /* copies of the flat spaces, with the same offsets */
    uint64_t generation;      /* another one whenever a block has moved */
    const float *params_of;   /* what params is a copy of */
    uint64_t params_version;
    int64_t params_count; /* floats that were copied */

    char *staging[2]; /* pinned */
    cudaEvent_t staged[2];
} cuda_device;

cuda_device *ls__cuda_device(void);
ls_status ls__cuda_open(int threads, int device);
extern char ls__cuda_description_text[320];

/* For the calling thread; every entry of the backend begins with it and ends with leave. */
ls_status ls__cuda_enter(cuda_device *d);
/* To take apart what is there, also of a device that was lost. */
void ls__cuda_enter_last(cuda_device *d);
void ls__cuda_leave(cuda_device *d);

/* An executable comes or goes; memory is given back when the last one goes. */
ls_status ls__cuda_take(cuda_device *d);
void ls__cuda_release(cuda_device *d);

/* what: "activations", for the message. */
ls_status ls__cuda_reserve(cuda_device *d, cuda_block *block, size_t nbytes, const char *what);
/* What an allocation of so many bytes has failed with, in words. */
ls_status ls__cuda_fail_memory(const cuda_device *d, cudaError_t error, size_t nbytes,
                               const char *what);
ls_status ls__cuda_allocate(cuda_device *d, size_t nbytes, const char *what, void **out);
/* Looks how much memory is in use now: after what allocates. */
void ls__cuda_measure(cuda_device *d);
/* By how much more there was at most than when it was opened, as the driver counts: what libraries
 * and others take is in it. */
int64_t ls__cuda_peak_bytes(void);

/* Between the device and memory that is not pinned, through the two staging blocks: a block is
 * filled or emptied while the other travels. Both return when the host's memory is no longer
 * needed. */
ls_status ls__cuda_upload(cuda_device *d, void *to, const void *from, size_t nbytes);

/* A stretch of floats that is brought to the host. */
typedef struct cuda_stretch {
    int64_t at; /* floats from the begin of both */
    int64_t count;
} cuda_stretch;
/* stretches: by increasing place, apart. What lies between them on the host is left alone. */
ls_status ls__cuda_download(cuda_device *d, float *to, const float *from,
                            const cuda_stretch *stretches, int n);

#endif
