/* Every rank says who it is; rank 0 prints it for all, in order. */
#include <stdio.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { LINE = 128, RANKS_MAX = 1024 };

int main(int argc, char **argv)
{
    static char mine[LINE], all[RANKS_MAX * LINE]; /* (LINE), (size, LINE) */
    char host[64] = "";
    ls_world *world;
    const ls_world_options options = { .summary = "Says hello from every rank.", .no_run = true };
    ls_check(ls_world_init(&argc, &argv, &options, &world)); /* starts the other ranks */

    int rank = ls_world_rank(world), size = ls_world_size(world);
    gethostname(host, sizeof host - 1);
    snprintf(mine, sizeof mine, "Hello from rank %d of %d: %d thread%s, process %d on %s", rank,
             size, ls_world_threads(world), ls_world_threads(world) == 1 ? "" : "s", (int)getpid(),
             host);
    ls_check(ls_comm_all_gather(ls_world_comm(world), mine, all, LINE, LS_DTYPE_U8));
    for (int r = 0; rank == 0 && r < size; r++) puts(all + r * LINE);
    return ls_world_finish(world);
}
