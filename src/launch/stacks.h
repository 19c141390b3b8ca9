/* What the threads of a process are doing: where in which function. Two halves. The launcher, the only
 * one that may trace its ranks where Yama guards them, stops a thread for a moment and copies its
 * registers and the top of its stack. A child of it, which may take its time or die, makes names of
 * that, so that a rank may be killed meanwhile and nothing can hold the launcher up. */
#ifndef LS_LAUNCH_STACKS_H
#define LS_LAUNCH_STACKS_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include <lockstep/base.h>

enum { LS__STACK_THREADS = 8, LS__STACK_BYTES = 64 << 10, LS__STACK_FRAMES = 32 };
enum { LS__STACK_TEXT = 1024, LS__STACK_RANKS = 16 };

/* A stopped moment of a thread. */
typedef struct ls__stack_thread {
    pid_t id;
    char name[20], state;
    char waits_in[48]; /* in the kernel; "" = it does not */
    bool traced;       /* what follows is there */
    struct user_regs_struct registers;
    uint64_t base; /* address of bytes[0] */
    size_t nbytes;
    unsigned char bytes[LS__STACK_BYTES];
} ls__stack_thread;

/* Threads that were asked to stop and had not when the time was over: they will, and must be let go. */
typedef struct ls__stack_owed {
    int count;
    pid_t ids[64];
} ls__stack_owed;

/* A child that makes names of a rank's stacks. */
typedef struct ls__stack_namer {
    int rank, fd; /* what it says */
    pid_t pid;
} ls__stack_namer;

/* Threads of a process, at most LS__STACK_THREADS, each stopped for some tens of microseconds. Returns
 * how many. */
int ls__stack_copy(pid_t pid, ls__stack_thread *threads, ls__stack_owed *owed);
/* Lets those go that have stopped since. After SIGCHLD, which tells of a stop. */
void ls__stack_release(ls__stack_owed *owed);
/* In a process of its own: a line per thread, "read < main < __libc_start_call_main", to fd. */
void ls__stack_names(pid_t pid, const char *maps, const ls__stack_thread *threads, int count,
                     int fd);

#endif
