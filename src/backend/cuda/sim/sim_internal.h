/* The simulated GPU from the inside: who owns what.
 *
 *     device  its memory, its streams, the error that it has run into
 *     stream  a queue of calls and the thread that runs them
 *     call    one kernel, copy, event, ...: a function and its arguments as bytes
 *     crew    of a stream: the threads that share a launch's blocks
 *     block   what runs a block's threads as fibers, one per thread of a crew
 *
 * Locks: the one of memory may be taken while a stream's is held; nothing else is nested. */
#ifndef LS_BACKEND_CUDA_SIM_INTERNAL_H
#define LS_BACKEND_CUDA_SIM_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/sim/sim_sanitizer.h"
#include "backend/cuda/sim/sim_thread.h"
#include "base/memory.h"

enum { SIM_MAX_DEVICES = 64, SIM_MAX_BLOCK = 1024, SIM_WARP = 32 };
/* Bytes of dynamic shared memory: of every kernel; of one that asks for more. */
enum { SIM_SHARED = 48 << 10, SIM_SHARED_MOST = 227 << 10 };

/* --- sim_error.c --- */
/* An error of this call: kept for cudaGetLastError, and returned. The text may be NULL. */
cudaError_t ls__sim_error(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* An error of the device's work: found by whoever synchronizes next, and by every call after that.
 * The first one counts. */
void ls__sim_fault(int device, cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What a synchronizing call returns: the device's error, if there is one. */
cudaError_t ls__sim_found(int device);
/* What the other calls return: the device's error, once it was found. */
cudaError_t ls__sim_known(int device);
#define SIM_TRY(expr)                                                                              \
    do {                                                                                           \
        cudaError_t sim_error = (expr);                                                            \
        if (sim_error != cudaSuccess) return sim_error;                                            \
    } while (0)

/* --- sim_inject.c --- */
bool ls__sim_malloc_fails(void); /* counts */
bool ls__sim_launch_fails(void); /* counts */

/* --- sim_device.c --- */
int ls__sim_device_count(void);
int ls__sim_device(void); /* the calling thread's */
int ls__sim_workers(void);
size_t ls__sim_memory_limit(void);
/* The variable's value, or otherwise where it is not set or not a number in [least, most]. */
long long ls__sim_setting(const char *variable, long long least, long long most,
                          long long otherwise);

/* --- sim_memory.c --- */
typedef struct sim_range {
    char *begin;
    size_t nbytes;
    int device; /* -1 = pinned host memory */
    char *map;  /* all that is mapped for it: guard pages and margins too */
    size_t map_nbytes;
    bool registered; /* host memory that is somebody else's */
    bool freed;      /* kept for a while, so that a late use is named */
    uint64_t freed_at;
} sim_range;

/* The range in which p lies, its end included (freed: that ones too). */
bool ls__sim_find(const void *p, bool freed, sim_range *out);
/* Work on device memory begins, ends: it can be touched in between. Counted. */
void ls__sim_memory_open(void);
void ls__sim_memory_close(void);
cudaError_t ls__sim_malloc(int device, size_t nbytes, void **out);
cudaError_t ls__sim_free_now(void *p); /* device memory, without waiting */
/* "4096 bytes of device 0, 16 behind its end": what p is, for a message. Safe in a signal handler
 * as far as the lock allows. */
void ls__sim_describe(const void *p, char *out, size_t nbytes);

/* --- sim_segv.c --- */
void ls__sim_watch_faults(void); /* once */

/* --- sim_stream.c --- */
typedef struct sim_call sim_call;
typedef struct CUstream_st sim_stream;
typedef struct CUevent_st sim_event;

typedef struct sim_call_kind {
    void (*run)(sim_stream *stream, const sim_call *call);
    bool touches_memory;
} sim_call_kind;

struct sim_call {
    sim_call *next;
    const sim_call_kind *kind;
    const char *name;
    size_t nbytes;
    sim_order order; /* behind its enqueueing */
    _Alignas(16) unsigned char arguments[];
};

/* Puts a call into the stream's queue or, where it is being captured, into the capture. */
cudaError_t ls__sim_enqueue(sim_stream *stream, const sim_call_kind *kind, const char *name,
                            const void *arguments, size_t nbytes);
cudaError_t ls__sim_enqueue_now(sim_stream *stream, const sim_call_kind *kind, const char *name,
                                const void *arguments, size_t nbytes);
/* NULL = the current device's own. NULL on failure. */
sim_stream *ls__sim_stream(cudaStream_t stream);
void ls__sim_stream_wait(sim_stream *stream);
void ls__sim_device_wait(int device);
int ls__sim_stream_device(const sim_stream *stream);
struct sim_crew *ls__sim_stream_crew(sim_stream *stream);

/* What the calling thread runs, if it is a stream's; NULL = it is not. For messages. */
const char *ls__sim_current_call(void);

/* --- sim_event.c --- */
cudaError_t ls__sim_event_record(sim_event *event, sim_stream *stream);
cudaError_t ls__sim_event_wait(sim_event *event, sim_stream *stream);

/* --- sim_crew.c --- */
typedef struct sim_crew sim_crew;
sim_crew *ls__sim_crew_create(int device, int nworkers);
void ls__sim_crew_destroy(sim_crew *crew);
/* Runs all blocks; returns when they are done. */
void ls__sim_crew_run(sim_crew *crew, const sim_launch *launch, const void *bound);

/* --- sim_block.c --- */
typedef struct sim_block sim_block;
sim_block *ls__sim_block_create(int device);
void ls__sim_block_destroy(sim_block *block);
/* What all blocks of a launch have in common. false = no memory. */
bool ls__sim_block_prepare(sim_block *block, const sim_launch *launch, const void *bound);
/* Runs one. false = it cannot go on (a barrier that nobody comes to): the device has the error. */
bool ls__sim_block_run(sim_block *block, uint64_t number);

/* "kernel scale, block (0, 0, 0), thread (3, 0, 0)": what the calling OS thread runs. false = none.
 */
bool ls__sim_where(char *out, size_t nbytes);

#endif
