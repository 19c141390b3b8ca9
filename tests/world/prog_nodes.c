/* A rank of several machines that tests start: it meets the others, then waits for a signal or for the
 * job's end; no communicator. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/clock.h"
#include "base/memory.h"
#include "world/world_internal.h"

static const char *act = "none", *folder = "";
static int64_t who = 1;

/* Values cross machines, also the largest one; each barrier lets nobody through early. */
static void talk(ls_world *world)
{
    ls__store *store = ls__world_store(world);
    int size = ls_world_size(world), rank = ls_world_rank(world);
    char key[32], *value;
    size_t nbytes, largest = 1 << 20;
    int64_t sum;
    char *block = malloc(largest);
    if (!block) abort();
    memset(block, 'a' + rank, largest);
    snprintf(key, sizeof key, "block/%d", rank);
    ls_check(ls__store_set(store, key, block, largest));
    free(block);
    for (int r = 0; r < size; r++) {
        snprintf(key, sizeof key, "block/%d", r);
        ls_check(ls__store_get(store, key, 10000, &value, &nbytes));
        if (nbytes != largest || value[0] != 'a' + r || value[largest - 1] != 'a' + r) abort();
        ls__free(value);
    }
    ls_check(ls__store_add(store, "sum", rank + 1, &sum));
    ls_check(ls__store_barrier(store, "talked", size, 10000));
    ls_check(ls__store_add(store, "sum", 0, &sum));
    if (sum != (int64_t)size * (size + 1) / 2) abort();
}

static void act_out(ls_world *world)
{
    if (strcmp(act, "late") == 0 && ls_world_rank(world) == who) sleep(60);
    if (strcmp(act, "late") == 0)
        ls_check(ls__store_barrier(ls__world_store(world), "late", ls_world_size(world), 300));
    if (ls_world_rank(world) != who) return;
    if (strcmp(act, "abort") == 0) ls_world_abort(world, "no more coffee");
    if (strcmp(act, "check") == 0) ls_check(ls_fail(LS_ERR_DATA, "x.idx is empty"));
}

int main(int argc, char **argv)
{
    ls_flag flags[] = { { "act", 's', (void *)&act, "what happens" },
                        { "who", 'i', &who, "on this rank" },
                        { "folder", 's', (void *)&folder, "for notes" },
                        { 0 } };
    ls_world_options options = { .summary = "a program of tests", .flags = flags };
    ls_world *world;
    ls_check(ls__world_init_bare(&argc, &argv, &options, &world));
    talk(world);
    ls__world_position(world, 7, "");
    printf("rank %d of %d, node %d of %d, local %d of %d\n", ls_world_rank(world),
           ls_world_size(world), ls_world_node(world), ls_world_nodes(world),
           ls_world_local_rank(world), ls_world_local_size(world));
    fflush(stdout);
    char path[300];
    snprintf(path, sizeof path, "%s/rank-%d", folder, ls_world_rank(world));
    FILE *file = fopen(path, "w");
    if (!file) abort();
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    act_out(world);
    bool waits = strcmp(act, "none") != 0;
    while (waits && !ls__world_stop_signal(world)) ls__sleep_ms(2);
    if (waits) ls__world_stopped(world, ls__world_stop_signal(world));
    return ls_world_finish(world);
}
