/* The sets of variables that launchers set. A set counts when it is complete: LS_OK with out->by set.
 * Not complete: LS_OK, out->by stays LS__STARTED_ALONE. Contradictions: LS_ERR_CONFIG. */
#ifndef LS_WORLD_ENVIRONMENT_SETS_H
#define LS_WORLD_ENVIRONMENT_SETS_H

#include "world/environment.h"

enum { LS__RANKS_MAX = 1 << 20 };

/* torchrun, or five variables by hand: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Names
 * an incomplete set in the log when explained is false. */
ls_status ls__environment_torch(bool explained, ls__place *out);
/* Open MPI, MPICH and Intel MPI (Hydra), Cray's PALS. */
ls_status ls__environment_mpi(ls__place *out);
/* srun, one task per device. sbatch alone is no rank. */
ls_status ls__environment_slurm(ls__place *out);

/* The value of a variable; NULL when it is not set or empty. */
const char *ls__variable_get(const char *name);
/* A whole number in [low, high]. */
ls_status ls__variable_number(const char *name, int low, int high, int *out);
/* Rank, sizes and local rank fit each other; names: of the four variables, for the text. */
typedef struct ls__place_names {
    const char *rank, *size, *local_rank, *local_size;
} ls__place_names;
ls_status ls__place_check(const ls__place *place, const ls__place_names *names);
/* The store's address from MASTER_ADDR and MASTER_PORT when both are set and ranks are elsewhere. */
ls_status ls__place_master(ls__place *place);

#endif
