/* How collectives move their bytes; the public functions are in comm_api.c. */
#ifndef LS_COMM_COLLECTIVE_H
#define LS_COMM_COLLECTIVE_H

#include "comm/comm_internal.h"

/* A valid call is begun (published, never blocks for long) and later finished; only the oldest
 * unfinished call may be begun. */
ls_status ls__collective_begin(ls_comm *comm, const ls__call *call);
ls_status ls__collective_finish(ls_comm *comm, const ls__call *call);

/* Through the arena, for buffers that peers cannot read. _prime copies the first chunk of call seq
 * into its slot; _run does the rest when the call is met and everybody's slot is primed. */
void ls__pipeline_prime(ls_comm *comm, const ls__call *call, uint64_t seq);
ls_status ls__pipeline_run(ls_comm *comm, const ls__call *call);

/* Rank r's part of count elements, in whole cache lines. */
typedef struct ls__part {
    int64_t begin, count;
} ls__part;
ls__part ls__part_of(int64_t count, size_t element, int r, int size);

/* Slot of rank r for the k-th chunk of the call numbered seq. */
static inline unsigned char *ls__slot(const ls_comm *comm, int r, uint64_t seq, int64_t k)
{
    size_t index = (size_t)(((seq & 1) + (uint64_t)k) % LS__SLOTS);
    return comm->slots + ((size_t)r * LS__SLOTS + index) * comm->arena;
}
/* Until no peer reads this rank's slots of an earlier pipeline any more. */
ls_status ls__slots_settle(ls_comm *comm);

#endif
