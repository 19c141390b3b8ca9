/* Attention, rotary and softmax on the CPU: odd shapes, values and gradients against the reference
 * executor; memory that grows with the tokens and not with their square. */
#include "compare.h"
#include "testing.h"

#include <math.h>

#include <lockstep/nn.h>

#include "graph/ops.h"

typedef struct attention_case {
    ls_attention_options options;
    int64_t width;
    bool rotary;
    double theta;
} attention_case;

/* (B,T,n): every token's numbers through one matrix, so that gradients pass. */
static ls_tensor *rows(ls_tensor *x, const char *name, int64_t features)
{
    int64_t batch = ls_tensor_dim(x, 0), tokens = ls_tensor_dim(x, 1);
    ls_tensor *flat = ls_reshape(x, 2, (const int64_t[]) { -1, ls_tensor_dim(x, 2) });
    return ls_reshape(ls_linear(flat, name, features), 3,
                      (const int64_t[]) { batch, tokens, features });
}

static void attend(ls_graph *g, void *user)
{
    const attention_case *c = user;
    int64_t kv_heads = c->options.kv_heads ? c->options.kv_heads : c->options.heads;
    ls_tensor *qkv = rows(ls_input(g, "x"), "qkv", (c->options.heads + 2 * kv_heads) * c->width);
    if (c->rotary) qkv = ls_rotary(qkv, &c->options, c->theta);
    ls_tensor *y = ls_attention(qkv, "attention", &c->options);
    ls_output(g, "y", y);
    ls_minimize(g, ls_cross_entropy(rows(y, "scores", 4), ls_input(g, "label")), NULL);
}

static compare_options options_for(ls_step_fn *step, const void *user, ls_field fields[2],
                                   int64_t batch, int64_t tokens, int64_t width)
{
    fields[0] = (ls_field) { "x", LS_DTYPE_F32, 2, { tokens, width } };
    fields[1] = (ls_field) { "label", LS_DTYPE_U8, 1, { tokens } };
    return (compare_options) { .step = step,
                               .user = (void *)user,
                               .batch = batch,
                               .fields = fields,
                               .nfields = 2,
                               .classes = 4,
                               .input_gradients = true,
                               .misaligned = batch == 3,
                               .tolerance = 5e-5 };
}

static void check(const attention_case *c, int64_t batch, int64_t tokens)
{
    ls_field fields[2];
    compare_options o = options_for(attend, c, fields, batch, tokens, 5);
    compare_with_reference(&o);
    o.stage = LS_STAGE_PREDICT;
    compare_with_reference(&o);
}

static const int64_t heads[][2] = { { 1, 0 }, { 3, 3 }, { 6, 2 }, { 5, 1 } };
enum { HEADS = sizeof heads / sizeof *heads };

static void test_widths(void **state)
{
    (void)state;
    static const int64_t widths[] = { 1, 3, 16, 17, 64, 100 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int full = 0; full < 2; full++)
            for (size_t h = 0; h < HEADS; h++) {
                if (!compare_in_full() && (w + h + (size_t)full) % 2) continue;
                attention_case c = { .options = { heads[h][0], heads[h][1], full, 0 },
                                     .width = widths[w] };
                check(&c, 3, 19);
            }
}

/* More numbers than a tile has columns, several groups of them, more than a block holds. */
static void test_wide_heads(void **state)
{
    (void)state;
    static const int64_t widths[] = { 128, 130, 256, 300 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        attention_case c = { .options = { .heads = 2, .kv_heads = 1, .full = w % 2 },
                             .width = widths[w] };
        check(&c, 2, 70);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 2, 15, 16, 17, 63, 64, 65, 79, 81, 128, 150, 197 };
    for (size_t t = 0; t < sizeof lengths / sizeof *lengths; t++)
        for (int full = 0; full < 2; full++) {
            if (!compare_in_full() && lengths[t] < 63 && ((int)t + full) % 2) continue;
            attention_case c = { .options = { .heads = 2, .kv_heads = 1, .full = full },
                                 .width = 7 };
            check(&c, t % 2 ? 3 : 1, lengths[t]);
        }
}

