/* A job's state, kept by whoever watches its ranks: the supervisor, or the local root when others
 * started them. It takes in what ranks say, counts requests to stop, and keeps the first failure;
 * acting on processes is the watcher's. */
#ifndef LS_WORLD_JOB_H
#define LS_WORLD_JOB_H

#include "comm/shm.h"
#include "world/board.h"
#include "world/report.h"
#include "world/store_server.h"

typedef struct ls__job_rank {
    int pid; /* of a rank that joined; 0 = not yet */
    bool goodbye;
    int goodbye_code; /* what ls_world_finish returned */
    bool gone;        /* of a rank that joined: said goodbye, or its connection ended */
    bool failed;      /* said why it fails; its exit code follows */
} ls__job_rank;

typedef struct ls__job {
    int size;
    double grace; /* seconds; -1 = none */
    ls__shm *shm;
    ls__board *board;
    ls__server *server;
    ls__job_rank *ranks; /* (size) */
    char host[64];       /* of a job on several machines, for texts; "" = one */
    int njoined;         /* ranks that have come together; size when started by us */

    bool failing; /* end is a failure: the job is being taken down since failed_at */
    double failed_at;
    ls__end end;

    int stop_signal; /* 0 = nobody asked */
    double stop_at;
    bool stop_now; /* a second request, or the grace period is over: end says which */

    char folder[LS_PATH_MAX], checkpoint[LS_PATH_MAX], progress[512];
    bool new_folder, new_progress; /* set here, cleared by who has acted on it */
} ls__job;

/* Creates board and server for size ranks and the memory of the local_size that share it. hooks go to
 * the server: they must call ls__job_frame. */
ls_status ls__job_begin(ls__job *job, int size, int local_size, double grace,
                        const ls__server_hooks *hooks);
void ls__job_end(ls__job *job); /* a job of zero bytes is fine */

void ls__job_frame(ls__job *job, int rank, const ls__frame *frame);
/* A failure: the first one counts, except that a rank which only lost its peers gives way to one
 * that says more. Poisons the memory and tells all ranks. */
void ls__job_fail(ls__job *job, const ls__end *end);
/* Whether the end so far only says that a rank lost its peers: another one may say why. */
bool ls__job_end_is_victim(const ls__job *job);
/* A request to stop, by a signal to the watcher or to a rank. Two within a second are one. */
void ls__job_request_stop(ls__job *job, int signal);
/* When ls__job_tick has something to do (ls__now() scale); negative = never. */
double ls__job_deadline(const ls__job *job);
void ls__job_tick(ls__job *job);
/* A rank ended: by exit code or by signal. */
void ls__job_exited(ls__job *job, int rank, int exit_code, int signal, bool out_of_memory);
/* After all ranks are gone: the end of the job; a success when nothing failed. */
void ls__job_conclude(ls__job *job);

#endif
