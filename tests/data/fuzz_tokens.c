/* Any bytes as a file of tokens: an error or tokens that lie within them. */
#include "fuzzing.h"

#include <stdlib.h>

#include "data/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    ls__tokens tokens;
    if (ls__tokens_parse(data, nbytes, "fuzz", &tokens) != LS_OK) return 0;
    if (tokens.values + tokens.count * tokens.stored->size != data + nbytes) abort();
    int32_t last = 0;
    if (tokens.count) tokens.stored->convert(&last, data + nbytes - tokens.stored->size, 1);
    return 0;
}
