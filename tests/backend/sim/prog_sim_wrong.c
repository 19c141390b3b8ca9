/* Does one thing that the simulated GPU must catch: prog_sim_wrong CASE wrong|right.
 *
 * Exits with 0 when nothing is wrong, with 1 and CUDA's text on stderr when the runtime says so; or
 * does not get that far, because the process was ended (device memory touched, a sanitizer). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/sim/sim_wrong.h"

enum { N = WRONG_THREADS, BYTES = N * (int)sizeof(float) };

static bool right;
static cudaStream_t stream, other;
static float *a, *b;      /* (N) on the device, zeros */
static float *pinned;     /* (N) */
static cudaEvent_t event; /* for what must be ordered */

static void check(cudaError_t error)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
    exit(1);
}

static void set_up(void)
{
    check(cudaStreamCreate(&stream));
    check(cudaStreamCreate(&other));
    check(cudaEventCreate(&event));
    check(cudaMalloc((void **)&a, BYTES));
    check(cudaMalloc((void **)&b, BYTES));
    check(cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocDefault));
    memset(pinned, 0, BYTES);
    check(cudaMemset(a, 0, BYTES));
    check(cudaMemset(b, 0, BYTES));
}

static void host_touches(void)
{
    if (right)
        check(cudaMemcpy(pinned, a, BYTES, cudaMemcpyDeviceToHost));
    else
        memcpy(pinned, a, BYTES);
}

static void host_pointer(void)
{
    launch_copy(stream, right ? a : pinned, b);
}

static void host_pointer_in_struct(void)
{
    static float on_host[N];
    launch_copy_pair(stream, (wrong_pair) { b, right ? a : on_host });
}

static void other_device(void)
{
    float *far;
    check(cudaSetDevice(right ? 0 : 1));
    check(cudaMalloc((void **)&far, BYTES));
    check(cudaMemset(far, 0, BYTES));
    launch_copy(stream, far, b);
}

static void past_end(void)
{
    launch_copy(stream, right ? a : a + N - 8, b);
}

static void freed(void)
{
    if (right) launch_copy(stream, a, b);
    check(cudaFreeAsync(a, stream));
    check(cudaStreamSynchronize(stream));
    if (!right) launch_copy(stream, a, b);
}

static void copied_beyond(void)
{
    check(
        cudaMemcpyAsync(a + 1, pinned, right ? BYTES - 4 : BYTES, cudaMemcpyHostToDevice, stream));
}

static void copied_backwards(void)
{
    check(cudaMemcpyAsync(a, pinned, BYTES, right ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                          stream));
}

static void missing_event(void)
{
    launch_copy(stream, a, b);
    if (right) {
        check(cudaEventRecord(event, stream));
        check(cudaStreamWaitEvent(other, event, 0));
    }
    launch_copy(other, b, a);
}

/* Batches that are copied ahead on one stream while another computes (cuda_ahead.c): a batch is moved
 * when it has come, and the next one comes when it was moved. */
static void copy_ahead(bool waits_for_batch, bool waits_for_move)
{
    float *staged;
    cudaEvent_t moved;
    check(cudaEventCreate(&moved));
    check(cudaMalloc((void **)&staged, BYTES));
    for (int batch = 0; batch < 3; batch++) {
        if (batch > 0) {
            if (waits_for_batch) check(cudaStreamWaitEvent(stream, event, 0));
            check(cudaMemcpyAsync(a, staged, BYTES, cudaMemcpyDeviceToDevice, stream));
            check(cudaEventRecord(moved, stream));
        }
        launch_copy(stream, b, a);
        check(cudaEventSynchronize(event)); /* pinned memory is free */
        if (waits_for_move) check(cudaStreamWaitEvent(other, moved, 0));
        check(cudaMemcpyAsync(staged, pinned, BYTES, cudaMemcpyHostToDevice, other));
        check(cudaEventRecord(event, other));
        check(cudaStreamSynchronize(stream));
    }
    check(cudaStreamSynchronize(other));
    check(cudaEventDestroy(moved));
    check(cudaFree(staged));
}

static void batch_not_there(void)
{
    copy_ahead(right, true);
}

static void batch_overwritten(void)
{
    copy_ahead(true, right);
}

/* The second stream waits for what the first had done before, not for the kernel. */
static void early_event(void)
{
    if (!right) check(cudaEventRecord(event, stream));
    launch_copy(stream, a, b);
    if (right) check(cudaEventRecord(event, stream));
    check(cudaStreamWaitEvent(other, event, 0));
    launch_copy(other, b, a);
}

static void event_missing_in_graph(void)
{
    cudaEvent_t fork;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaEventCreate(&fork));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (!right) check(cudaEventRecord(fork, stream));
    launch_copy(stream, a, b);
    if (right) check(cudaEventRecord(fork, stream));
    check(cudaStreamWaitEvent(other, fork, 0));
    launch_copy(other, b, a);
    check(cudaEventRecord(event, other));
    check(cudaStreamWaitEvent(stream, event, 0));
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
    check(cudaEventDestroy(fork));
}

