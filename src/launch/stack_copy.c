/* Copies what a stack walk needs. PTRACE_SEIZE and PTRACE_INTERRUPT leave no signal behind, and a process
 * that was stopped by a signal stays so. Waiting is by waitid for stops only: an exit belongs to
 * whoever watches the rank. */
#include "launch/stacks.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const double stop_seconds = 0.1; /* a thread that waits for a device does not stop */

static void read_line(pid_t pid, pid_t thread, const char *name, char *out, size_t room)
{
    char path[80];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", (int)pid, (int)thread, name);
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t n = read(fd, out, room - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static void describe(pid_t pid, ls__stack_thread *t)
{
    char stat[400];
    read_line(pid, t->id, "comm", t->name, sizeof t->name);
    read_line(pid, t->id, "wchan", t->waits_in, sizeof t->waits_in);
    if (strcmp(t->waits_in, "0") == 0) t->waits_in[0] = '\0';
    read_line(pid, t->id, "stat", stat, sizeof stat);
    const char *bracket = strrchr(stat, ')');
    t->state = bracket && bracket[1] ? bracket[2] : '?';
}

typedef enum outcome { STOPPED, GONE, NOT_YET } outcome;

static outcome look(pid_t thread)
{
    siginfo_t info = { 0 };
    if (waitid(P_PID, (id_t)thread, &info, WSTOPPED | WNOHANG | __WALL) != 0) return GONE;
    return info.si_pid == thread ? STOPPED : NOT_YET;
}

static outcome await_stop(pid_t thread)
{
    double until = ls__now() + stop_seconds;
    outcome o;
    while ((o = look(thread)) == NOT_YET && ls__now() < until) usleep(50);
    return o;
}

static uint64_t stack_pointer(const struct user_regs_struct *r)
{
#if defined(__x86_64__)
    return r->rsp;
#elif defined(__aarch64__)
    return r->sp;
#else
    (void)r;
    return 0;
#endif
}

/* As much of the stack as there is: page by page, as it may end soon. */
static void copy_stack(pid_t thread, ls__stack_thread *t)
{
    enum { PAGE = 4096 };
    t->base = stack_pointer(&t->registers);
    while (t->nbytes < LS__STACK_BYTES) {
        uint64_t at = t->base + t->nbytes;
        size_t n = PAGE - at % PAGE;
        if (n > LS__STACK_BYTES - t->nbytes) n = LS__STACK_BYTES - t->nbytes;
        struct iovec to = { t->bytes + t->nbytes, n };
        struct iovec from = { (void *)(uintptr_t)at, n };
        if (process_vm_readv(thread, &to, 1, &from, 1, 0) != (ssize_t)n) return;
        t->nbytes += n;
    }
}

/* Only a thread that has stopped can be let go. */
static void trace(ls__stack_thread *t, ls__stack_owed *owed)
{
    const int most = (int)(sizeof owed->ids / sizeof owed->ids[0]);
    if (t->state == 'D' || t->state == 'Z' || t->state == 'X') return;
    if (owed->count == most || ptrace(PTRACE_SEIZE, t->id, NULL, NULL) != 0) return;
    struct iovec registers = { &t->registers, sizeof t->registers };
    ptrace(PTRACE_INTERRUPT, t->id, NULL, NULL);
    outcome o = await_stop(t->id);
    if (o == NOT_YET) owed->ids[owed->count++] = t->id;
    if (o != STOPPED) return;
    if (ptrace(PTRACE_GETREGSET, t->id, (void *)NT_PRSTATUS, &registers) == 0) {
        copy_stack(t->id, t);
        t->traced = t->nbytes > 0;
    }
    ptrace(PTRACE_DETACH, t->id, NULL, NULL);
}

int ls__stack_copy(pid_t pid, ls__stack_thread *threads, ls__stack_owed *owed)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks && count < LS__STACK_THREADS && (e = readdir(tasks));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        ls__stack_thread *t = &threads[count++];
        memset(t, 0, sizeof *t - sizeof t->bytes);
        t->id = (pid_t)atoi(e->d_name);
        describe(pid, t);
        trace(t, owed);
    }
    if (tasks) closedir(tasks);
    return count;
}

void ls__stack_release(ls__stack_owed *owed)
{
    int left = 0;
    for (int i = 0; i < owed->count; i++) {
        outcome o = look(owed->ids[i]);
        if (o == STOPPED) ptrace(PTRACE_DETACH, owed->ids[i], NULL, NULL);
        if (o == NOT_YET) owed->ids[left++] = owed->ids[i];
    }
    owed->count = left;
}
