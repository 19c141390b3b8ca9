/* The vendor's attention is tried before it is used: on a simulated GPU with a library that stands
 * in for it (sim/fake_attention.c), which is right, or does one thing wrong. Whatever it does, the
 * bits are those of our own kernels. Shapes differ from case to case: each is tried once. */
#include "compare.h"
#include "testing.h"

#include <dlfcn.h>

#include <lockstep/nn.h>

static struct {
    void (*break_what)(const char *what);
    int (*plans)(void);
    int (*runs)(void);
} fake;

typedef struct shape {
    int64_t batch, tokens, width;
    bool full;
} shape;

static ls_tensor *rows(ls_tensor *x, const char *name, int64_t features)
{
    int64_t batch = ls_tensor_dim(x, 0), tokens = ls_tensor_dim(x, 1);
    ls_tensor *flat = ls_reshape(x, 2, (const int64_t[]) { -1, ls_tensor_dim(x, 2) });
    return ls_reshape(ls_linear(flat, name, features), 3,
                      (const int64_t[]) { batch, tokens, features });
}

static void attend(ls_graph *g, void *user)
{
    const shape *s = user;
    const ls_attention_options o = { .heads = 4, .kv_heads = 2, .full = s->full };
    ls_tensor *y = ls_attention(rows(ls_input(g, "x"), "qkv", 8 * s->width), "attention", &o);
    ls_tensor *scores = rows(y, "scores", 4);
    ls_output(g, "scores", scores);
    ls_minimize(g, ls_cross_entropy(scores, ls_input(g, "label")), NULL);
}

/* Of all bits that a step leaves; plans and runs: what the library was asked for meanwhile. */
static uint64_t step(const shape *s, compare_options o, int *plans, int *runs)
{
    const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { s->tokens, 5 } },
                                { "label", LS_DTYPE_U8, 1, { s->tokens } } };
    o.step = attend;
    o.user = (void *)(uintptr_t)s;
    o.batch = s->batch;
    o.fields = fields;
    o.nfields = 2;
    o.classes = 4;
    *plans = fake.plans();
    *runs = fake.runs();
    outcome left = compare_run_backend(&o);
    uint64_t bits = compare_checksum(&left);
    compare_free(&left);
    *plans = fake.plans() - *plans;
    *runs = fake.runs() - *runs;
    return bits;
}

/* runs: of the library, both passes together, trials included; again: when the shape comes again. A
 * step is run twice. */
static void check(const char *what, const shape *s, int wanted_runs, int wanted_again)
{
    const compare_options o = { .precision = LS_PRECISION_BF16_MIXED, .loose = true };
    int plans, runs;
    setenv("LOCKSTEP_CUDNN_ATTENTION", "0", 1);
    uint64_t own = step(s, o, &plans, &runs);
    assert_int_equal(plans + runs, 0);
    unsetenv("LOCKSTEP_CUDNN_ATTENTION");
    fake.break_what(what);
    if (strcmp(what, "memory") == 0) setenv("LOCKSTEP_SIM_FAIL", "malloc:3", 1);
    uint64_t bits = step(s, o, &plans, &runs);
    unsetenv("LOCKSTEP_SIM_FAIL");
    fake.break_what("");
    if (bits != own) fail_msg("\"%s\": other bits than by our own kernels", what);
    if (plans != 2 || runs != wanted_runs)
        fail_msg("\"%s\": %d plans and %d runs, not 2 and %d", what, plans, runs, wanted_runs);
    bits = step(s, o, &plans, &runs);
    if (bits != own) fail_msg("\"%s\": other bits when it comes again", what);
    if (plans != 0 || runs != wanted_again)
        fail_msg("\"%s\" again: %d plans and %d runs, not 0 and %d", what, plans, runs,
                 wanted_again);
}

static void test_chosen(void **state)
{
    (void)state;
    static const shape shapes[] = { { 5, 70, 16, false },
                                    { 1, 9, 64, true },
                                    { 2, 65, 128, false } };
    for (int i = 0; i < 3; i++) check("", &shapes[i], 2 + 4, 4);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int runs, again;
    } cases[] = {
        { "y", 2 + 2, 2 }, /* one pass is refused, the other chosen */
        { "stats", 2 + 2, 2 }, { "nan", 2 + 2, 2 },    { "dq", 2 + 2, 2 }, { "dk", 2 + 2, 2 },
        { "dv", 2 + 2, 2 },    { "memory", 1 + 2, 2 }, /* there is none to try the forward pass */
        { "plan", 0, 0 },                              /* there is none */
        { "run", 2, 0 },                               /* fails at once */
        { "later", 2 + 2, 0 },                         /* fails when it is trained with */
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const shape s = { 4, 20 + i, 16, i % 2 };
        check(cases[i].what, &s, cases[i].runs, cases[i].again);
    }
}

static void test_never_asked(void **state)
{
    (void)state;
    static const shape s = { 3, 40, 16, false }, odd = { 3, 40, 12, false },
                       wide = { 1, 9, 136, false };
    static const struct {
        const shape *shape;
        compare_options options;
    } cases[] = { { &s, { .precision = LS_PRECISION_BF16_MIXED } },
                  { &s, { .precision = LS_PRECISION_32, .loose = true } },
                  { &s, { .precision = LS_PRECISION_TF32, .loose = true } },
                  { &odd, { .precision = LS_PRECISION_BF16_MIXED, .loose = true } },
                  { &wide, { .precision = LS_PRECISION_BF16_MIXED, .loose = true } } };
    int plans, runs;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        step(cases[i].shape, cases[i].options, &plans, &runs);
        if (plans || runs) fail_msg("case %d: %d plans, %d runs", i, plans, runs);
    }
}

static int find_fake(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/lockstep_sim.so", getenv("LOCKSTEP_PLUGIN_DIR"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!plugin) fail_msg("%s was not loaded", path);
    *(void **)&fake.break_what = dlsym(plugin, "fake_attention_break");
    *(void **)&fake.plans = dlsym(plugin, "fake_attention_plans");
    *(void **)&fake.runs = dlsym(plugin, "fake_attention_runs");
    assert_true(fake.break_what && fake.plans && fake.runs);
    return 0;
}

int main(void)
{
    char folder[4096];
    const char *build = getenv("LS_BINARY_DIR");
    snprintf(folder, sizeof folder, "%s/tests/fake/attention", build ? build : "..");
    setenv("LOCKSTEP_PLUGIN_DIR", folder, 1);
    setenv("LS_TEST_BACKEND", "sim", 1);
    compare_backend(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_never_asked),
    };
    return cmocka_run_group_tests(tests, find_fake, NULL);
}