/* The host writes into a buffer from which a copy may still read. */
static void buffer_reused(void)
{
    check(cudaMemcpyAsync(a, pinned, BYTES, cudaMemcpyHostToDevice, stream));
    if (right) check(cudaStreamSynchronize(stream));
    pinned[0] = 1;
}

static void missing_barrier(void)
{
    launch_neighbour(stream, right, a, b);
}

static void missing_second_barrier(void)
{
    launch_two_rounds(stream, right, a, b);
}

static void missing_syncwarp(void)
{
    launch_warp_neighbour(stream, right, a, b);
}

static void blocks_race(void)
{
    launch_blocks(stream, right, a);
}

static void divergent_barrier(void)
{
    launch_divergent(stream, right, a);
}

static void half_a_warp(void)
{
    launch_half_warp(stream, right, a);
}

static void different_masks(void)
{
    launch_masks(stream, right, a);
}

static void dynamic_shared(void)
{
    launch_dynamic(stream, right, a);
}

static void too_much_shared(void)
{
    launch_sized(stream, right, 100000, 32);
}

static void too_many_threads(void)
{
    launch_sized(stream, true, 0, right ? 1024 : 1025);
}

static void synchronized_in_capture(void)
{
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_copy(stream, a, b);
    if (!right) cudaStreamSynchronize(stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphDestroy(graph));
}

static void allocated_in_capture(void)
{
    float *more = NULL;
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(stream, right ? cudaStreamCaptureModeRelaxed
                                               : cudaStreamCaptureModeThreadLocal));
    launch_copy(stream, a, b);
    cudaMalloc((void **)&more, BYTES);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphDestroy(graph));
    check(cudaFree(more));
}

static void unjoined_capture(void)
{
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    check(cudaEventRecord(event, stream));
    check(cudaStreamWaitEvent(other, event, 0));
    launch_copy(other, a, b);
    check(cudaEventRecord(event, other));
    if (right) check(cudaStreamWaitEvent(stream, event, 0));
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphDestroy(graph));
}

static void freed_under_graph(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaDeviceSynchronize());
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_copy(stream, a, b);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaGraphDestroy(graph));
    if (!right) check(cudaFree(a));
    check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaGraphExecDestroy(exec));
}

static void own_mask(void)
{
    launch_own_mask(stream, right, a);
}

static void freed_twice(void)
{
    check(cudaFree(a));
    if (!right) check(cudaFree(a));
}

static void product(const void *arguments)
{
    float *x = *(float *const *)arguments;
    x[0] = 2 * x[0];
}

/* What a vendor's library would do. */
static void vendor_touches_freed(void)
{
    check(cudaDeviceSynchronize());
    if (!right) check(cudaFree(a));
    check(ls__sim_work(stream, "product", product, &a, sizeof(a)));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    { "host_touches", host_touches },
    { "host_pointer", host_pointer },
    { "host_pointer_in_struct", host_pointer_in_struct },
    { "other_device", other_device },
    { "past_end", past_end },
    { "freed", freed },
    { "copied_beyond", copied_beyond },
    { "copied_backwards", copied_backwards },
    { "missing_event", missing_event },
    { "batch_not_there", batch_not_there },
    { "batch_overwritten", batch_overwritten },
    { "early_event", early_event },
    { "event_missing_in_graph", event_missing_in_graph },
    { "buffer_reused", buffer_reused },
    { "missing_barrier", missing_barrier },
    { "missing_second_barrier", missing_second_barrier },
    { "missing_syncwarp", missing_syncwarp },
    { "blocks_race", blocks_race },
    { "divergent_barrier", divergent_barrier },
    { "half_a_warp", half_a_warp },
    { "different_masks", different_masks },
    { "freed_under_graph", freed_under_graph },
    { "own_mask", own_mask },
    { "freed_twice", freed_twice },
    { "vendor_touches_freed", vendor_touches_freed },
    { "dynamic_shared", dynamic_shared },
    { "too_much_shared", too_much_shared },
    { "too_many_threads", too_many_threads },
    { "synchronized_in_capture", synchronized_in_capture },
    { "allocated_in_capture", allocated_in_capture },
    { "unjoined_capture", unjoined_capture },
};

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    right = strcmp(argv[2], "right") == 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, argv[1]) != 0) continue;
        set_up();
        cases[i].run();
        check(cudaGetLastError());
        check(cudaStreamSynchronize(stream));
        check(cudaStreamSynchronize(other));
        check(cudaStreamDestroy(other));
        check(cudaStreamDestroy(stream));
        return 0;
    }
    return 2;
}
