/* The cut of an evaluation into chunks: of a fixed size, so that the sums of a chunk do not
 * depend on who computes it; dealt to ranks in order, so that a rank reads on. */
#include "run/chunks.h"

ls__chunks ls__chunks_of(int64_t length, int rank, int world_size)
{
    ls__chunks c = { .length = length, .size = LS__EVALUATION_CHUNK };
    c.count = (length + c.size - 1) / c.size;
    c.first = c.count * rank / world_size;
    c.end = c.count * (rank + 1) / world_size;
    return c;
}

int64_t ls__chunk_samples(const ls__chunks *chunks, int64_t chunk)
{
    int64_t rest = chunks->length - chunk * chunks->size;
    return rest < chunks->size ? rest : chunks->size;
}

bool ls__chunks_plan(void *user, int64_t k, int64_t *begin, int64_t *count)
{
    const ls__chunks *chunks = user;
    int64_t chunk = chunks->first + k;
    if (chunk >= chunks->end) return false;
    *begin = chunk * chunks->size;
    *count = ls__chunk_samples(chunks, chunk);
    return true;
}
