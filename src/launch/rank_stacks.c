/* Stacks of the ranks, taken while they can still be asked: before a failing job is ended, when it hangs,
 * when nothing happens. Bounded in ranks, threads, frames and time: a job of a thousand ranks tells
 * those of a few, which mostly wait for the same thing. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"
#include "launch/stacks.h"

enum { RANKS_MAX = 16, LINES_MAX = 64, MAPS_MAX = 4 << 20 };

static const double names_seconds = 1.5; /* of one rank: a large library's symbols take a while */
static const double all_seconds = 4.0;

static void add_line(ls__launcher_job *j, int rank, const char *text)
{
    if (j->nstacks == LINES_MAX) return;
    char *line = ls__format("rank %d %s", j->plan->place.first_rank + rank, text);
    char **grown = line ? ls__realloc(j->stacks, (size_t)j->nstacks + 1, sizeof *grown) : NULL;
    if (!grown) {
        ls__free(line);
        return;
    }
    j->stacks = grown;
    j->stacks[j->nstacks++] = line;
}

/* What the child has written until it ends or the time is over. */
static void read_lines(ls__launcher_job *j, int rank, int fd, double until)
{
    char text[LS__STACK_TEXT * LS__STACK_THREADS + 1];
    size_t used = 0;
    while (used < sizeof text - 1) {
        struct pollfd wait = { fd, POLLIN, 0 };
        double left = until - ls__now();
        if (left <= 0 || poll(&wait, 1, (int)(left * 1000) + 1) <= 0) break;
        ssize_t n = read(fd, text + used, sizeof text - 1 - used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    text[used] = '\0';
    for (char *rest = NULL, *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        add_line(j, rank, line);
}

static void name_stacks(ls__launcher_job *j, int rank, pid_t pid, const ls__stack_thread *threads,
                        int count)
{
    char path[64], *maps = NULL;
    size_t nbytes;
    int fds[2];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    if (ls__file_read(path, MAPS_MAX, &maps, &nbytes) != LS_OK) maps = NULL;
    if (pipe2(fds, O_CLOEXEC) == 0) {
        pid_t parent = getpid(), child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent) ls__stack_names(pid, maps, threads, count, fds[1]);
            _exit(0);
        }
        close(fds[1]);
        read_lines(j, rank, fds[0], ls__now() + names_seconds);
        close(fds[0]);
        if (child > 0) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
        }
    }
    ls__free(maps);
}

static void forget(ls__launcher_job *j)
{
    for (int i = 0; i < j->nstacks; i++) ls__free(j->stacks[i]);
    ls__free(j->stacks);
    j->stacks = NULL;
    j->nstacks = 0;
}

static void write_event(ls__launcher_job *j)
{
    json_t *lines = json_array();
    for (int i = 0; i < j->nstacks; i++) json_array_append_new(lines, json_string(j->stacks[i]));
    ls__events_write(j, "stacks", json_pack("{s:o}", "threads", lines));
}

void ls__rank_stacks_take(ls__launcher_job *j)
{
    ls__stack_thread *threads = ls__alloc(LS__STACK_THREADS, sizeof *threads);
    double until = ls__now() + all_seconds;
    int ranks = 0;
    forget(j);
    for (int r = 0; threads && r < j->plan->size && ranks < RANKS_MAX && ls__now() < until; r++) {
        const ls__child *child = &j->crew.children[r];
        if (child->pid <= 0 || child->ended) continue;
        int count = ls__stack_copy(child->pid, threads, &j->owed);
        name_stacks(j, r, child->pid, threads, count);
        ranks++;
    }
    ls__free(threads);
    if (j->nstacks > 0) write_event(j);
}

void ls__rank_stacks_tell(const ls__launcher_job *j)
{
    for (int i = 0; i < j->nstacks; i++) ls__log(LS__LOG_WARN, "    %s", j->stacks[i]);
    bool python = j->nstacks > 0 && strstr(j->plan->path, "python") != NULL;
    if (python)
        ls__log(LS__LOG_WARN, "    for the lines of Python: py-spy dump --pid PROCESS (pip install "
                              "py-spy)");
}

void ls__rank_stacks_free(ls__launcher_job *j)
{
    forget(j);
}
