/* What the rooms below may ask of the world. Getters never communicate. */
#ifndef LS_WORLD_INTERNAL_H
#define LS_WORLD_INTERNAL_H

#include <lockstep/world.h>

#include "base/option.h"
#include "comm/link.h"
#include "comm/shm.h"
#include "device/device.h"
#include "world/store.h"
#include "world/world_nodes.h"

ls__options *ls__world_options(const ls_world *world);
const ls_world_options *ls__world_program(const ls_world *world);
ls__store *ls__world_store(const ls_world *world); /* one for all ranks of all nodes */
/* The same for rooms that do not know the world; no functions: all ranks are on one machine. */
ls__link_store ls__world_link_store(const ls_world *world);
/* Which rank is where. */
const ls__nodes *ls__world_nodes(const ls_world *world);
/* What the ranks of this node share: (ls_world_local_size) in the order of local ranks. Its poison
 * ends every wait: a failure anywhere, on whatever node, is told to all nodes' memory. NULL: this
 * rank is alone on its node. */
ls__shm *ls__world_shm(const ls_world *world);
const ls__cpus *ls__world_cpus(const ls_world *world);
const ls__device_plan *ls__world_devices(const ls_world *world);
int ls__world_timeout_ms(const ls_world *world); /* --timeout; -1 = none */
const char *ls__world_argv(const ls_world *world,
                           int i); /* the command line as typed; NULL behind the last */
/* The name or address at which rank 0's machine is reached; NULL: all ranks are on one machine, or it
 * was not told. */
const char *ls__world_root(const ls_world *world);
/* More threads than CPUs on this machine. */
bool ls__world_crowded(const ls_world *world);
double ls__world_started(const ls_world *world); /* ls__now() scale: when the job was started, exec
                                                    of the supervisor included */
int ls__world_restarts(const ls_world *world);   /* how often the supervisor restarted the job */
/* The folder of the run that the job was at before it was restarted: a name that was made up must not
 * be made up again. "" = none. */
const char *ls__world_restart_folder(const ls_world *world);
/* What lockstep run calls the run that this program is part of; "" = nothing. */
const char *ls__world_run_name(const ls_world *world);

/* A signal asked for a stop: its number, 0 = none. Any rank may see it first; the run agrees on it.
 */
int ls__world_stop_signal(const ls_world *world);
/* The run stopped for that signal and saved: ls_world_finish will return 75 or 130. */
void ls__world_stopped(ls_world *world, int signal);

/* Rank 0: the folder of the run, so that the supervisor puts logs and the report there; later
 * ranks' calls are ignored. */
void ls__world_set_folder(ls_world *world, const char *folder);
/* Rank 0: redraws the progress line (by the supervisor when there is one). text "" erases. On a
 * stream that is no terminal nothing is drawn. */
void ls__world_progress(ls_world *world, const char *text);
bool ls__world_terminal(const ls_world *world); /* whether stderr of the job is a terminal */
/* Any rank, some times a second: a sign of life, and where the job stands, for the report and for who
 * watches: the step and the newest checkpoint ("" = unchanged). */
void ls__world_position(ls_world *world, int64_t step, const char *checkpoint);

/* For tests: a world of threads in this process. worlds: (size). Rank r's is used by thread r
 * alone. */
ls_status ls__world_create_threads(int size, ls_world **worlds);
/* The same as several nodes: a memory for each of them, one store for all. local_sizes: (nodes) ranks
 * of each; they are counted node by node. worlds: (their sum). */
ls_status ls__world_create_nodes(const int *local_sizes, int nodes, ls_world **worlds);
/* ls_world_init without a communicator: tests of what this room does between machines. */
ls_status ls__world_init_bare(int *argc, char ***argv, const ls_world_options *options,
                              ls_world **out);
/* A world of size 1 without a command line. Freed by ls_world_finish like the others. */
ls_status ls__world_create_single(ls_world **out);

#endif
