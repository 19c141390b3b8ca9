/* What a rank is doing, by /proc. Often a rank is only a shell or another wrapper, so its CPU time is
 * that of all its descendants, of those that have ended too. Reads every process's entry: for the rare
 * moment of doubt. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

typedef struct process {
    pid_t pid, parent;
    char state;
    int family; /* of which of those that are looked for; -1 = none */
    double cpu_seconds;
} process;

static bool read_stat(const char *name, process *out)
{
    char path[300], *text;
    size_t nbytes;
    unsigned long long user = 0, system = 0, dead_user = 0, dead_system = 0; /* children's */
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    if (ls__file_read(path, 4096, &text, &nbytes) != LS_OK) return false;
    const char *bracket = strrchr(text, ')'); /* the name before it may hold anything */
    bool ok = bracket &&
              sscanf(bracket + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
                     &out->state, &parent, &user, &system, &dead_user, &dead_system) == 6;
    ls__free(text);
    out->pid = (pid_t)atoi(name);
    out->parent = parent;
    out->family = -1;
    out->cpu_seconds =
        (double)(user + system + dead_user + dead_system) / (double)sysconf(_SC_CLK_TCK);
    return ok;
}

/* All processes; freed by ls__free. */
static process *list_processes(int *count)
{
    process *list = NULL;
    int room = 0;
    *count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc && (e = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        if (*count == room) {
            room = room > 0 ? room * 2 : 256;
            process *grown = ls__realloc(list, (size_t)room, sizeof *list);
            if (!grown) break;
            list = grown;
        }
        if (read_stat(e->d_name, &list[*count])) ++*count;
    }
    if (proc) closedir(proc);
    return list;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const process *)a)->pid, y = ((const process *)b)->pid;
    return (x > y) - (x < y);
}

/* list is in the order of process numbers. */
static process *find(process *list, int count, pid_t pid)
{
    return count > 0 ? bsearch(&(process) { .pid = pid }, list, (size_t)count, sizeof *list, by_pid)
                     : NULL;
}

/* Everybody belongs to the nearest of the n above it. */
static void mark_families(process *list, int count, const pid_t *pids, int n)
{
    bool more = true;
    for (int i = 0; i < n; i++) {
        process *first = find(list, count, pids[i]);
        if (first) first->family = i;
    }
    while (more) { /* a parent may stand behind its child */
        more = false;
        for (int i = 0; i < count; i++) {
            const process *parent = find(list, count, list[i].parent);
            if (list[i].family >= 0 || !parent || parent->family < 0) continue;
            list[i].family = parent->family;
            more = true;
        }
    }
}

void ls__activities_of(const pid_t *pids, int n, ls__activity *out)
{
    int count;
    process *list = list_processes(&count);
    if (count > 0) qsort(list, (size_t)count, sizeof *list, by_pid);
    mark_families(list, count, pids, n);
    for (int i = 0; i < n; i++) {
        const process *first = find(list, count, pids[i]);
        out[i] = (ls__activity) { .state = first ? first->state : '?' };
    }
    for (int i = 0; i < count; i++)
        if (list[i].family >= 0) out[list[i].family].cpu_seconds += list[i].cpu_seconds;
    ls__free(list);
}

ls__activity ls__activity_of(pid_t pid)
{
    ls__activity a;
    char path[64], *text;
    size_t nbytes;
    ls__activities_of(&pid, 1, &a);
    snprintf(path, sizeof path, "/proc/%d/wchan", (int)pid);
    if (ls__file_read(path, 256, &text, &nbytes) == LS_OK) {
        if (nbytes > 1) snprintf(a.waits_in, sizeof a.waits_in, "%.60s", text);
        ls__free(text);
    }
    return a;
}
