/* Mutated token files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_tokens.c"
#include "helper_data_files.h"

int main(void)
{
    static uint8_t seed[2048];
    const uint16_t plain[] = { 50256, 464, 3290, 318, 257, 3290, 13, 50256 };
    fuzz_seed(seed, make_shard(seed, LS__SHARD_GPT2, 1, 20, 20), 10000);
    fuzz_seed(seed, make_shard(seed, LS__SHARD_LLAMA3, 7, 9, 9), 10000);
    fuzz_seed(plain, sizeof plain, 10000);
    return 0;
}
