/* Mutated IDX files through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_idx.c"
#include "helper_data_files.h"

int main(void)
{
    uint8_t seed[4096];
    const uint8_t types[] = { 0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E };
    for (size_t i = 0; i < sizeof types; i++) {
        fuzz_seed(seed, make_idx(seed, types[i], 3, (const uint32_t[]) { 2, 3, 3 }), 3000);
        fuzz_seed(seed, make_idx(seed, types[i], 1, (const uint32_t[]) { 9 }), 3000);
    }
    size_t n = make_idx(seed, 0x08, 3, (const uint32_t[]) { 4, 8, 8 });
    FILE *f = fopen(write_gzip("seed.gz", seed, n), "rb");
    if (!f) return 1;
    n = fread(seed, 1, sizeof seed, f);
    fclose(f);
    fuzz_seed(seed, n, 20000);
    return 0;
}
