/* Ranks of PyTorch that never meet. A script that does not call init_process_group does all of the
 * work in every rank, and nothing says so. A look a minute after the start, when imports are over
 * and rank 0's store listens as long as the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

static const double look_at = 60.0; /* seconds after a start */

bool ls__tcp_listens(FILE *table, int port)
{
    enum { LISTENS = 0x0A };
    char line[512];
    unsigned local, state;
    while (fgets(line, sizeof line, table))
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) == 2 &&
            local == (unsigned)port && state == LISTENS)
            return true;
    return false;
}

/* In the network namespace of that process; true where nothing can be said. */
static bool process_listens(pid_t pid, int port)
{
    static const char *const tables[] = { "tcp", "tcp6" };
    bool seen = false, listens = false;
    for (int i = 0; i < 2 && !listens; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, tables[i]);
        FILE *table = fopen(path, "re");
        if (!table) continue;
        seen = true;
        listens = ls__tcp_listens(table, port);
        fclose(table);
    }
    return listens || !seen;
}

static bool maps_torch(pid_t pid)
{
    char path[64], *line = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps) return false;
    while (!found && getline(&line, &room, maps) > 0) found = strstr(line, "/libtorch_cpu.so");
    free(line);
    fclose(maps);
    return found;
}

void ls__alone_check(ls__launcher_job *j)
{
    const ls__launcher_plan *plan = j->plan;
    const ls__child *first = &j->crew.children[0];
    int ranks = plan->place.world_size;
    if (j->looked_alone || ls__now() < j->started + look_at) return;
    j->looked_alone = true;
    if (plan->place.first_rank != 0 || ranks <= 1 || first->ended) return;
    if (!maps_torch(first->pid) || process_listens(first->pid, j->port)) return;
    ls__log(LS__LOG_WARN,
            "%d ranks run PyTorch, and after a minute rank 0 does not listen on MASTER_PORT (%d): "
            "each may be doing all of the work alone. A script joins them by "
            "torch.distributed.init_process_group()",
            ranks, j->port);
    ls__events_write(j, "ranks-alone", json_pack("{s:i}", "port", j->port));
}
