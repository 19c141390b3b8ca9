/* prog_cpu_attention_bits THREADS: checksums of the gradients and results of a transformer's block,
 * one line for each shape, for comparison between numbers of threads. Batches of one tile, where
 * heads are tasks, and of many. */
#include "compare.h"
#include "testing.h"

#include <lockstep/nn.h>

typedef struct block_case {
    int64_t batch, tokens, heads, kv_heads, width;
} block_case;

static ls_tensor *rows(ls_tensor *x, const char *name, int64_t features)
{
    return ls_linear_with(x, name, &(ls_linear_options) { .features = features, .rows = true });
}

static void block(ls_graph *g, void *user)
{
    const block_case *c = user;
    ls_attention_options o = { .heads = c->heads, .kv_heads = c->kv_heads };
    ls_tensor *x = rows(ls_input(g, "x"), "in", 24);
    ls_tensor *qkv = rows(x, "qkv", (c->heads + 2 * c->kv_heads) * c->width);
    ls_tensor *y = ls_attention(ls_rotary(qkv, &o, 0), "attention", &o);
    x = ls_add(x, rows(y, "out", 24));
    ls_minimize(g, ls_cross_entropy(ls_softmax(rows(x, "head", 10)), ls_input(g, "label")), NULL);
}

int main(int argc, char **argv)
{
    static const block_case cases[] = {
        { 1, 200, 6, 2, 34 }, { 1, 5, 3, 3, 2 }, { 67, 33, 4, 4, 16 }, { 13, 130, 4, 1, 64 }
    };
    compare_backend(argc > 1 ? atoi(argv[1]) : 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_field fields[] = { { "x", LS_DTYPE_F32, 2, { cases[i].tokens, 7 } },
                                    { "label", LS_DTYPE_U8, 1, { cases[i].tokens } } };
        compare_options o = { .step = block,
                              .user = (void *)(uintptr_t)&cases[i],
                              .batch = cases[i].batch,
                              .fields = fields,
                              .nfields = 2,
                              .input_gradients = true };
        outcome left = compare_run_backend(&o);
        printf("%016llx\n", (unsigned long long)compare_checksum(&left));
        compare_free(&left);
    }
    return 0;
}
