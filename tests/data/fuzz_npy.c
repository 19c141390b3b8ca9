/* Any bytes as a .npy file: an error or an array that lies within them. */
#include "fuzzing.h"

#include <stdlib.h>

#include "data/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    ls__npy npy;
    if (ls__npy_parse(data, nbytes, "fuzz", &npy) != LS_OK) return 0;
    int64_t count = 1;
    double last;
    for (int i = 0; i < npy.rank; i++) count *= npy.shape[i];
    if (npy.values + count * npy.stored->size != data + nbytes) abort();
    npy.stored->convert(&last, data + nbytes - npy.stored->size, 1);
    return 0;
}
