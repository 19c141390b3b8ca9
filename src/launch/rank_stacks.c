/* Stacks of the ranks, taken while they can still be asked: before a failing job is ended, when it hangs,
 * when nothing happens. Bounded in ranks, threads, frames and time: a job of a thousand ranks tells
 * those of a few, which mostly wait for the same thing. Copying takes a millisecond or so per rank,
 * names some tens: so children make those, all ranks' at once, while the job is being ended. */
#include <errno.h>
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

enum { LINES_MAX = 64, MAPS_MAX = 4 << 20 };

static const double copy_seconds = 1.0;  /* threads that do not stop at once cost 0.1 s each */
static const double names_seconds = 2.5; /* a large library's symbols take a while */

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
        if (poll(&wait, 1, left > 0 ? (int)(left * 1000) + 1 : 0) <= 0) break;
        ssize_t n = read(fd, text + used, sizeof text - 1 - used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    text[used] = '\0';
    for (char *rest = NULL, *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        add_line(j, rank, line);
}

/* A child has its own copy of what was copied, and all the time it needs. */
static void begin_naming(ls__stack_namer *namer, pid_t pid, const ls__stack_thread *threads,
                         int count)
{
    char path[64], *maps = NULL;
    size_t nbytes;
    int fds[2];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    if (ls__file_read(path, MAPS_MAX, &maps, &nbytes) != LS_OK) maps = NULL;
    if (pipe2(fds, O_CLOEXEC) == 0) {
        pid_t parent = getpid();
        namer->pid = fork();
        if (namer->pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (nice(10) == -1) errno = 0; /* ending the ranks comes first */
            if (getppid() == parent) ls__stack_names(pid, maps, threads, count, fds[1]);
            _exit(0);
        }
        close(fds[1]);
        namer->fd = fds[0];
    }
    ls__free(maps);
}

static void end_naming(ls__launcher_job *j, ls__stack_namer *namer, double until)
{
    read_lines(j, namer->rank, namer->fd, until);
    close(namer->fd);
    if (namer->pid > 0) {
        kill(namer->pid, SIGKILL);
        waitpid(namer->pid, NULL, 0);
    }
    *namer = (ls__stack_namer) { .fd = -1 };
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

void ls__rank_stacks_copy(ls__launcher_job *j)
{
    ls__stack_thread *threads = ls__alloc(LS__STACK_THREADS, sizeof *threads);
    double until = ls__now() + copy_seconds;
    forget(j);
    j->nnamers = 0;
    for (int r = 0; threads && r < j->plan->size && j->nnamers < LS__STACK_RANKS; r++) {
        const ls__child *child = &j->crew.children[r];
        if (child->pid <= 0 || child->ended) continue;
        if (ls__now() >= until) break;
        int count = ls__stack_copy(child->pid, threads, &j->owed);
        ls__stack_namer *namer = &j->namers[j->nnamers];
        *namer = (ls__stack_namer) { .rank = r, .fd = -1 };
        begin_naming(namer, child->pid, threads, count);
        if (namer->fd >= 0) j->nnamers++;
    }
    ls__free(threads);
}

void ls__rank_stacks_name(ls__launcher_job *j)
{
    double until = ls__now() + names_seconds;
    for (int i = 0; i < j->nnamers; i++) end_naming(j, &j->namers[i], until);
    j->nnamers = 0;
    if (j->nstacks > 0) write_event(j);
}

void ls__rank_stacks_take(ls__launcher_job *j)
{
    ls__rank_stacks_copy(j);
    ls__rank_stacks_name(j);
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
