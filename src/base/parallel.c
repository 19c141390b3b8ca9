/* The loop over chunks for callers that have no threads to offer. */
#include "base/parallel.h"

void ls__parallel_serial(int64_t nchunks, ls__chunk_fn *fn, void *context)
{
    for (int64_t chunk = 0; chunk < nchunks; chunk++) fn(context, chunk);
}
