/* The cut of an evaluation. */
#ifndef LS_RUN_CHUNKS_H
#define LS_RUN_CHUNKS_H

#include <lockstep/base.h>

/* Samples of a chunk, on any number of devices; recorded in run.json. */
enum { LS__EVALUATION_CHUNK = 256 };

typedef struct ls__chunks {
    int64_t length, size, count; /* samples, of a chunk, chunks */
    int64_t first, end;          /* this rank's */
} ls__chunks;
ls__chunks ls__chunks_of(int64_t length, int rank, int world_size);
int64_t ls__chunk_samples(const ls__chunks *chunks, int64_t chunk);
bool ls__chunks_plan(void *chunks, int64_t k, int64_t *begin, int64_t *count); /* for a loader */

#endif
