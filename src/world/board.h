/* The board: one cache line of shared memory per rank on which it notes how far it is, so that the
 * report of a killed rank knows the step, and so that others can watch. A note costs two stores and
 * a look at the clock; no message.
 *
 *     line r (64 bytes): | i64 step, -1 = none yet | i64 when, ls__now_ns() | i64 process | unused |
 */
#ifndef LS_WORLD_BOARD_H
#define LS_WORLD_BOARD_H

#include <lockstep/base.h>

typedef struct ls__board ls__board;

ls_status ls__board_create(int size, ls__board **out);
/* From a descriptor, taken over also on failure. */
ls_status ls__board_attach(int fd, int size, ls__board **out);
int ls__board_fd(const ls__board *board);
void ls__board_destroy(ls__board *board);

void ls__board_set_step(ls__board *board, int rank, int64_t step);
int64_t ls__board_step(const ls__board *board, int rank);
int64_t ls__board_last_step(const ls__board *board); /* of all ranks */
void ls__board_set_process(ls__board *board, int rank, int64_t pid);

/* --- watching from another process of this machine --- */
/* board.json in a run's folder says where the board is: for as long as this process lives. */
ls_status ls__board_publish(const ls__board *board, const char *folder);
/* The board of the job that works on the run now; LS_ERR_CONFIG: there is none here, or it is not ours
 * to look at. */
ls_status ls__board_find(const char *folder, ls__board **out);
int ls__board_size(const ls__board *board);
int64_t ls__board_process(const ls__board *board, int rank);  /* 0 = not on this machine */
int64_t ls__board_noted_ns(const ls__board *board, int rank); /* the step; 0 = never */

#endif
