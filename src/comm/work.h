/* Works: calls that were started and are not waited for yet. */
#ifndef LS_COMM_WORK_H
#define LS_COMM_WORK_H

#include "comm/comm_internal.h"

/* Checks a call and performs it, after the works before it. */
ls_status ls__call_run(ls_comm *comm, const ls__call *call);
ls_status ls__call_check(ls_comm *comm, const ls__call *call);
ls_status ls__call_pair(ls_comm *comm, const ls__call *call); /* send, recv */
/* The same in shared memory, checked already. */
ls_status ls__pair_run(ls_comm *comm, const ls__call *call);
ls_status ls__call_start(ls_comm *comm, const ls__call *call, ls_work **work);
/* Performs all works started so far, whose status their waiters will get; before a call that is not
 * queued. */
ls_status ls__works_finish(ls_comm *comm);
void ls__works_free(ls_comm *comm);

#endif