/* Many samples: several tiles, several lanes. A GPU's block has one sample, however many there are. */
static void test_batches(void **state)
{
    (void)state;
    attention_case c = { .options = { .heads = 4, .kv_heads = 2 }, .width = 18, .rotary = true };
    check(&c, compare_on_cpu() ? 67 : 5, 21);
    check(&c, compare_on_cpu() ? 130 : 7, 3);
}

/* --- memory --- */

static size_t arena_bytes(const attention_case *c, int64_t tokens)
{
    ls_field fields[2];
    compare_options o = options_for(attend, c, fields, 1, tokens, 5);
    ls__graph_options options = { .batch = 1, .fields = fields, .nfields = 2 };
    ls__executable *e;
    ls_graph *g;
    assert_ok(ls__graph_build(o.step, o.user, &options, &g));
    assert_ok(compare_backend(1)->compile(g, &e));
    size_t nbytes = compare_memory(e);
    compare_backend(1)->destroy(e);
    ls__graph_destroy(g);
    return nbytes;
}

/* No T x T matrix: twice the tokens take at most twice the memory, and less than one such matrix. */
static void test_memory_is_linear(void **state)
{
    (void)state;
    attention_case c = { .options = { .heads = 4 }, .width = 32, .rotary = true };
    size_t before = arena_bytes(&c, 1024);
    for (int64_t tokens = 2048; tokens <= 16384; tokens *= 2) {
        size_t now = arena_bytes(&c, tokens);
        if (now > 2 * before)
            fail_msg("%lld tokens take %zu bytes, half of them %zu", (long long)tokens, now,
                     before);
        before = now;
    }
    assert_true(before < (size_t)16384 * 16384 * sizeof(float) / 8);
}

/* --- NaN: divergence must show, in the sample that has it --- */

static void broken(ls_graph *g, void *user)
{
    const attention_case *c = user;
    ls_tensor *x = ls_input(g, "x");
    float *values = calloc(2 * 19 * 24, sizeof *values);
    values[(19 + 7) * 24 + 9] = NAN; /* a key of sample 1, token 7 */
    x = ls_add(rows(x, "qkv", 24), ls_constant(g, values, 3, (const int64_t[]) { 2, 19, 24 }));
    free(values);
    ls_output(g, "y", ls_attention(x, "attention", &c->options));
}

static void test_nan(void **state)
{
    (void)state;
    attention_case c = { .options = { .heads = 2 }, .width = 4 };
    ls_field fields[2];
    compare_options o = options_for(broken, &c, fields, 2, 19, 5);
    o.stage = LS_STAGE_PREDICT;
    outcome left = compare_run_backend(&o);
    assert_int_equal(left.nresults, 2 * 19 * 8);
    for (int64_t i = 0; i < left.nresults; i++) {
        int64_t token = i / 8 % 19, head = i % 8 / 4;
        bool seen = i / 8 / 19 == 1 && token >= 7 && head == 0; /* column 9: head 0 of keys */
        if (seen && !isnan(left.results[i])) fail_msg("value %lld is no NaN", (long long)i);
        bool same_block = i / 8 / 19 == 1 && head == 0 && token < 16;
        if (!seen && !same_block && isnan(left.results[i]))
            fail_msg("value %lld is a NaN", (long long)i);
    }
    compare_free(&left);
}

/* --- finite differences of the backend's own losses --- */

static int64_t count_samples(void *self)
{
    (void)self;
    return 3;
}

static ls_status read_sample(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)self, (void)rng;
    for (int i = 0; i < 21 * 5; i++) ((float *)out[0])[i] = sinf((float)(index * 31 + i * i));
    for (int i = 0; i < 21; i++) ((uint8_t *)out[1])[i] = (uint8_t)((index + i) % 4);
    return LS_OK;
}

