/* prog_sample_order SEED LENGTH COUNT: the samples of a run in their order, for the script that lets
 * PyTorch train on the same ones. */
#include <stdio.h>
#include <stdlib.h>

#include "data/loader.h"

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    int64_t length = atoll(argv[2]), count = atoll(argv[3]);
    for (int64_t i = 0; i < count; i++)
        printf("%lld\n", (long long)ls__sampler_index(seed, length, i));
    return 0;
}
