/* Common knowledge outside a step: one rank's failure or finding becomes everybody's. */
#ifndef LS_RUN_SHARE_H
#define LS_RUN_SHARE_H

#include <lockstep/comm.h>

#include "base/json.h"

/* After these only destroying is legal: nothing more can be agreed. */
bool ls__comm_lost(ls_status status);

/* [all] Every rank has a status of its own (its text is the thread's last). If one failed, all get
 * the failure of the lowest such rank, on the others with "rank N: " in front of the text. word:
 * joined by OR, may be NULL; word_max: the largest, may be NULL. A rank whose communicator is lost
 * takes no part. */
ls_status ls__share_failure(ls_comm *comm, ls_status status, uint64_t *word, uint64_t *word_max);
/* [all] Rank 0's document, on every rank. *document: read on rank 0, set on the others; may be
 * NULL. */
ls_status ls__share_json(ls_comm *comm, json_t **document);

#endif
