/* Decoding token by token, or several at a time, gives the scores of the whole text at once; several
 * texts, again after a reset, and mistakes. */
#include "trainer/helper_single.h"

#include <math.h>
#include <unistd.h>

#include <lockstep/op.h>

enum { VOCABULARY = 11, WIDTH = 12, CONTEXT = 83, TEXTS = 3 };

/* --- data: texts as windows of tokens and of those behind them --- */

static int32_t token_of(int64_t text, int64_t t)
{
    return (int32_t)((text * 7 + t * t * 3 + t) % VOCABULARY);
}

static int64_t count_texts(void *self)
{
    (void)self;
    return TEXTS;
}

static ls_status read_text(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    (void)self, (void)rng;
    for (int t = 0; t < CONTEXT; t++) {
        ((int32_t *)out[0])[t] = token_of(i, t);
        ((int32_t *)out[1])[t] = token_of(i, t + 1);
    }
    return LS_OK;
}

static ls_dataset *texts(void)
{
    static const ls_dataset_ops ops = { .length = count_texts, .read = read_text };
    static const ls_field fields[] = { { "tokens", LS_DTYPE_I32, 1, { CONTEXT } },
                                       { "targets", LS_DTYPE_I32, 1, { CONTEXT } } };
    ls_dataset *out;
    assert_ok(ls_dataset_create(&ops, NULL, fields, 2, &out));
    return out;
}

/* --- models --- */

typedef struct variant {
    ls_attention_options attention;
    bool rotary, learned_positions, full;
    const char *output;
} variant;

static ls_tensor *rows(ls_tensor *x, const char *name, int64_t features)
{
    return ls_linear_with(x, name, &(ls_linear_options) { .features = features, .rows = true });
}

static ls_tensor *block(ls_graph *g, ls_tensor *x, const variant *v, int i)
{
    int64_t kv_heads = v->attention.kv_heads ? v->attention.kv_heads : v->attention.heads;
    int64_t each = WIDTH / v->attention.heads;
    ls_tensor *qkv = rows(ls_layer_norm(x, ls_name(g, "norm%d", i)), ls_name(g, "qkv%d", i),
                          (v->attention.heads + 2 * kv_heads) * each);
    if (v->rotary) qkv = ls_rotary(qkv, &v->attention, 0);
    ls_tensor *y = ls_attention(qkv, ls_name(g, "block%d", i), &v->attention);
    x = ls_add(x, rows(y, ls_name(g, "out%d", i), WIDTH));
    y = ls_gelu(rows(x, ls_name(g, "up%d", i), 2 * WIDTH));
    return ls_add(x, rows(y, ls_name(g, "down%d", i), WIDTH));
}

static void decoder_only(ls_graph *g, void *user)
{
    const variant *v = user;
    ls_tensor *x = ls_embedding(ls_input(g, "tokens"), "token", VOCABULARY, WIDTH, 1);
    if (v->learned_positions) x = ls_position_embedding(x, "position", CONTEXT, 1);
    for (int i = 0; i < 2; i++) x = block(g, x, v, i);
    ls_tensor *scores = rows(ls_layer_norm(x, "norm"), "head", VOCABULARY);
    ls_output(g, v->output ? v->output : "scores", scores);
    ls_minimize(g, ls_cross_entropy(scores, ls_input(g, "targets")), NULL);
}

static ls_model *model_of(const variant *v, ls_dataset *data)
{
    ls_model *model;
    static int runs;
    char name[16];
    snprintf(name, sizeof name, "run%d", runs++);
    assert_ok(ls_model_create(world, decoder_only, (void *)(uintptr_t)v, &model));
    ls_run_options options = {
        .runs_dir = folder, .name = name, .batch_size = TEXTS, .max_steps = 2, .seed = 5
    };
    assert_ok(ls_fit(model, data, NULL, &options, NULL));
    return model;
}

/* --- the whole text at once --- */

typedef struct expected {
    float scores[TEXTS][CONTEXT][VOCABULARY];
} expected;

