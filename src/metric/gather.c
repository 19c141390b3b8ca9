/* Chunk states of all ranks, merged on every rank in chunk order.
 *
 * A rank's chunks lie together, so chunk order is rank order: each rank in turn hands its states to
 * all, piece by piece, and nobody holds more than a piece. When everything fits one piece, which is
 * the usual case (a mean's state has 16 bytes), one all-gather does. Both merge in the same order
 * and so give the same bits. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "metric/metric_internal.h"

static const int64_t PIECE = (int64_t)1 << 20; /* bytes */

typedef struct merging {
    const ls_metric *metric;
    void *merged;
    bool any;
} merging;

/* The first state is taken as it is: a merge with zero bytes need not be the identity. */
static void merge_states(merging *m, const uint8_t *states, int64_t count)
{
    size_t size = m->metric->state_size;
    for (int64_t i = 0; i < count; i++, states += size) {
        if (m->any)
            m->metric->merge(m->merged, states);
        else
            memcpy(m->merged, states, size);
        m->any = true;
    }
}

static int64_t first_chunk(int64_t nchunks, int rank, int size)
{
    return nchunks / size * rank + nchunks % size * rank / size;
}

static ls_status gather_at_once(ls_comm *comm, int64_t nchunks, const void *states, merging *m)
{
    int rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    int64_t nbytes = (int64_t)m->metric->state_size;
    int64_t each = (nchunks + size - 1) / size * nbytes; /* the most a rank has */
    int64_t mine = (first_chunk(nchunks, rank + 1, size) - first_chunk(nchunks, rank, size));
    uint8_t *all = ls__alloc((size_t)size, (size_t)each);
    if (!all) return LS_ERR_MEMORY;
    if (mine) memcpy(all + rank * each, states, (size_t)(mine * nbytes));
    ls_status status = ls_comm_all_gather(comm, all + rank * each, all, each, LS_DTYPE_U8);
    for (int r = 0; r < size && status == LS_OK; r++)
        merge_states(m, all + r * each,
                     first_chunk(nchunks, r + 1, size) - first_chunk(nchunks, r, size));
    ls__free(all);
    return status;
}

static ls_status gather_by_rank(ls_comm *comm, int64_t nchunks, const uint8_t *states, merging *m)
{
    int rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    int64_t nbytes = (int64_t)m->metric->state_size;
    int64_t at_once = PIECE / nbytes ? PIECE / nbytes : 1; /* states */
    uint8_t *piece = ls__alloc((size_t)at_once, (size_t)nbytes);
    if (!piece) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    for (int r = 0; r < size && status == LS_OK; r++) {
        int64_t count = first_chunk(nchunks, r + 1, size) - first_chunk(nchunks, r, size);
        for (int64_t i = 0; i < count && status == LS_OK; i += at_once) {
            int64_t n = count - i < at_once ? count - i : at_once;
            if (r == rank) memcpy(piece, states + i * nbytes, (size_t)(n * nbytes));
            status = ls_comm_broadcast(comm, piece, n * nbytes, LS_DTYPE_U8, r);
            if (status == LS_OK) merge_states(m, piece, n);
        }
    }
    ls__free(piece);
    return status;
}

ls_status ls__metric_gather(ls_comm *comm, const ls_metric *metric, int64_t nchunks,
                            const void *states, void *merged)
{
    LS_ASSERT(metric->state_size > 0 && nchunks >= 0);
    merging m = { .metric = metric, .merged = merged };
    memset(merged, 0, metric->state_size);
    int size = ls_comm_size(comm);
    if (size == 1) {
        merge_states(&m, states, nchunks);
        return LS_OK;
    }
    if (nchunks == 0) return LS_OK;
    int64_t most = (nchunks + size - 1) / size;
    bool small = most <= PIECE / size / (int64_t)metric->state_size;
    return small ? gather_at_once(comm, nchunks, states, &m)
                 : gather_by_rank(comm, nchunks, states, &m);
}
