/* Mutated metrics.jsonl files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_metrics.c"

int main(void)
{
    static const char seed[] =
        "{\"schema\":\"lockstep.metrics/1\"}\n"
        "{\"step\":50,\"epoch\":0.5,\"time\":1.5,\"train\":{\"loss\":0.5},\"val\":{\"a\":null}}\n"
        "{\"event\":\"x\",\"time\":1}\n{\"rewind\":25,\"time\":2}\n"
        "{\"step\":30,\"train\":{\"loss\":0.25}}\n";
    fuzz_seed(seed, strlen(seed), 4000);
    return 0;
}
