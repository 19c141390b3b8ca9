/* Shared memory of the ranks on one machine: one anonymous file (memfd) that grows on demand, and
 * its mappings.
 *
 * The file begins with a control area; the rest is handed out by rank 0's process, which tells the
 * others where (allocation is collective), so that no lock lies in memory that a dying rank could
 * leave taken. In tests ranks are threads and share one ls__shm, so that each offset is
 * mapped once per process and a data race is seen as one. */
#ifndef LS_COMM_SHM_H
#define LS_COMM_SHM_H

#include <lockstep/base.h>
#include <lockstep/comm.h>

typedef struct ls__shm ls__shm;

/* A new file for size ranks; its descriptor can be inherited or sent. */
ls_status ls__shm_create(int size, ls__shm **out);
/* From a descriptor (taken over). LS_ERR_PEER when it is not such a file or for another size. */
ls_status ls__shm_attach(int fd, int size, ls__shm **out);
int ls__shm_fd(const ls__shm *shm);
void ls__shm_destroy(ls__shm *shm);

/* Ends every wait of every rank with LS_ERR_PEER. Safe in a signal handler and from any process
 * that has the file. The first call's rank (or -1: the supervisor) is kept. */
void ls__shm_poison(ls__shm *shm, int rank);
bool ls__shm_poisoned(const ls__shm *shm, int *rank);
/* The number of the signal that asked for a stop; the first one is kept. */
void ls__shm_request_stop(ls__shm *shm, int signal);
int ls__shm_stop_request(const ls__shm *shm);

typedef struct ls__comm_shm_options {
    int rank, size;
    int timeout_ms;      /* 0 = 300000; LS_NONE = none */
    bool oversubscribed; /* more runnable threads than CPUs: waits sleep at once instead of spinning
                          */
    size_t arena; /* bytes of each of a rank's four slots through which private buffers pass; 0 =
                     256 KiB; tests use tiny ones; the same on every rank */
    const int *names; /* (size) of a node's ranks, what they are called in the job (borrowed); then
                         one rank too has its place in shm. NULL = this is the job */
} ls__comm_shm_options;

/* [all] Borrows shm; at most 64 communicators over one, one after the other included. For size 1 shm
 * may be NULL: memory is private. Destroyed by ls__comm_destroy, not collective. */
ls_status ls__comm_shm_create(ls__shm *shm, const ls__comm_shm_options *options, ls_comm **out);
void ls__comm_destroy(ls_comm *comm);

#endif
