/* The roll of ranks on several machines: in the store that all share, a rank notes in which exchange it
 * has waited for long. Whoever loses patience finds there who has not come to it. Nothing is written
 * while all goes well. */
#ifndef LS_BACKEND_CUDA_NOTES_H
#define LS_BACKEND_CUDA_NOTES_H

#include <stdint.h>

#include "comm/link.h"

typedef struct cuda_notes {
    ls__link_store store; /* no functions: everything below does nothing */
    int rank, size;
    char name[2 * 16 + 1]; /* of the communicator */
    uint64_t written;      /* the exchange that was noted last */
} cuda_notes;

/* id: the same on every rank, and of no other communicator. */
void ls__cuda_notes_begin(cuda_notes *notes, const ls__link_store *store, int rank, int size,
                          const void *id, size_t nbytes);
/* This rank waits in its exchange number `begun`. */
void ls__cuda_notes_write(cuda_notes *notes, uint64_t begun);
/* The first rank that does not wait in it; -1 = all do, or the store does not answer. May take half a
 * second. */
int ls__cuda_notes_missing(const cuda_notes *notes, uint64_t begun);

#endif
