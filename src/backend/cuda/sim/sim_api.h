/* The CUDA runtime's names, as far as the plugin uses them, of GPUs that are simulated on the host.
 * What a function does and returns is what NVIDIA's manual says of it; comments name differences.
 *
 * A simulated device has memory that the host cannot touch, streams that are threads, and errors
 * that arrive late, so that what would go wrong on a GPU goes wrong here, only with a better text:
 * cudaGetErrorString tells what exactly was wrong.
 *
 * Variables of the environment:
 *     LOCKSTEP_SIM_DEVICES=8        how many devices there are
 *     LOCKSTEP_SIM_MEMORY=17179869184   bytes of memory of each
 *     LOCKSTEP_SIM_WORKERS=2        threads that share a launch's blocks; default: CPUs, at most 4
 *     LOCKSTEP_SIM_FAIL=malloc:N    the N-th allocation of device memory fails (1 = the first)
 *                       async:N     the N-th launch fails, as the next synchronization finds out
 *                       collective:N  the N-th exchange between devices fails */
#ifndef LS_BACKEND_CUDA_SIM_API_H
#define LS_BACKEND_CUDA_SIM_API_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text); the values are CUDA's */
#define LS_SIM_ERROR_MAP(X)                                                                        \
    X(cudaSuccess, 0, "no error")                                                                  \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                               \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                          \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                       \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                              \
    X(cudaErrorNotReady, 600, "device not ready")                                                  \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                    \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                   \
    X(cudaErrorNotSupported, 801, "operation not supported")                                       \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")  \
    X(cudaErrorStreamCaptureInvalidated, 901,                                                      \
      "operation failed due to a previous error during "                                           \
      "capture")                                                                                   \
    X(cudaErrorStreamCaptureMerge, 902,                                                            \
      "operation would result in a merge of separate capture "                                     \
      "sequences")                                                                                 \
    X(cudaErrorStreamCaptureUnmatched, 903,                                                        \
      "capture was not ended in the same stream as it "                                            \
      "began")                                                                                     \
    X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")

typedef enum cudaError {
#define LS_SIM_ERROR_ENUM(name, value, text) name = value,
    LS_SIM_ERROR_MAP(LS_SIM_ERROR_ENUM)
#undef LS_SIM_ERROR_ENUM
} cudaError_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef void (*cudaHostFn_t)(void *user);

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

#define cudaStreamDefault       0x00
#define cudaStreamNonBlocking   0x01
#define cudaEventDefault        0x00
#define cudaEventBlockingSync   0x01
#define cudaEventDisableTiming  0x02
#define cudaHostAllocDefault    0x00
#define cudaHostAllocPortable   0x01
#define cudaHostRegisterDefault 0x00

typedef struct CUuuid_st {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    size_t sharedMemPerBlockOptin;
    int warpSize;
    int maxThreadsPerBlock;
    int major, minor;
    int multiProcessorCount;
    int l2CacheSize;
    int pciDomainID, pciBusID, pciDeviceID;
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

/* --- errors ---
 * The text belongs to the error as it last happened, in this thread or on this thread's device, and
 * holds until the next one. */
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

/* --- devices --- */
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device); /* of this thread; 0 at first */
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);

/* --- memory ---
 * New device memory holds bytes of ones (NaN in f32 and bf16), since a GPU's holds anything. */
cudaError_t cudaMalloc(void **out, size_t nbytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocAsync(void **out, size_t nbytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream);
cudaError_t cudaHostAlloc(void **out, size_t nbytes, unsigned flags);
cudaError_t cudaMallocHost(void **out, size_t nbytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t nbytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p);

/* Pointers are checked against kind and against what is allocated. Of pageable memory (not from
 * cudaHostAlloc, not registered) the asynchronous copy waits until it is done. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemset(void *p, int value, size_t nbytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t nbytes, cudaStream_t stream);

/* --- streams ---
 * Each is a thread. NULL is a stream like the others, one per device: it does not wait for them. */
cudaError_t cudaStreamCreate(cudaStream_t *out);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream); /* waits for its work */
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user);

/* --- events --- */
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *out_ms, cudaEvent_t begin, cudaEvent_t end);

/* --- capture and graphs --- */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* --- the simulation's own --- */
/* Before anything else: how many devices there are, where the environment does not say. */
void ls__sim_set_devices(int count);
/* A host function as work on the stream that may touch device memory: what a vendor's library would
 * launch. The bytes at arguments are copied now and handed to fn then. */
cudaError_t ls__sim_work(cudaStream_t stream, const char *name, void (*fn)(const void *arguments),
                         const void *arguments, size_t nbytes);

/* An exchange between devices is about to begin: whether it is to fail. */
bool ls__sim_collective_fails(void);

#ifdef __cplusplus
}
#endif
#endif
