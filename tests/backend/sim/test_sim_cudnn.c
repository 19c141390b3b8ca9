/* Attention described to the real cuDNN, without a GPU: every graph of operations is accepted. Plans
 * need a device, and are not asked for. Skipped where there is no libcudnn.so.9 (LD_LIBRARY_PATH
 * shows one). */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/vendor_cuda_cudnn.h"

static void describe(const attention_shape *s, bool backward)
{
    cudnn_graph *g = calloc(1, sizeof *g);
    assert_non_null(g);
    (backward ? ls__flash_backward : ls__flash_forward)(g, s);
    ls__cudnn_finish(g, NULL);
    if (g->status)
        fail_msg("%s, %lld tokens, heads of %d, %d of keys, %s: status %d at %s",
                 backward ? "backward" : "forward", (long long)s->tokens, s->width, s->kv_heads,
                 s->causal ? "causal" : "full", g->status, g->failed);
    ls__cudnn_free(g);
    free(g);
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t tokens[] = { 1, 64, 1000, 1024 };
    static const int widths[] = { 32, 64, 128 };
    for (int i = 0; i < 4 * 3 * 2 * 2; i++) {
        attention_shape s = { .batch = 2,
                              .tokens = tokens[i % 4],
                              .heads = 12,
                              .kv_heads = i / 12 % 2 ? 4 : 12,
                              .width = widths[i / 4 % 3],
                              .causal = i / 24,
                              .scale = 0.125f };
        describe(&s, false);
        describe(&s, true);
    }
}

/* What cuDNN refuses is told, and ends nothing. */
static void test_refused(void **state)
{
    (void)state;
    attention_shape s = {
        .batch = 2, .tokens = 64, .heads = 12, .kv_heads = 5, .width = 64, .scale = 0.125f
    };
    cudnn_graph *g = calloc(1, sizeof *g);
    assert_non_null(g);
    ls__flash_forward(g, &s);
    ls__cudnn_finish(g, NULL);
    assert_int_not_equal(g->status, 0);
    assert_non_null(g->failed);
    ls__cudnn_free(g);
    free(g);
}

int main(void)
{
    const char *why;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_shapes),
                                        cmocka_unit_test(test_refused) };
    if (ls__cudnn_open(&why)) return cmocka_run_group_tests(tests, NULL, NULL);
    printf("skipped: %s\n", why);
    return 77;
}
