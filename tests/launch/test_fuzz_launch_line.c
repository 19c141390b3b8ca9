/* Mutated words of the launcher's command line. */
#include "testing.h"

#include "launch/fuzz_launch_line.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

static void mutated_words(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "ikill:rank=1@10s,stop:rank=0@500ms,term:rank=3@1min",
        "t3",
        "t0:3,1:1,2:0,3:2",
        "r0:1,3:3",
        "l0,1,3",
        "pNNODES=1:1\nNPROC_PER_NODE=gpu\nMASTER_PORT=29500\nRDZV_BACKEND=c10d\nTEE=0:3",
        "w--nproc_per_node=2\n-m\n--tee\n3\n--max-restarts=1\n--\nmodule\n--epochs\n3",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        fuzz_seed(seeds[i], strlen(seeds[i]), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutated_words) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
