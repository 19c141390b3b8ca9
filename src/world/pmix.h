/* A client of PMIx, by which Open MPI's launcher (and others) let the processes that they started
 * exchange words. */
#ifndef LS_WORLD_PMIX_H
#define LS_WORLD_PMIX_H

#include <stddef.h>

#include <lockstep/base.h>

typedef struct ls__pmix ls__pmix;

/* All processes of the job call it: the first one's text gets to all. Waits for the slowest of them,
 * at most timeout_ms; -1 = without end. LS_ERR_UNSUPPORTED when there is no library. */
ls_status ls__pmix_share(bool first, int timeout_ms, char *text, size_t limit, ls__pmix **out);
/* Says goodbye: a launcher takes a process that has spoken and ends without for a failed one. Frees;
 * NULL is fine. */
void ls__pmix_leave(ls__pmix *pmix);

#endif
