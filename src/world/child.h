/* Child processes of the supervisor: started so that they cannot outlive it, and ended for sure. */
#ifndef LS_WORLD_CHILD_H
#define LS_WORLD_CHILD_H

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <lockstep/base.h>

typedef struct ls__child_options {
    const char *path; /* of the program; NULL = this one once more */
    char *const *argv;
    char *const *envp;
    int null_fd, out_fd, err_fd; /* become 0, 1, 2 */
    int keep[3], nkeep;          /* descriptors that stay open under their numbers */
    const cpu_set_t *cpus;       /* NULL = as the parent */
    uint64_t memory_nodes;       /* NUMA nodes whose memory it takes first, a bit each; 0 = as the
                                    parent */
    bool memory_bound;           /* and no other's */
    const sigset_t *mask;        /* signals blocked in the child */
    const struct rlimit *files;  /* limit of open files in the child */
} ls__child_options;

typedef struct ls__child {
    pid_t pid; /* 0 = none; also its process group */
    int pid_fd;
    bool ended;            /* its end has been read; it is not reaped yet, so pid stays its own */
    int exit_code, signal; /* one of them, when ended */
} ls__child;

/* Whether the kernel would bind memory to these nodes. errno says why not. */
bool ls__memory_can_be_bound(uint64_t nodes);

/* Starts a program in its own process group, killed by the kernel when the calling thread dies. On
 * failure *out has exit_code 126 when the program cannot be executed, 127 when it is not there. */
ls_status ls__child_start(const ls__child_options *options, ls__child *out);
/* After pid_fd is readable: reads how it ended. */
void ls__child_read_end(ls__child *child);
/* To the whole process group. */
void ls__child_signal(const ls__child *child, int signal);
/* Kills what is left of the group and reaps the child, which has ended. */
void ls__child_reap(ls__child *child);

/* A list of process ids. */
typedef struct ls__pids {
    pid_t *pids;
    int count, capacity;
} ls__pids;

/* All children of this process, by /proc. */
ls_status ls__children_list(ls__pids *out);
ls_status ls__pids_add(ls__pids *pids, pid_t pid);
void ls__pids_free(ls__pids *pids);
/* Reaps children that have ended, apart from those in spared. False: there is no child left. */
bool ls__children_reap(const ls__child *spared, int nspared);
/* Kills and reaps every child that is not in spared, and the children that come to this process
 * (a subreaper) when they die, for at most seconds. Returns how many are left. */
int ls__children_kill(const ls__pids *spared, double seconds);

#endif
