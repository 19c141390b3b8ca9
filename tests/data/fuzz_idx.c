/* Any bytes as an IDX file, plain or compressed: an error or an array that lies within them. */
#include "fuzzing.h"

#include <stdlib.h>

#include "data/idx.h"

static void touch(const uint8_t *bytes, size_t nbytes, const ls__idx *idx)
{
    int64_t count = 1;
    double last;
    for (int i = 0; i < idx->rank; i++) count *= idx->shape[i];
    if (idx->values + count * idx->stored->size != bytes + nbytes) abort();
    idx->stored->convert(&last, bytes + nbytes - idx->stored->size, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    ls__idx idx;
    ls__data_file unpacked;
    if (ls__idx_parse(data, nbytes, "fuzz", &idx) == LS_OK) touch(data, nbytes, &idx);
    if (!ls__gzip_is(data, nbytes) || ls__idx_unpack(data, nbytes, "fuzz", &unpacked) != LS_OK)
        return 0;
    if (ls__idx_parse(unpacked.bytes, unpacked.nbytes, "fuzz", &idx) != LS_OK) abort();
    touch(unpacked.bytes, unpacked.nbytes, &idx);
    ls__data_file_close(&unpacked);
    return 0;
}
