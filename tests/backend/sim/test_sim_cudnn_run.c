/* What a run of attention hands to cuDNN, over a library that stands in for it (fake_cudnn.c): where
 * each tensor lies, which numbers come from the host, and that sums of dq begin at zero. */
#include "testing.h"

#include <dlfcn.h>
#include <math.h>

#include "backend/cuda/vendor_attention.h"
#include "backend/cuda/vendor_cuda_cudnn.h"

static struct {
    void *(*bound)(int64_t id);
    int64_t (*count)(void);
    void *(*workspace)(void);
    void *(*stream)(void);
    void (*make_fail)(int status);
} fake;

enum { BATCH = 2, TOKENS = 5, HEADS = 4, KV_HEADS = 2, WIDTH = 8 };
enum { ROW = (HEADS + 2 * KV_HEADS) * WIDTH }; /* of a token, in qkv */
enum { ALONG = 256 /* BATCH HEADS TOKENS floats, rounded up */, SUM = 1280 };
static const attention_shape full = { .batch = BATCH,
                                      .tokens = TOKENS,
                                      .heads = HEADS,
                                      .kv_heads = KV_HEADS,
                                      .width = WIDTH,
                                      .scale = 0.25f };

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) fail_msg("%s: %s", name, dlerror());
    return symbol;
}

/* Whoever asks for libcudnn.so.9 later gets the one that is there. */
static int open_fake(void **state)
{
    (void)state;
    char path[4096];
    const char *folder = getenv("LS_BINARY_DIR");
    snprintf(path, sizeof path, "%s/tests/fake/cudnn/libcudnn.so.9", folder ? folder : "..");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&fake.bound = find(library, "fake_cudnn_bound");
    *(void **)&fake.count = find(library, "fake_cudnn_count");
    *(void **)&fake.workspace = find(library, "fake_cudnn_workspace");
    *(void **)&fake.stream = find(library, "fake_cudnn_stream");
    *(void **)&fake.make_fail = find(library, "fake_cudnn_fail");
    return !ls__vendor_attention_is_here();
}

static attention_plan *plan(attention_pass pass, bool causal, size_t expected)
{
    static attention_plan *kept[8]; /* nothing frees them */
    static int n;
    attention_shape s = full;
    size_t nbytes;
    s.causal = causal;
    assert_ok(ls__vendor_attention_plan(pass, &s, &kept[n], &nbytes));
    assert_int_equal(nbytes, expected);
    return kept[n++];
}

static void assert_scalars(bool causal)
{
    assert_true(*(float *)fake.bound(FLASH_SCALE) == full.scale);
    const float *hidden = fake.bound(FLASH_HIDDEN);
    assert_true(causal ? hidden && *hidden == -INFINITY : !hidden);
}

/* q, k and v of a token lie one behind the other. */
static void assert_heads(int first, const uint16_t *qkv)
{
    assert_ptr_equal(fake.bound(first), qkv);
    assert_ptr_equal(fake.bound(first + 1), qkv + HEADS * WIDTH);
    assert_ptr_equal(fake.bound(first + 2), qkv + (HEADS + KV_HEADS) * WIDTH);
}

static void test_forward(void **state)
{
    (void)state;
    static uint16_t qkv[ROW], y[1];
    static float logsum[1];
    static char workspace[ALONG + 1000];
    for (int causal = 0; causal < 2; causal++) {
        const attention_plan *p = plan(ATTENTION_FORWARD, causal, ALONG + 1000);
        assert_ok(ls__vendor_attention(p, qkv, y, logsum, workspace, NULL));
        assert_heads(FLASH_Q, qkv);
        assert_ptr_equal(fake.bound(FLASH_Y), y);
        assert_ptr_equal(fake.bound(FLASH_STATS), logsum);
        assert_scalars(causal);
        assert_int_equal(fake.count(), 6 + causal);
        assert_ptr_equal(fake.workspace(), workspace + ALONG);
        /* Nobody wants them. */
        assert_ok(ls__vendor_attention(p, qkv, y, NULL, workspace, NULL));
        assert_ptr_equal(fake.bound(FLASH_STATS), workspace);
    }
}

static void test_backward(void **state)
{
    (void)state;
    static uint16_t qkv[ROW], y[1], g[1], dqkv[ROW];
    static float logsum[1];
    static char left[ALONG + SUM + 1000], zero[ALONG + SUM];
    char *workspace;
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&workspace, sizeof left), cudaSuccess);
    const attention_backward a = { .g = { .data = g, .half = true },
                                   .qkv = { .data = qkv, .half = true },
                                   .y = { .data = y, .half = true },
                                   .logsum = logsum,
                                   .dqkv = { .data = dqkv, .half = true } };
    for (int causal = 0; causal < 2; causal++) {
        const attention_plan *p = plan(ATTENTION_BACKWARD, causal, sizeof left);
        assert_int_equal(cudaMemset(workspace, 0xff, sizeof left), cudaSuccess);
        assert_ok(ls__vendor_attention_grad(p, &a, workspace, stream));
        assert_heads(FLASH_Q, qkv);
        assert_heads(FLASH_DQ, dqkv);
        assert_ptr_equal(fake.bound(FLASH_Y), y);
        assert_ptr_equal(fake.bound(FLASH_G), g);
        assert_ptr_equal(fake.bound(FLASH_STATS), logsum);
        assert_ptr_equal(fake.bound(FLASH_ALONG), workspace);
        assert_ptr_equal(fake.bound(FLASH_DQ_SUM), workspace + ALONG);
        assert_true(*(float *)fake.bound(FLASH_ONE) == 1);
        assert_scalars(causal);
        assert_int_equal(fake.count(), 13 + causal);
        assert_ptr_equal(fake.workspace(), workspace + ALONG + SUM);
        assert_ptr_equal(fake.stream(), stream);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_int_equal(cudaMemcpy(left, workspace, sizeof left, cudaMemcpyDeviceToHost),
                         cudaSuccess);
        assert_memory_equal(left, zero, sizeof zero);
    }
    assert_int_equal(cudaFree(workspace), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

static void test_failure(void **state)
{
    (void)state;
    static uint16_t qkv[1], y[1];
    static char workspace[1];
    const attention_plan *p = plan(ATTENTION_FORWARD, true, ALONG + 1000);
    fake.make_fail(3007);
    assert_fails(ls__vendor_attention(p, qkv, y, NULL, workspace, NULL), LS_ERR_INTERNAL, "3007");
    fake.make_fail(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_forward),
                                        cmocka_unit_test(test_backward),
                                        cmocka_unit_test(test_failure) };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
