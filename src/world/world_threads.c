/* Worlds for tests of the rooms below: ranks as threads of one process, and one rank without a
 * command line. They share what processes would share, so that a data race shows as one. */
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "world/world_state.h"

enum { TIMEOUT_MS = 60000 };

static ls_status fill(ls_world *world)
{
    ls__launch *launch = &world->launch;
    char count[16] = "cpu:1";
    LS_TRY(ls__options_parse(NULL, NULL, &world->program, &world->options));
    LS_TRY(ls__cpus_discover("/", &launch->cpus));
    LS_TRY(ls__devices_plan(count, 1, &launch->cpus, &launch->plan));
    launch->plan.count = world->local_size;
    launch->plan.pin = false;
    launch->crowded = world->size > launch->cpus.usable;
    launch->timeout_ms = TIMEOUT_MS;
    launch->grace = -1;
    launch->started = ls__now();
    return LS_OK;
}

/* Between nodes the caller makes what connects them. */
static ls_status create_comm(ls_world *world)
{
    if (world->nodes->count > 1) return LS_OK;
    return ls__comm_shm_create(world->shm,
                               &(ls__comm_shm_options) { .rank = world->rank,
                                                         .size = world->size,
                                                         .timeout_ms = TIMEOUT_MS,
                                                         .oversubscribed = world->launch.crowded },
                               &world->comm);
}

static ls_status create_rank(ls__shared_world *shared, int rank, ls_world **out)
{
    ls_world *world;
    ls__nodes *nodes = shared->nodes;
    LS_TRY(ls__world_alloc(&world));
    *out = world;
    atomic_fetch_add(&shared->users, 1);
    world->shared = shared;
    world->rank = rank;
    world->size = nodes->size;
    world->nodes = nodes;
    world->node = nodes->node_of[rank];
    world->local_rank = nodes->local_of[rank];
    world->local_size = nodes->local_sizes[world->node];
    world->shm = shared->shms[world->node];
    LS_TRY(fill(world));
    LS_TRY(ls__store_create_direct(shared->core, rank, &world->store));
    return create_comm(world);
}

void ls__shared_world_leave(ls__shared_world *shared)
{
    if (atomic_fetch_sub(&shared->users, 1) != 1) return;
    ls__core_destroy(shared->core);
    for (int m = 0; shared->shms && m < shared->nodes->count; m++) ls__shm_destroy(shared->shms[m]);
    ls__free(shared->shms);
    ls__nodes_destroy(shared->nodes);
    ls__free(shared);
}

static ls_status create_shared(const int *local_sizes, int nodes, ls__shared_world **out)
{
    ls__shared_world *shared = ls__alloc(1, sizeof *shared);
    if (!shared) return LS_ERR_MEMORY;
    *out = shared;
    atomic_init(&shared->users, 1); /* ours, until all ranks have theirs */
    LS_TRY(ls__nodes_create(local_sizes, nodes, &shared->nodes));
    LS_TRY(ls__core_create(&shared->core));
    shared->shms = ls__alloc((size_t)nodes, sizeof(ls__shm *));
    if (!shared->shms) return LS_ERR_MEMORY;
    for (int m = 0; m < nodes; m++) LS_TRY(ls__shm_create(local_sizes[m], &shared->shms[m]));
    return LS_OK;
}

ls_status ls__world_create_nodes(const int *local_sizes, int nodes, ls_world **worlds)
{
    int size = 0;
    for (int m = 0; m < nodes; m++) size += local_sizes[m];
    for (int r = 0; r < size; r++) worlds[r] = NULL;
    ls__shared_world *shared = NULL;
    ls_status status = create_shared(local_sizes, nodes, &shared);
    for (int r = 0; r < size && status == LS_OK; r++) status = create_rank(shared, r, &worlds[r]);
    if (status != LS_OK) {
        for (int r = 0; r < size; r++) {
            ls__world_free(worlds[r]);
            worlds[r] = NULL;
        }
    }
    if (shared) ls__shared_world_leave(shared);
    return status;
}

ls_status ls__world_create_threads(int size, ls_world **worlds)
{
    return ls__world_create_nodes(&size, 1, worlds);
}

ls_status ls__world_create_single(ls_world **out)
{
    *out = NULL;
    ls_world *world;
    LS_TRY(ls__world_alloc(&world));
    ls_status status = fill(world);
    if (status == LS_OK) status = ls__world_set_nodes(world, NULL);
    if (status == LS_OK) status = ls__core_create(&world->core);
    if (status == LS_OK) status = ls__store_create_direct(world->core, 0, &world->store);
    if (status == LS_OK) status = create_comm(world);
    if (status != LS_OK) {
        ls__world_free(world);
        return status;
    }
    *out = world;
    return LS_OK;
}
