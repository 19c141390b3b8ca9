/* Descendants that nobody waits for. The supervisor is a subreaper: whatever a rank leaves behind
 * becomes its child when the rank dies, also what made itself a session of its own. Children are
 * found by reading /proc (not every kernel lists them), only at the end of a job. */
#include "world/child.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

/* The parent of a process; 0 = no such process. The second field is the program's name in brackets
 * and may hold anything, so fields are counted from the last bracket. */
static pid_t parent_of(const char *name)
{
    char path[300], text[512];
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    char *bracket = strrchr(text, ')'), state;
    int parent;
    return bracket && sscanf(bracket + 1, " %c %d", &state, &parent) == 2 ? parent : 0;
}

ls_status ls__pids_add(ls__pids *list, pid_t pid)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity > 0 ? list->capacity * 2 : 64;
        pid_t *pids = ls__realloc(list->pids, (size_t)capacity, sizeof *pids);
        if (!pids) return LS_ERR_MEMORY;
        list->pids = pids;
        list->capacity = capacity;
    }
    list->pids[list->count++] = pid;
    return LS_OK;
}

ls_status ls__children_list(ls__pids *out)
{
    out->count = 0;
    DIR *proc = opendir("/proc");
    if (!proc) return ls__fail_errno(LS_ERR_INTERNAL, "/proc");
    pid_t self = getpid();
    ls_status status = LS_OK;
    for (struct dirent *e; status == LS_OK && (e = readdir(proc)) != NULL;)
        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name) == self)
            status = ls__pids_add(out, (pid_t)atoi(e->d_name));
    closedir(proc);
    return status;
}

void ls__pids_free(ls__pids *list)
{
    ls__free(list->pids);
    *list = (ls__pids) { 0 };
}

static bool contains(const ls__pids *list, pid_t pid)
{
    for (int i = 0; i < list->count; i++)
        if (list->pids[i] == pid) return true;
    return false;
}

bool ls__children_reap(const ls__child *spared, int nspared)
{
    for (;;) {
        siginfo_t info = { 0 };
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno != ECHILD;
        if (info.si_pid == 0) return true;
        for (int i = 0; i < nspared; i++)
            if (spared[i].pid == info.si_pid) return true; /* its own pid_fd tells about it */
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}

int ls__children_kill(const ls__pids *spared, double seconds)
{
    ls__pids list = { 0 };
    double deadline = ls__now() + seconds;
    int left = 0;
    for (;;) {
        if (!ls__children_reap(NULL, 0) || ls__children_list(&list) != LS_OK) {
            left = 0;
            break;
        }
        left = 0;
        for (int i = 0; i < list.count; i++) {
            if (contains(spared, list.pids[i])) continue;
            kill(list.pids[i], SIGKILL);
            left++;
        }
        if (left == 0 || ls__now() > deadline) break;
        ls__sleep_ms(1); /* dying takes the kernel a moment */
    }
    ls__pids_free(&list);
    return left;
}
