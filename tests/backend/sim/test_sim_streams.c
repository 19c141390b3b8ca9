/* Streams, events, captured graphs and errors of the simulated GPU. */
#include "testing.h"

#include <stdatomic.h>

#include "backend/sim/sim_kernels.h"

#define assert_cuda(expr)                                                                          \
    do {                                                                                           \
        cudaError_t assert_error = (expr);                                                         \
        if (assert_error != cudaSuccess)                                                           \
            fail_msg("%s: %s", #expr, cudaGetErrorString(assert_error));                           \
    } while (0)

enum { COUNT = 4096, BYTES = COUNT * (int)sizeof(float) };

typedef struct fixture {
    cudaStream_t stream, other;
    cudaEvent_t event, joined;
    float *x;      /* (COUNT) on the device */
    float *pinned; /* (COUNT) ones */
} fixture;

static int set_up(void **state)
{
    static fixture f;
    assert_cuda(cudaStreamCreateWithFlags(&f.stream, cudaStreamNonBlocking));
    assert_cuda(cudaStreamCreateWithFlags(&f.other, cudaStreamNonBlocking));
    assert_cuda(cudaEventCreate(&f.event));
    assert_cuda(cudaEventCreate(&f.joined));
    assert_cuda(cudaMalloc((void **)&f.x, BYTES));
    assert_cuda(cudaHostAlloc((void **)&f.pinned, BYTES, cudaHostAllocDefault));
    for (int i = 0; i < COUNT; i++) f.pinned[i] = 1;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    assert_cuda(cudaStreamDestroy(f->stream));
    assert_cuda(cudaStreamDestroy(f->other));
    assert_cuda(cudaEventDestroy(f->event));
    assert_cuda(cudaEventDestroy(f->joined));
    assert_cuda(cudaFree(f->x));
    assert_cuda(cudaFreeHost(f->pinned));
    return 0;
}

static void upload(fixture *f)
{
    assert_cuda(cudaMemcpyAsync(f->x, f->pinned, BYTES, cudaMemcpyHostToDevice, f->stream));
}

static void assert_values(fixture *f, float expected)
{
    static float got[COUNT];
    assert_cuda(cudaStreamSynchronize(f->stream));
    assert_cuda(cudaMemcpy(got, f->x, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        if (got[i] != expected) fail_msg("%d: %g, not %g", i, got[i], expected);
}

/* --- host functions by which the tests hold a stream up --- */

static atomic_int gate; /* opened by 1 */

static void wait_for_gate(void *user)
{
    (void)user;
    while (!atomic_load(&gate)) continue;
}

static void test_asynchronous(void **state)
{
    fixture *f = *state;
    atomic_store(&gate, 0);
    upload(f);
    assert_cuda(cudaLaunchHostFunc(f->stream, wait_for_gate, NULL));
    launch_scale(f->stream, COUNT, 3, f->x);
    assert_cuda(cudaEventRecord(f->event, f->stream));
    assert_int_equal(cudaStreamQuery(f->stream), cudaErrorNotReady);
    assert_int_equal(cudaEventQuery(f->event), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(f->other), cudaSuccess);
    atomic_store(&gate, 1);
    assert_cuda(cudaEventSynchronize(f->event));
    assert_cuda(cudaEventQuery(f->event));
    assert_values(f, 3);
    assert_cuda(cudaStreamQuery(f->stream));
}

/* The other stream waits for the record that was the last one when it was told to wait. */
static void test_events_order(void **state)
{
    fixture *f = *state;
    atomic_store(&gate, 0);
    upload(f);
    assert_cuda(cudaLaunchHostFunc(f->stream, wait_for_gate, NULL));
    launch_scale(f->stream, COUNT, 5, f->x);
    assert_cuda(cudaEventRecord(f->event, f->stream));
    assert_cuda(cudaStreamWaitEvent(f->other, f->event, 0));
    launch_scale(f->other, COUNT, 7, f->x);
    assert_cuda(cudaEventRecord(f->joined, f->other));
    assert_cuda(cudaStreamWaitEvent(f->stream, f->joined, 0));
    assert_cuda(cudaEventRecord(f->event, f->stream)); /* again: nobody waits for this one */
    assert_int_equal(cudaStreamQuery(f->other), cudaErrorNotReady);
    atomic_store(&gate, 1);
    assert_values(f, 35);
}

static void test_elapsed_time(void **state)
{
    fixture *f = *state;
    float ms = -1;
    atomic_store(&gate, 1);
    assert_cuda(cudaEventRecord(f->event, f->stream));
    assert_cuda(cudaLaunchHostFunc(f->stream, wait_for_gate, NULL));
    assert_cuda(cudaEventRecord(f->joined, f->stream));
    assert_cuda(cudaStreamSynchronize(f->stream));
    assert_cuda(cudaEventElapsedTime(&ms, f->event, f->joined));
    assert_true(ms >= 0);
}

typedef struct product_call {
    float *x;
    float by;
} product_call;

static void product(const void *arguments)
{
    const product_call *c = arguments;
    for (int i = 0; i < COUNT; i++) c->x[i] *= c->by;
}

static void test_vendor_work(void **state)
{
    fixture *f = *state;
    upload(f);
    product_call call = { f->x, 4 };
    assert_cuda(ls__sim_work(f->stream, "product", product, &call, sizeof(call)));
    call.by = 100; /* the arguments were copied */
    assert_values(f, 4);
}

/* Two streams, forked and joined; the launches are not run while they are captured. */
static void test_graph(void **state)
{
    fixture *f = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    upload(f);
    assert_cuda(cudaStreamSynchronize(f->stream));
    assert_cuda(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaStreamIsCapturing(f->stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    launch_scale(f->stream, COUNT, 2, f->x);
    assert_cuda(cudaEventRecord(f->event, f->stream));
    assert_cuda(cudaStreamWaitEvent(f->other, f->event, 0));
    launch_scale(f->other, COUNT, 3, f->x);
    assert_cuda(cudaEventRecord(f->joined, f->other));
    assert_cuda(cudaStreamWaitEvent(f->stream, f->joined, 0));
    assert_cuda(cudaStreamEndCapture(f->stream, &graph));
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    assert_cuda(cudaGraphDestroy(graph));
    assert_values(f, 1);
    for (int i = 0; i < 3; i++) assert_cuda(cudaGraphLaunch(exec, f->stream));
    assert_values(f, 6 * 6 * 6);
    assert_cuda(cudaGraphLaunch(exec, f->other)); /* behind the other launches */
    assert_cuda(cudaStreamSynchronize(f->other));
    assert_values(f, 6 * 6 * 6 * 6);
    assert_cuda(cudaGraphExecDestroy(exec));
    launch_scale(f->other, COUNT, 1, f->x); /* both streams run again */
    assert_cuda(cudaStreamSynchronize(f->other));
    upload(f);
    assert_values(f, 1);
}

static void test_memory_of_a_stream(void **state)
{
    fixture *f = *state;
    float *more;
    size_t before, during, after, total;
    assert_cuda(cudaMemGetInfo(&before, &total));
    assert_cuda(cudaMallocAsync((void **)&more, BYTES, f->stream));
    assert_cuda(cudaMemcpyAsync(more, f->pinned, BYTES, cudaMemcpyHostToDevice, f->stream));
    launch_scale(f->stream, COUNT, 9, more);
    assert_cuda(cudaMemcpyAsync(f->x, more, BYTES, cudaMemcpyDeviceToDevice, f->stream));
    assert_cuda(cudaMemGetInfo(&during, &total));
    assert_cuda(cudaFreeAsync(more, f->stream));
    assert_values(f, 9);
    assert_cuda(cudaMemGetInfo(&after, &total));
    assert_int_equal(before - during, BYTES);
    assert_int_equal(after, before);
}

static void test_what_pointers_are(void **state)
{
    fixture *f = *state;
    struct cudaPointerAttributes a;
    int local;
    assert_cuda(cudaPointerGetAttributes(&a, f->x + 5));
    assert_int_equal(a.type, cudaMemoryTypeDevice);
    assert_int_equal(a.device, 0);
    assert_cuda(cudaPointerGetAttributes(&a, f->pinned));
    assert_int_equal(a.type, cudaMemoryTypeHost);
    assert_cuda(cudaPointerGetAttributes(&a, &local));
    assert_int_equal(a.type, cudaMemoryTypeUnregistered);
    assert_cuda(cudaHostRegister(&local, sizeof(local), cudaHostRegisterDefault));
    assert_cuda(cudaPointerGetAttributes(&a, &local));
    assert_int_equal(a.type, cudaMemoryTypeHost);
    assert_cuda(cudaHostUnregister(&local));
}

static void test_devices(void **state)
{
    (void)state;
    int count;
    struct cudaDeviceProp one, two;
    assert_cuda(cudaGetDeviceCount(&count));
    assert_true(count >= 2);
    assert_cuda(cudaGetDeviceProperties(&one, 0));
    assert_cuda(cudaGetDeviceProperties(&two, 1));
    assert_int_equal(one.warpSize, 32);
    assert_true(memcmp(one.uuid.bytes, two.uuid.bytes, sizeof(one.uuid.bytes)) != 0);
    assert_int_equal(cudaSetDevice(count), cudaErrorInvalidDevice);
    assert_non_null(strstr(cudaGetErrorString(cudaErrorInvalidDevice), "simulated"));
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_string_equal(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
}

/* A kernel's error is the device's, found late and for good; other devices go on. The last test: it
 * spoils device 1. */
static void test_error_stays(void **state)
{
    fixture *f = *state;
    float *y = NULL;
    cudaStream_t stream;
    assert_cuda(cudaSetDevice(1));
    assert_cuda(cudaStreamCreate(&stream));
    assert_cuda(cudaMalloc((void **)&y, BYTES));
    launch_scale(stream, COUNT, 2, f->pinned);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    assert_non_null(strstr(cudaGetErrorString(cudaErrorIllegalAddress), "pinned host memory"));
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaMemsetAsync(y, 0, BYTES, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaMalloc((void **)&y, BYTES), cudaErrorIllegalAddress);
    assert_cuda(cudaStreamDestroy(stream));
    assert_cuda(cudaSetDevice(0));
    upload(f);
    assert_values(f, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_asynchronous),      TEST(test_events_order), TEST(test_elapsed_time),
        TEST(test_vendor_work),       TEST(test_graph),        TEST(test_memory_of_a_stream),
        TEST(test_what_pointers_are), TEST(test_devices),      TEST(test_error_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