static void keep(void *user, int64_t index, const ls_outputs *outputs)
{
    const ls_array *scores = ls_outputs_get(outputs, "scores");
    assert_int_equal(ls_array_count(scores), CONTEXT * VOCABULARY);
    memcpy(((expected *)user)->scores[index], scores->data, sizeof(float) * CONTEXT * VOCABULARY);
}

static void compare(const float *scores, const float *wanted, int64_t text, int64_t t)
{
    for (int k = 0; k < VOCABULARY; k++)
        if (!(fabsf(scores[k] - wanted[k]) <= 1e-5f * (1 + fabsf(wanted[k]))))
            fail_msg("text %lld, token %lld: score %d is %.8g, all at once %.8g", (long long)text,
                     (long long)t, k, (double)scores[k], (double)wanted[k]);
}

static void step_through(ls_decoder *decoder, const expected *all, int64_t first, int64_t batch,
                         int64_t length)
{
    for (int64_t t = 0; t < length; t++) {
        int32_t tokens[TEXTS];
        const float *scores;
        for (int64_t i = 0; i < batch; i++) tokens[i] = token_of(first + i, t);
        assert_int_equal(ls_decoder_position(decoder), t);
        assert_ok(ls_decoder_step(decoder, tokens, &scores));
        for (int64_t i = 0; i < batch; i++)
            compare(scores + i * VOCABULARY, all->scores[first + i][t], first + i, t);
    }
}

/* The same in pieces of the given lengths. */
static void read_through(ls_decoder *decoder, const expected *all, int64_t batch,
                         const int64_t *lengths)
{
    for (int64_t t = 0; *lengths > 0; t += *lengths++) {
        int32_t tokens[TEXTS * CONTEXT];
        const float *scores;
        for (int64_t i = 0; i < batch * *lengths; i++)
            tokens[i] = token_of(i / *lengths, t + i % *lengths);
        assert_ok(ls_decoder_read(decoder, tokens, *lengths, &scores));
        assert_int_equal(ls_decoder_position(decoder), t + *lengths);
        for (int64_t i = 0; i < batch; i++)
            compare(scores + i * VOCABULARY, all->scores[i][t + *lengths - 1], i, t);
    }
}

static void test_same_scores(void **state)
{
    (void)state;
    static const variant variants[] = {
        { .attention = { .heads = 3 }, .learned_positions = true },
        { .attention = { .heads = 2, .kv_heads = 1 }, .rotary = true },
        { .attention = { .heads = 1, .scale = 0.7 }, .rotary = true, .learned_positions = true },
        { .attention = { .heads = 12, .kv_heads = 4 } },
    };
    ls_dataset *data = texts();
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        expected all;
        ls_decoder *one, *more;
        ls_model *model = model_of(&variants[v], data);
        assert_ok(ls_predict(model, data, keep, &all));
        assert_ok(ls_decoder_create(model, 1, CONTEXT, &one));
        assert_ok(ls_decoder_create(model, TEXTS, CONTEXT + 9, &more));
        assert_int_equal(ls_decoder_vocabulary(more), VOCABULARY);
        step_through(one, &all, 0, 1, CONTEXT);
        step_through(more, &all, 0, TEXTS, CONTEXT);
        ls_decoder_reset(one);
        step_through(one, &all, 1, 1, 5);
        ls_decoder_reset(one);
        step_through(one, &all, 2, 1, CONTEXT);
        ls_decoder_reset(one);
        read_through(one, &all, 1, (const int64_t[]) { CONTEXT, 0 });
        ls_decoder_reset(more);
        read_through(more, &all, TEXTS, (const int64_t[]) { 3, 64, 1, 15, 0 });
        ls_decoder_destroy(one);
        ls_decoder_destroy(more);
        ls_model_destroy(model);
    }
    ls_dataset_destroy(data);
}

