/* The crew: the processes of a job and what their parent needs to be sure of them: exits by pidfd,
 * signals by signalfd, both in one epoll set, and the certainty that nothing of a start survives. It
 * knows nothing of what ranks do; that is its user's. One thread. */
#ifndef LS_WORLD_CREW_H
#define LS_WORLD_CREW_H

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#include "world/child.h"

typedef struct ls__crew {
    int size;
    ls__child *children; /* (size) */
    int alive;           /* of them */
    int epoll_fd, signal_fd, null_fd;
    sigset_t mask_before;
    struct rlimit files_before;
    ls__pids strangers; /* children that this process had before */
} ls__crew;

/* Tags of events below this are ranks. The crew watches its signal_fd with this tag. */
enum { LS__CREW_SIGNALS = 1 << 20, LS__CREW_TAGS };

/* Takes over these signals of the process (they must be blocked in no child: see mask_before), makes
 * it a subreaper and raises its limit of open files. On failure ls__crew_end still has to be called.
 */
ls_status ls__crew_begin(ls__crew *crew, int size, const int *signals, int nsignals);
void ls__crew_end(ls__crew *crew);
/* Adds a descriptor to epoll_fd. */
ls_status ls__crew_watch(ls__crew *crew, int fd, uint64_t tag);

/* No rank is there: before each start of the job. */
void ls__crew_reset(ls__crew *crew);
/* options: all but null_fd, out_fd, err_fd and files. out and err get the reading ends of the rank's
 * streams. */
ls_status ls__crew_start(ls__crew *crew, int rank, const ls__child_options *options, int *out,
                         int *err);
/* After an event of this rank: true when it has ended, how is in children[rank]. */
bool ls__crew_ended(ls__crew *crew, int rank);
/* To every rank's process group. */
void ls__crew_signal(const ls__crew *crew, int number);
/* After SIGCHLD: reaps processes that ranks left to this one. */
void ls__crew_reap(const ls__crew *crew);
/* Nothing of this start survives: kills the ranks' groups, then what left its group. Returns how many
 * processes could not be killed within seconds. */
int ls__crew_clear(ls__crew *crew, double seconds);

#endif
