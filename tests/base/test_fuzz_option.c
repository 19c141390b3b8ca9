/* Mutated command lines. */
#include "testing.h"

#include "base/fuzz_option.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

static void mutated_command_lines(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "--batch-size\n64\n--lr=0.1\n--json\n--save-every\n0.5epoch\nruns/x",
        "--optimizer\nadamw\n--timeout=5min\n--grace-period\nnone\n--width\n-3\n--no-json",
        "--keep-best=all\n--gradient-clip-val\n0\n--\n--data\n--seed=18446744073709551615",
        "--max_epochs\n3\n-h\n--early-stop=none\n--log-every=1e3s\n--min-delta=1e-3",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        fuzz_seed(seeds[i], strlen(seeds[i]), 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutated_command_lines) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
