/* The roll: a page of shared memory in which each rank of the machine notes how far its exchanges have
 * come, or why it gives up. NCCL knows neither who is missing nor that a peer has failed. */
#ifndef LS_BACKEND_CUDA_ROLL_H
#define LS_BACKEND_CUDA_ROLL_H

#include <stdatomic.h>

#include <lockstep/comm.h>

enum { CUDA_ROLL_TEXT = 256 };

typedef struct cuda_roll_line {           /* one rank's, written by it alone */
    _Alignas(128) _Atomic uint64_t begun; /* exchanges */
    _Atomic uint64_t taken;               /* exchanges of which everything has been received */
    _Atomic int failed;                   /* text says why */
    char text[CUDA_ROLL_TEXT];
} cuda_roll_line;

typedef struct cuda_roll {
    int rank, size;
    size_t stride, nbytes;
    char *base;
} cuda_roll;

/* [all] room: bytes of each rank beside its line. A rank on another machine, or one whose memory
 * cannot be had, is LS_ERR_UNSUPPORTED on every rank. */
ls_status ls__cuda_roll_create(ls_comm *comm, size_t room, cuda_roll *out);
void ls__cuda_roll_destroy(cuda_roll *roll);

cuda_roll_line *ls__cuda_roll_line(const cuda_roll *roll, int rank);
char *ls__cuda_roll_room(const cuda_roll *roll, int rank);
/* The first reason that is given counts. */
void ls__cuda_roll_fail(const cuda_roll *roll, const char *text);
/* A rank that has given up: LS_ERR_DEVICE in its words. */
ls_status ls__cuda_roll_check(const cuda_roll *roll);
/* The rank that has come least far; -1 = all have come equally far. */
int ls__cuda_roll_last(const cuda_roll *roll);

#endif
