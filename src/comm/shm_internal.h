/* What the communicator sees of the shared file: its control area, the heap behind it, mappings.
 *
 *     0            control page: magic, size, poison, stop request, table of communicators
 *     4096         one bell of 128 bytes per rank
 *     heap_begin   whatever the heap handed out, in whole pages; sparse where not touched
 *
 * Everything in the control area is an atomic, and zero is its initial value. */
#ifndef LS_COMM_SHM_INTERNAL_H
#define LS_COMM_SHM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/shm.h"

enum {
    LS__PAGE = 4096,
    LS__COMMS_MAX = 64, /* communicators over one file, over its whole life */
    LS__LINE = 128,     /* bytes between words of different writers: two cache lines, because
                           processors fetch neighbours in pairs */
};

/* A rank that waits for rank r sleeps on r's bell; r rings it after each thing it publishes, if
 * there are sleepers. */
typedef struct ls__bell {
    _Alignas(LS__LINE) _Atomic uint32_t rings; /* the futex word */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t comms; /* communicators this rank has created: the next one's number */
} ls__bell;

typedef struct ls__shm_control {
    uint64_t magic;
    uint32_t version, size;
    _Atomic uint32_t poison; /* 0 = none, else rank + 2 */
    _Atomic uint32_t stop;   /* signal number */
    struct {
        _Atomic uint64_t offset; /* 0 = rank 0 has not made it yet; 1 = it failed to */
        _Atomic uint32_t left;   /* ranks that have destroyed it */
    } comms[LS__COMMS_MAX];
} ls__shm_control;

typedef struct ls__mapping {
    size_t offset, nbytes;
    void *base;
    int users; /* ranks of this process that mapped it */
} ls__mapping;

/* Free and used space of the file; only rank 0's process hands it out. */
typedef struct ls__heap {
    struct ls__extent {
        size_t offset, nbytes;
    } * free; /* by offset, never adjacent */
    int nfree, capacity;
    size_t end; /* of the file */
} ls__heap;

struct ls__shm {
    int fd, size;
    ls__shm_control *control;
    ls__bell *bells; /* (size) */
    size_t control_nbytes;
    pthread_mutex_t mutex; /* over what follows: in tests the ranks are threads of this process */
    ls__heap heap;
    ls__mapping *mappings;
    int nmappings, mappings_capacity;
};

/* Rank 0 only: nbytes (rounded up to pages) of the file, zeroed. Memory is taken when somebody
 * touches it; more than there is free now is refused, unless the space will be sparse. */
ls_status ls__shm_reserve(ls__shm *shm, size_t nbytes, bool sparse, size_t *offset);
/* Rank 0 only: gives the space and its memory back; nobody uses it any more. */
void ls__shm_release(ls__shm *shm, size_t offset, size_t nbytes);
/* Gives the memory back and keeps the space. */
void ls__shm_punch(ls__shm *shm, size_t offset, size_t nbytes);

ls_status ls__shm_map(ls__shm *shm, size_t offset, size_t nbytes, void **out);
void ls__shm_unmap(ls__shm *shm, void *base);

/* Takes the memory now, on this process's NUMA node, so that no fault falls into a training step. */
ls_status ls__shm_populate(void *base, size_t nbytes);
/* Fills only this process's page table, for pages that their owners have taken. */
void ls__shm_prefault(void *base, size_t nbytes);

void ls__bell_ring(ls__bell *bell); /* wakes whoever sleeps on it */
/* Until rung after `seen` was read from rings, or about timeout_ns. */
void ls__bell_sleep(ls__bell *bell, uint32_t seen, int64_t timeout_ns);

size_t ls__round_up(size_t value, size_t unit);

#endif
