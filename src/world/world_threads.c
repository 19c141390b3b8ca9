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
    launch->plan.count = world->size;
    launch->plan.pin = false;
    launch->crowded = world->size > launch->cpus.usable;
    launch->timeout_ms = TIMEOUT_MS;
    launch->grace = -1;
    launch->started = ls__now();
    return LS_OK;
}

static ls_status create_comm(ls_world *world)
{
    return ls__comm_shm_create(world->shm,
                               &(ls__comm_shm_options) { .rank = world->rank,
                                                         .size = world->size,
                                                         .timeout_ms = TIMEOUT_MS,
                                                         .oversubscribed = world->launch.crowded },
                               &world->comm);
}

static ls_status create_rank(ls__shared_world *shared, int rank, int size, ls_world **out)
{
    ls_world *world;
    LS_TRY(ls__world_alloc(&world));
    *out = world;
    atomic_fetch_add(&shared->users, 1);
    world->shared = shared;
    world->rank = world->local_rank = rank;
    world->size = size;
    world->shm = shared->shm;
    LS_TRY(fill(world));
    LS_TRY(ls__store_create_direct(shared->core, rank, &world->store));
    return create_comm(world);
}

ls_status ls__world_create_threads(int size, ls_world **worlds)
{
    for (int r = 0; r < size; r++) worlds[r] = NULL;
    ls__shared_world *shared = ls__alloc(1, sizeof *shared);
    if (!shared) return LS_ERR_MEMORY;
    atomic_init(&shared->users, 1); /* ours, until all ranks have theirs */
    ls_status status = ls__core_create(&shared->core);
    if (status == LS_OK) status = ls__shm_create(size, &shared->shm);
    for (int r = 0; r < size && status == LS_OK; r++)
        status = create_rank(shared, r, size, &worlds[r]);
    if (status != LS_OK) {
        for (int r = 0; r < size; r++) {
            ls__world_free(worlds[r]);
            worlds[r] = NULL;
        }
    }
    if (atomic_fetch_sub(&shared->users, 1) == 1) {
        ls__core_destroy(shared->core);
        ls__shm_destroy(shared->shm);
        ls__free(shared);
    }
    return status;
}

ls_status ls__world_create_single(ls_world **out)
{
    *out = NULL;
    ls_world *world;
    LS_TRY(ls__world_alloc(&world));
    ls_status status = fill(world);
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
