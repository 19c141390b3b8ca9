/* Joining a job on several machines by the process manager that started it. Every rank takes part in
 * the exchange, because managers wait for all of their processes; only roots need what comes of it. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "world/world_state.h"

ls_status ls__connect_root(ls_world *world, const ls__place *place)
{
    char text[LS__WHERE_TEXT] = "";
    bool asked = ls__found_by_manager(place);
    if (asked) {
        if (world->rank == 0) LS_TRY(ls__local_root_where(world->root, text));
        LS_TRY(ls__manager_share(place, world->launch.timeout_ms, text, &world->manager));
    }
    if (!world->root) return LS_OK;
    LS_TRY(ls__local_root_connect(world->root, text));
    if (!asked || world->rank == 0) return LS_OK;
    char key[48];
    const char *address = ls__local_root_address(world->root);
    snprintf(key, sizeof key, "world/way/%d", world->rank);
    return ls__store_set(world->store, key, address, strlen(address));
}

/* The way to rank 0's machine is known to the roots that have gone it: its own ranks learn from one of
 * another machine by which of its addresses it is reached. */
ls_status ls__learn_way(ls_world *world, const ls__place *place, int root_rank)
{
    char key[48], *value;
    size_t nbytes;
    if (!ls__found_by_manager(place) || world->nodes->count < 2) return LS_OK;
    int root =
        world->node == world->nodes->node_of[0] ? ls__nodes_rank(world->nodes, 1, 0) : root_rank;
    snprintf(key, sizeof key, "world/way/%d", root);
    LS_TRY(ls__store_get(world->store, key, world->launch.timeout_ms, &value, &nbytes));
    snprintf(world->address, sizeof world->address, "%.*s", (int)nbytes, value);
    ls__free(value);
    return LS_OK;
}
