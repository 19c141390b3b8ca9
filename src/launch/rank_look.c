/* Looks at ranks from outside: by /proc, the driver and their heartbeats, so that a job pays nothing for
 * being watched. Expected: twice a second, and only while somebody looks. */
#include "launch/rank_look.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

enum { FIGURES_MAX = 256 << 20, WRITING_MS = 2 };
static const double just_now = 0.02; /* seconds; file times come in steps of some milliseconds */

static const char asked_name[] = "watched", figures_name[] = "figures.json";

static int64_t memory_of(int pid)
{
    char path[64];
    long long pages = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%lld %lld", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static int gpu_of(const ls__gpus *gpus, int pid)
{
    for (int i = 0; i < gpus->count; i++)
        for (int k = 0; k < gpus->gpus[i].nprocesses && k < LS__GPU_PROCESSES_MAX; k++)
            if (gpus->gpus[i].processes[k].pid == pid) return gpus->gpus[i].utilization;
    return -1;
}

void ls__rank_look_at(ls__rank_look *looks, int n, const ls__gpus *gpus)
{
    pid_t *pids = ls__alloc((size_t)n + 1, sizeof *pids);
    ls__activity *activities = ls__alloc((size_t)n + 1, sizeof *activities);
    for (int i = 0; pids && i < n; i++) pids[i] = looks[i].pid;
    if (pids && activities) ls__activities_of(pids, n, activities);
    double now = ls__wall_time();
    for (int i = 0; i < n; i++) {
        ls__rank_look *l = &looks[i];
        l->at = now;
        l->state = '?';
        l->step = -1;
        l->beat_at = 0;
        if (pids && activities) {
            l->state = activities[i].state;
            l->cpu_seconds = activities[i].cpu_seconds;
        }
        l->memory = memory_of(l->pid);
        l->gpu = gpu_of(gpus, l->pid);
    }
    ls__free(activities);
    ls__free(pids);
}

static double modified_at(const struct stat *info)
{
    return (double)info->st_mtim.tv_sec + (double)info->st_mtim.tv_nsec * 1e-9;
}

void ls__rank_look_beat(ls__rank_look *look, const char *folder, int local)
{
    char path[LS_PATH_MAX];
    struct stat info;
    ls__rank_heartbeat_path(folder, local, path);
    if (!folder[0] || stat(path, &info) != 0) return;
    look->beat_at = modified_at(&info);
    look->step = ls__rank_beat_step(path);
    /* A program that writes its step anew empties the file first; one that only touches it stays
     * empty, and launchers have no time to wait for it. */
    if (look->step >= 0 || ls__wall_time() - look->beat_at > just_now) return;
    ls__sleep_ms(WRITING_MS);
    look->step = ls__rank_beat_step(path);
}

void ls__rank_look_board(ls__rank_look *look, const ls__board *board)
{
    int64_t noted_ns = ls__board_noted_ns(board, look->rank);
    if (noted_ns <= 0) return;
    look->beat_at = ls__wall_time() - (double)(ls__now_ns() - noted_ns) * 1e-9;
    look->step = ls__board_step(board, look->rank);
}

/* --- between machines --- */

json_t *ls__rank_looks_json(const char *host, const ls__rank_look *looks, int n)
{
    json_t *ranks = json_array();
    for (int i = 0; i < n; i++) {
        const ls__rank_look *l = &looks[i];
        json_array_append_new(ranks, json_pack("[i,i,i,f,f,f,I,I,i]", l->rank, l->pid,
                                               (int)l->state, l->at, l->cpu_seconds, l->beat_at,
                                               (json_int_t)l->memory, (json_int_t)l->step, l->gpu));
    }
    return json_pack("{s:s,s:o}", "host", host, "ranks", ranks);
}

int ls__rank_looks_read(const json_t *document, int node, ls__rank_look *looks, int room)
{
    const json_t *ranks = json_object_get(document, "ranks");
    int n = 0;
    for (size_t i = 0; i < json_array_size(ranks) && n < room; i++) {
        ls__rank_look l = { .node = node };
        json_int_t memory, step;
        int state;
        if (json_unpack(json_array_get(ranks, i), "[i,i,i,F,F,F,I,I,i!]", &l.rank, &l.pid, &state,
                        &l.at, &l.cpu_seconds, &l.beat_at, &memory, &step, &l.gpu) != 0)
            continue;
        bool letter = (state >= 'A' && state <= 'Z') || (state >= 'a' && state <= 'z');
        l.state = letter ? (char)state : '?';
        l.memory = memory;
        l.step = step;
        looks[n++] = l;
    }
    return n;
}

ls_status ls__figures_ask(const char *folder)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, asked_name));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int failed = fd < 0 || futimens(fd, NULL) != 0;
    if (fd >= 0) close(fd);
    return failed ? ls__fail_errno(LS_ERR_IO,
                                   "%s: cannot be written, so other machines are not asked", path)
                  : LS_OK;
}

static int64_t changed_ns(const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    struct stat info;
    if (ls__path_join(path, folder, name) != LS_OK || stat(path, &info) != 0) return 0;
    return (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
}

int64_t ls__figures_asked(const char *folder)
{
    return changed_ns(folder, asked_name);
}

int64_t ls__figures_written(const char *folder)
{
    return changed_ns(folder, figures_name);
}

ls_status ls__figures_write(const char *folder, json_t *launchers)
{
    char path[LS_PATH_MAX];
    json_t *document =
        json_pack("{s:s,s:o}", "schema", "lockstep.figures/1", "launchers", launchers);
    ls_status status = document ? ls__path_join(path, folder, figures_name)
                                : ls_fail(LS_ERR_MEMORY, "no memory for figures.json");
    if (status == LS_OK) status = ls__json_write(&ls__fs_unsynced, path, document);
    json_decref(document);
    return status;
}

json_t *ls__figures_read(const char *folder)
{
    char path[LS_PATH_MAX];
    json_t *document = NULL;
    if (ls__path_join(path, folder, figures_name) != LS_OK || !ls__path_exists(path)) return NULL;
    return ls__json_read(path, FIGURES_MAX, &document) == LS_OK ? document : NULL;
}
