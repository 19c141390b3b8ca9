/* A loop over chunks, run by however many threads somebody else keeps: the backend's OpenMP pool,
 * or the caller alone. Rooms that have work to divide take one of these as an option, so that none
 * needs a pool of its own. Chunk boundaries never depend on the thread count. */
#ifndef LS_BASE_PARALLEL_H
#define LS_BASE_PARALLEL_H

#include <stdint.h>

typedef void ls__chunk_fn(void *context, int64_t chunk);
typedef void ls__parallel_fn(int64_t nchunks, ls__chunk_fn *fn, void *context);

void ls__parallel_serial(int64_t nchunks, ls__chunk_fn *fn, void *context);

#endif
