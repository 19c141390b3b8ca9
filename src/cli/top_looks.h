/* Where lockstep top gets its looks at ranks from. */
#ifndef LS_CLI_TOP_LOOKS_H
#define LS_CLI_TOP_LOOKS_H

#include "launch/launch_state.h"
#include "launch/rank_look.h"

typedef struct ls_cli_looks {
    int n, missing; /* ranks; and those of which nothing is known */
    int nnodes;
    ls__rank_look *ranks; /* (n) in their order */
    char (*hosts)[256];   /* (nnodes) */
} ls_cli_looks;

/* A look at all ranks of a live run. LS_ERR_CONFIG when they cannot be seen from here. gpus: room for
 * what the driver says. */
ls_status ls_cli_look(const ls__run_state *run, ls__gpus *gpus, ls_cli_looks *out);
void ls_cli_looks_free(ls_cli_looks *looks);

#endif
