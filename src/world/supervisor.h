/* The supervisor: starts one copy of this program per device, watches them, and ends the job as a
 * whole: with success, after a request to stop, or at the first failure of any rank. */
#ifndef LS_WORLD_SUPERVISOR_H
#define LS_WORLD_SUPERVISOR_H

#include "world/launch.h"

/* Returns after the job is over and no process of it is left; *exit_code is the job's. */
ls_status ls__supervise(const ls__launch *launch, int *exit_code);

#endif
