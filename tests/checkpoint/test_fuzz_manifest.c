/* Mutated manifests through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_manifest.c"

int main(void)
{
    ls__piece pieces[] = { { .nbytes = 4096, .xxh3 = 1 },
                           { .offset = 4096, .nbytes = 100, .xxh3 = 0xFEDCBA9876543210u } };
    ls__manifest_file files[] = { { .name = (char *)"model.safetensors",
                                    .nbytes = 4196,
                                    .xxh3 = ls__pieces_sum(pieces, 2),
                                    .pieces = pieces,
                                    .npieces = 2 },
                                  { .name = (char *)"trainer.json", .nbytes = 7, .xxh3 = 5 } };
    ls__manifest m = {
        .step = 500, .metric = 0.5, .monitor = (char *)"val/loss", .files = files, .nfiles = 2
    };
    char *text;
    if (ls__manifest_text(&m, &text) != LS_OK) return 1;
    fuzz_seed(text, strlen(text), 50000);
    free(text);
    return 0;
}