static void test_differences(void **state)
{
    (void)state;
    static const ls_dataset_ops ops = { .length = count_samples, .read = read_sample };
    static const attention_case cases[] = {
        { .options = { .heads = 2, .kv_heads = 1 }, .width = 6, .rotary = true },
        { .options = { .heads = 1, .full = true }, .width = 3 },
    };
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { 21, 5 } },
                                       { "label", LS_DTYPE_U8, 1, { 21 } } };
    ls_dataset *data;
    assert_ok(ls_dataset_create(&ops, NULL, fields, 2, &data));
    for (int i = 0; i < 2; i++)
        assert_ok(ls_gradient_check(attend, (void *)(uintptr_t)&cases[i], data, 1e-3));
    ls_dataset_destroy(data);
}

static void test_scale(void **state)
{
    (void)state;
    attention_case c = { .options = { .heads = 2, .scale = 3.5 }, .width = 12 };
    check(&c, 2, 33);
    c.options.scale = -0.25;
    check(&c, 2, 33);
}

static void test_rotary(void **state)
{
    (void)state;
    static const int64_t widths[] = { 2, 6, 32, 34, 64 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t h = 0; h < HEADS; h++) {
            if (!compare_in_full() && w % 2 != h % 2) continue;
            attention_case c = { .options = { .heads = heads[h][0], .kv_heads = heads[h][1] },
                                 .width = widths[w],
                                 .rotary = true,
                                 .theta = w % 2 ? 0 : 100 };
            check(&c, 2, 37);
        }
}

/* --- softmax --- */

static void normalize(ls_graph *g, void *user)
{
    float factor = *(const float *)user;
    ls_tensor *x =
        ls_scale(rows(ls_input(g, "x"), "fc", ls_tensor_dim(ls_input(g, "x"), 2)), factor, 0);
    ls_tensor *y = ls_softmax(x);
    ls_output(g, "y", y);
    ls_minimize(g, ls_cross_entropy(rows(y, "scores", 4), ls_input(g, "label")), NULL);
}

static void test_softmax(void **state)
{
    (void)state;
    static const int64_t widths[] = { 1, 2, 15, 16, 17, 100, 301 };
    static const float factors[] = { 1, -40 };
    ls_field fields[2];
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int f = 0; f < 2; f++)
            for (int64_t batch = 1; batch < 80; batch += 39) {
                compare_options o =
                    options_for(normalize, &factors[f], fields, batch, 3, widths[w]);
                o.tolerance = 2e-4; /* scores of 40 come rounded */
                compare_with_reference(&o);
                o.stage = LS_STAGE_PREDICT;
                compare_with_reference(&o);
            }
}

/* Of parameters, which no tile cuts: a matrix, and a vector that is one row. */
static void normalize_params(ls_graph *g, void *user)
{
    (void)user;
    ls_init init = { .kind = LS_INIT_NORMAL, .scale = 1 };
    ls_tensor *x = ls_reshape(ls_input(g, "x"), 2, (const int64_t[]) { -1, 9 });
    ls_tensor *in[] = { x, ls_softmax(ls_param(g, "w", &init, 2, (const int64_t[]) { 21, 9 })),
                        ls_softmax(ls_param(g, "b", &init, 1, (const int64_t[]) { 21 })) };
    ls_tensor *y = ls_apply(&ls__op_linear, NULL, 0, in, 3);
    y = ls_reshape(ls_linear(ls_scale(y, 9, 0), "fc", 4), 3,
                   (const int64_t[]) { ls_tensor_dim(ls_input(g, "x"), 0), 3, 4 });
    ls_output(g, "y", y);
    ls_minimize(g, ls_cross_entropy(y, ls_input(g, "label")), NULL);
}

static void test_softmax_of_parameters(void **state)
{
    (void)state;
    ls_field fields[2];
    for (int64_t batch = 1; batch < 80; batch += 39) {
        compare_options o = options_for(normalize_params, NULL, fields, batch, 3, 9);
        compare_with_reference(&o);
        o.stage = LS_STAGE_PREDICT;
        compare_with_reference(&o);
    }
}

int main(void)
{
    compare_backend(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_wide_heads),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_memory_is_linear),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_softmax_of_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
