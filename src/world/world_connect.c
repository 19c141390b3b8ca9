/* The communicator over several machines: which engine, and what it has to know of the world. Rank 0
 * chooses for all, so that machines that lack a plugin fail by name and do not wait for another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/link.h"
#include "comm/net.h"
#include "world/world_state.h"

/* Whether an MPI launcher has told this process how to join: without, MPI_Init makes singletons. */
static bool started_by_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK");
}

static ls_status choose(ls_world *world, const char *wanted, char out[16])
{
    static const char key[] = "world/engine";
    char *value;
    size_t nbytes;
    if (world->rank == 0) {
        if (strcmp(wanted, "auto") == 0)
            wanted = started_by_mpi() && ls__link_there("mpi") ? "mpi" : "gloo";
        LS_TRY(ls__store_set(world->store, key, wanted, strlen(wanted)));
    }
    LS_TRY(ls__store_get(world->store, key, world->launch.timeout_ms, &value, &nbytes));
    snprintf(out, 16, "%.*s", (int)nbytes, value);
    ls__free(value);
    return LS_OK;
}

static ls_status set(void *user, const char *key, const void *value, size_t nbytes)
{
    return ls__store_set(user, key, value, nbytes);
}

static ls_status get(void *user, const char *key, int timeout_ms, char **value, size_t *nbytes)
{
    return ls__store_get(user, key, timeout_ms, value, nbytes);
}

ls__link_store ls__world_link_store(const ls_world *world)
{
    if (!world->nodes || world->nodes->count == 1) return (ls__link_store) { 0 };
    return (ls__link_store) { .user = world->store, .set = set, .get = get };
}

static ls_status connect_by(ls_world *world, const char *engine)
{
    const ls__launch *launch = &world->launch;
    const ls__nodes *nodes = world->nodes;
    ls__link_store store = ls__world_link_store(world);
    ls__link_options options = { .rank = world->rank,
                                 .size = world->size,
                                 .nodes = nodes->node_of,
                                 .store = &store,
                                 .root = world->address,
                                 .timeout_ms = launch->timeout_ms };
    ls__link *link;
    ls__node_place *places = ls__alloc((size_t)world->size, sizeof *places);
    if (!places) return LS_ERR_MEMORY;
    for (int r = 0; r < world->size; r++)
        places[r] = (ls__node_place) { nodes->node_of[r], nodes->local_of[r] };
    ls_status status = ls__link_open(engine, &options, &link);
    if (status == LS_OK)
        status =
            ls__comm_nodes_create(world->shm, link,
                                  &(ls__comm_nodes_options) { .rank = world->rank,
                                                              .size = world->size,
                                                              .places = places,
                                                              .timeout_ms = launch->timeout_ms,
                                                              .oversubscribed = launch->crowded },
                                  &world->comm);
    ls__free(places);
    return status;
}

ls_status ls__connect_nodes(ls_world *world, const char *engine)
{
    char chosen[16];
    LS_TRY(choose(world, engine, chosen));
    if (strcmp(chosen, "shm") == 0)
        return ls_fail(LS_ERR_CONFIG,
                       "--comm shm: the ranks are on %d machines, between which there is no shared "
                       "memory; use --comm gloo, mpi or auto",
                       world->nodes->count);
    LS_TRY(connect_by(world, chosen));
    ls__log(LS__LOG_INFO, "%d machines, connected by %s", world->nodes->count, chosen);
    return LS_OK;
}
