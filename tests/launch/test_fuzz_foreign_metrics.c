/* Mutated lines of metrics. */
#include "testing.h"

#include "launch/fuzz_foreign_metrics.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

static void mutated_metrics(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"step\": 10, \"loss\": 0.5, \"val/accuracy\": 0.9, \"lr\": null}\r\n"
        "{\"step\": 11, \"epoch\": 1.5, \"time\": 3, \"val\": {\"loss\": 1e300, \"a\": [1]}}\n"
        "{\"step\": -1}\n\n{\"step\": 9223372036854775807, \"x\": 1}\n{\"step\"";
    fuzz_seed(lines, sizeof lines - 1, 2000);
}

/* A line longer than any: it is dropped, and the next one is read. */
static void a_line_without_an_end(void **state)
{
    (void)state;
    size_t n = 300000;
    uint8_t *data = malloc(n);
    assert_non_null(data);
    memset(data, '{', n);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutated_metrics),
                                        cmocka_unit_test(a_line_without_an_end) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
