/* Kernels on the simulated GPU: indices, barriers, shuffles, shared memory, atomics, bf16. */
#include "testing.h"

#include <math.h>

#include "backend/sim/sim_kernels.h"

#define assert_cuda(expr)                                                                          \
    do {                                                                                           \
        cudaError_t assert_error = (expr);                                                         \
        if (assert_error != cudaSuccess)                                                           \
            fail_msg("%s: %s", #expr, cudaGetErrorString(assert_error));                           \
    } while (0)

static void *on_device(const void *values, size_t nbytes)
{
    void *p;
    assert_cuda(cudaMalloc(&p, nbytes));
    if (values) assert_cuda(cudaMemcpy(p, values, nbytes, cudaMemcpyHostToDevice));
    return p;
}

/* Waits, copies back, frees. */
static void take(void *p, void *out, size_t nbytes)
{
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaGetLastError());
    assert_cuda(cudaMemcpy(out, p, nbytes, cudaMemcpyDeviceToHost));
    assert_cuda(cudaFree(p));
}

static void test_scale(void **state)
{
    (void)state;
    enum { COUNT = 10007 };
    static float x[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    float *d = on_device(x, sizeof(x));
    cudaStream_t stream;
    assert_cuda(cudaStreamCreate(&stream));
    launch_scale(stream, COUNT, 2, d);
    launch_scale(stream, 9984, 0.5f, d);
    take(d, x, sizeof(x));
    assert_cuda(cudaStreamDestroy(stream));
    for (int i = 0; i < COUNT; i++) assert_true(x[i] == (float)i * (i < 9984 ? 1 : 2));
}

static void test_new_memory_is_nan(void **state)
{
    (void)state;
    float x[3];
    take(on_device(NULL, sizeof(x)), x, sizeof(x));
    for (int i = 0; i < 3; i++) assert_true(isnan(x[i]));
}

static void test_block_sums(void **state)
{
    (void)state;
    enum { BLOCKS = 33 };
    static float x[BLOCKS * 256], sums[BLOCKS];
    for (int i = 0; i < BLOCKS * 256; i++) x[i] = (float)(i % 13);
    float *d = on_device(x, sizeof(x)), *out = on_device(NULL, sizeof(sums));
    launch_block_sums(NULL, BLOCKS, d, out);
    take(out, sums, sizeof(sums));
    for (int b = 0; b < BLOCKS; b++) {
        float sum = 0;
        for (int i = 0; i < 256; i++) sum += x[b * 256 + i];
        assert_true(sums[b] == sum);
    }
    take(d, x, sizeof(x));
}

static void test_reverse(void **state)
{
    (void)state;
    enum { BLOCKS = 5, COUNT = BLOCKS * 256 };
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    float *d = on_device(x, sizeof(x)), *out = on_device(NULL, sizeof(y));
    launch_reverse(NULL, BLOCKS, d, out);
    take(out, y, sizeof(y));
    for (int i = 0; i < COUNT; i++) assert_true(y[i] == x[i / 256 * 256 + 255 - i % 256]);
    take(d, x, sizeof(x));
}

static void test_lanes(void **state)
{
    (void)state;
    int out[4][64];
    int *d = on_device(NULL, sizeof(out));
    launch_lanes(NULL, d);
    take(d, out, sizeof(out));
    for (int i = 0; i < 64; i++) {
        int lane = i % 32, warp = i - lane;
        assert_int_equal(out[0][i], warp + 5);
        assert_int_equal(out[1][i], lane % 8 < 5 ? i + 3 : i);
        assert_int_equal(out[2][i], lane >= 2 ? i - 2 : i);
        assert_int_equal(out[3][i], (int)0xaaaaaaaau);
    }
}

static void test_indices(void **state)
{
    (void)state;
    enum { COUNT = 2 * 3 * 4 * 64 };
    int out[COUNT];
    int *d = on_device(NULL, sizeof(out));
    launch_indices(NULL, d);
    take(d, out, sizeof(out));
    for (int i = 0; i < COUNT; i++) assert_int_equal(out[i], i);
}

static void test_atomics(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static int x[COUNT];
    int total = 0, result[2] = { 1 << 30, 0 };
    for (int i = 0; i < COUNT; i++) total += x[i] = (i * 7919) % 1009 - 5;
    int *d = on_device(x, sizeof(x)), *out = on_device(result, sizeof(result));
    launch_atomics(NULL, COUNT, d, out, out + 1);
    take(out, result, sizeof(result));
    assert_int_equal(result[0], -5);
    assert_int_equal(result[1], total);
    take(d, x, sizeof(x));
}

static void test_bf16(void **state)
{
    (void)state;
    const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        { 0x3f800000, 0x3f80 }, { 0x3f808000, 0x3f80 }, { 0x3f818000, 0x3f82 },
        { 0x3f808001, 0x3f81 }, { 0x7f7fffff, 0x7f80 }, { 0xff800000, 0xff80 },
        { 0x7f800001, 0x7fff }, { 0xffc00000, 0x7fff }, { 0x00000001, 0x0000 },
        { 0x80000000, 0x8000 },
    };
    enum { COUNT = sizeof(cases) / sizeof(cases[0]) };
    float x[COUNT];
    uint16_t y[COUNT];
    for (int i = 0; i < COUNT; i++) memcpy(&x[i], &cases[i].from, 4);
    float *d = on_device(x, sizeof(x));
    uint16_t *out = on_device(NULL, sizeof(y));
    launch_round(NULL, COUNT, d, out);
    take(out, y, sizeof(y));
    for (int i = 0; i < COUNT; i++) assert_int_equal(y[i], cases[i].to);
    take(d, x, sizeof(x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale),      cmocka_unit_test(test_new_memory_is_nan),
        cmocka_unit_test(test_block_sums), cmocka_unit_test(test_reverse),
        cmocka_unit_test(test_lanes),      cmocka_unit_test(test_indices),
        cmocka_unit_test(test_atomics),    cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
