/* Mutated files of tokenizers through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_tokenizer.c"

#include "base/memory.h"

int main(void)
{
    static const char plain[] =
        "{\"schema\":\"lockstep.tokenizer/1\",\"kind\":\"characters\",\"characters\":[10,32,97,98,"
        "233,8364,128512]}";
    static const char merges[] = "#version: 0.2\nt h\nth e\n\xC4\xA0 t\n\xC4\xA0t he\n1 2\n";
    char path[LS_PATH_MAX], *text;
    size_t nbytes;
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/gpt2_golden/tokenizer.json", source ? source : ".");
    fuzz_seed(plain, sizeof plain - 1, 5000);
    fuzz_seed(merges, sizeof merges - 1, 3000);
    if (ls__file_read(path, 1 << 20, &text, &nbytes) != LS_OK) return 1;
    fuzz_seed(text, nbytes, 1000);
    ls__free(text);
    return 0;
}