static void test_two_decoders(void **state)
{
    (void)state;
    static const variant v = { .attention = { .heads = 2 }, .rotary = true };
    ls_dataset *data = texts();
    ls_model *model = model_of(&v, data);
    expected all;
    ls_decoder *decoders[2];
    assert_ok(ls_predict(model, data, keep, &all));
    for (int i = 0; i < 2; i++) assert_ok(ls_decoder_create(model, 1, CONTEXT, &decoders[i]));
    for (int64_t t = 0; t < CONTEXT; t++)
        for (int64_t i = 0; i < 2; i++) { /* in turn: their states are their own */
            int32_t token = token_of(i, t);
            const float *scores;
            assert_ok(ls_decoder_step(decoders[i], &token, &scores));
            compare(scores, all.scores[i][t], i, t);
        }
    for (int i = 0; i < 2; i++) ls_decoder_destroy(decoders[i]);
    ls_model_destroy(model);
    ls_dataset_destroy(data);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const variant v = { .attention = { .heads = 2 }, .rotary = true };
    static const variant short_positions = { .attention = { .heads = 2 },
                                             .learned_positions = true };
    static const variant full = { .attention = { .heads = 2, .full = true } };
    static const variant mute = { .attention = { .heads = 2 }, .output = "answers" };
    ls_dataset *data = texts();
    ls_decoder *decoder;
    ls_model *model;
    const float *scores;
    assert_ok(ls_model_create(world, decoder_only, (void *)(uintptr_t)&v, &model));
    assert_fails(ls_decoder_create(model, 1, 4, &decoder), LS_ERR_ARG, "no weights yet");
    assert_null(decoder);
    assert_fails(ls_decoder_create(model, 0, 4, &decoder), LS_ERR_ARG, "at least one text");
    assert_fails(ls_decoder_create(model, 1, 0, &decoder), LS_ERR_ARG, "at least one token");
    ls_model_destroy(model);

    model = model_of(&v, data);
    assert_ok(ls_decoder_create(model, 1, 4, &decoder));
    int32_t token = VOCABULARY;
    assert_fails(ls_decoder_step(decoder, &token, &scores), LS_ERR_DATA, "11");
    assert_int_equal(ls_decoder_position(decoder), 0);
    for (token = 0; token < 4; token++) assert_ok(ls_decoder_step(decoder, &token, &scores));
    assert_fails(ls_decoder_step(decoder, &token, &scores), LS_ERR_ARG, "4 tokens");
    assert_null(scores);
    ls_decoder_destroy(decoder);
    assert_ok(ls_decoder_create(model, 1, 12, &decoder));
    int32_t many[12] = { 1, 2, 3, 4, 5, 6, 7, 8, VOCABULARY };
    assert_fails(ls_decoder_read(decoder, many, 12, &scores), LS_ERR_DATA, "11");
    assert_null(scores);
    assert_int_equal(ls_decoder_position(decoder), 0); /* nor do the eight before it count */
    assert_fails(ls_decoder_read(decoder, many, 13, &scores), LS_ERR_ARG, "12 tokens");
    assert_fails(ls_decoder_read(decoder, many, 0, &scores), LS_ERR_ARG, "0 more tokens");
    ls_decoder_destroy(decoder);
    ls_model_destroy(model);

    model = model_of(&short_positions, data);
    assert_ok(ls_decoder_create(model, 1, CONTEXT + 1, &decoder));
    for (token = 0; ls_decoder_position(decoder) < CONTEXT; token = (token + 1) % VOCABULARY)
        assert_ok(ls_decoder_step(decoder, &token, &scores));
    assert_fails(ls_decoder_step(decoder, &token, &scores), LS_ERR_DATA, "position 83");
    assert_int_equal(ls_decoder_position(decoder), CONTEXT);
    ls_decoder_destroy(decoder);
    ls_model_destroy(model);

    model = model_of(&full, data);
    assert_fails(ls_decoder_create(model, 1, 4, &decoder), LS_ERR_UNSUPPORTED, "full");
    ls_model_destroy(model);
    model = model_of(&mute, data);
    assert_fails(ls_decoder_create(model, 1, 4, &decoder), LS_ERR_ARG, "\"scores\"");
    ls_model_destroy(model);
    ls_dataset_destroy(data);
    ls_decoder_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_scores),
                                        cmocka_unit_test(test_two_decoders),
                                        cmocka_unit_test(test_mistakes) };
    return cmocka_run_group_tests(tests, begin, end);
}
