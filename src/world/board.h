/* The board: one cache line of shared memory per rank on which it notes how far it is, so that the
 * report of a killed rank knows the step. A note costs one store; no message.
 *
 *     line r (64 bytes): | i64 step, -1 = none yet | unused |
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

#endif
