/* All ranks of a job have come, and each learns where the others are. What each is told by its launcher
 * is collected by rank 0, which counts the machines: a launcher need not number them, and what does not
 * fit is seen by one rank and told to all. Expected: up to some ten thousand ranks. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "world/world_state.h"

static const char nodes_key[] = "world/nodes";

/* "root local": the rank that serves its machine, and its number there. */
static ls_status read_place(ls_world *world, int rank, int *root, int *local)
{
    char key[48], *value;
    size_t nbytes;
    snprintf(key, sizeof key, "world/place/%d", rank);
    LS_TRY(ls__store_get(world->store, key, world->launch.timeout_ms, &value, &nbytes));
    bool good = sscanf(value, "%d %d", root, local) == 2;
    ls__free(value);
    return good ? LS_OK : ls_fail(LS_ERR_DATA, "rank %d's place cannot be read", rank);
}

/* Machines are counted in the order of their roots' ranks. (size) places in, nodes out. */
static ls_status number_nodes(int *roots, int size)
{
    int *node_of_root = ls__alloc((size_t)size, sizeof *node_of_root), count = 0;
    if (!node_of_root) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    for (int r = 0; r < size; r++) node_of_root[r] = -1;
    for (int r = 0; r < size && status == LS_OK; r++)
        if (roots[r] < 0 || roots[r] >= size) status = ls_fail(LS_ERR_DATA, "rank %d's root", r);
    for (int r = 0; r < size && status == LS_OK; r++) node_of_root[roots[r]] = 0;
    for (int r = 0; r < size; r++)
        if (node_of_root[r] == 0) node_of_root[r] = count++;
    for (int r = 0; r < size && status == LS_OK; r++) roots[r] = node_of_root[roots[r]];
    ls__free(node_of_root);
    return status;
}

static ls_status collect(ls_world *world, int *node_of, int *local_of)
{
    for (int r = 0; r < world->size; r++) LS_TRY(read_place(world, r, &node_of[r], &local_of[r]));
    LS_TRY(number_nodes(node_of, world->size));
    ls__nodes *check;
    ls_status status = ls__nodes_create_from(node_of, local_of, world->size, &check);
    ls__nodes_destroy(check);
    return status;
}

/* Rank 0: the table as bytes, pairs of node and local rank; a text when there is none. */
static ls_status publish(ls_world *world)
{
    size_t size = (size_t)world->size;
    int *tables = ls__alloc(2 * size, sizeof *tables);
    uint32_t *pairs = ls__alloc(2 * size, sizeof *pairs);
    ls_status status = LS_ERR_MEMORY;
    if (tables && pairs) status = collect(world, tables, tables + size);
    if (status == LS_OK) {
        for (size_t r = 0; r < size; r++) {
            pairs[2 * r] = htole32((uint32_t)tables[r]);
            pairs[2 * r + 1] = htole32((uint32_t)tables[size + r]);
        }
        status = ls__store_set(world->store, nodes_key, pairs, 2 * size * sizeof *pairs);
    } else if (status != LS_ERR_PEER) {
        char text[600];
        int n = snprintf(text, sizeof text, "!%s", ls_error_text());
        LS_TRY(ls__store_set(world->store, nodes_key, text, (size_t)n));
        status = LS_OK; /* read again with everybody */
    }
    ls__free(tables);
    ls__free(pairs);
    return status;
}

static ls_status create_nodes(int size, const char *value, size_t nbytes, ls__nodes **out)
{
    *out = NULL;
    if (nbytes != 8 * (size_t)size || value[0] == '!')
        return ls_fail(LS_ERR_CONFIG, "the places of the ranks do not fit: %s",
                       value[0] == '!' ? value + 1 : "?");
    int *tables = ls__alloc(2 * (size_t)size, sizeof *tables);
    if (!tables) return LS_ERR_MEMORY;
    for (int r = 0; r < size; r++) {
        uint32_t pair[2];
        memcpy(pair, value + 8 * (size_t)r, sizeof pair);
        tables[r] = (int)le32toh(pair[0]);
        tables[size + r] = (int)le32toh(pair[1]);
    }
    ls_status status = ls__nodes_create_from(tables, tables + size, size, out);
    ls__free(tables);
    return status;
}

static ls_status tell_place(ls_world *world, int root_rank)
{
    char key[48], place[48];
    const cpu_set_t *mask = &world->launch.cpus.mask;
    snprintf(key, sizeof key, "world/cpus/%d", world->rank);
    LS_TRY(ls__store_set(world->store, key, mask, sizeof *mask));
    snprintf(key, sizeof key, "world/place/%d", world->rank);
    int n = snprintf(place, sizeof place, "%d %d", root_rank, world->local_rank);
    return ls__store_set(world->store, key, place, (size_t)n);
}

ls_status ls__come_together(ls_world *world, int root_rank)
{
    int timeout_ms = world->launch.timeout_ms;
    LS_TRY(tell_place(world, root_rank));
    ls_status status = ls__store_barrier(world->store, "rendezvous", world->size, timeout_ms);
    if (status == LS_ERR_TIMEOUT && world->local_size == world->size)
        return ls_fail(status,
                       "%s within %g s; for ranks on several machines set LOCAL_WORLD_SIZE to the "
                       "number of ranks on each",
                       ls_error_text(), timeout_ms * 1e-3);
    if (status == LS_ERR_TIMEOUT)
        return ls_fail(status, "%s within %g s", ls_error_text(), timeout_ms * 1e-3);
    LS_TRY(status);
    if (world->rank == 0) LS_TRY(publish(world));
    char *value;
    size_t nbytes;
    ls__nodes *nodes;
    LS_TRY(ls__store_get(world->store, nodes_key, timeout_ms, &value, &nbytes));
    status = create_nodes(world->size, value, nbytes, &nodes);
    ls__free(value);
    LS_TRY(status);
    int told = world->local_size; /* the shared memory is for so many */
    LS_TRY(ls__world_set_nodes(world, nodes));
    if (told == world->local_size) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "rank %d was told of %d ranks on its machine, and %d are there: correct "
                   "LOCAL_WORLD_SIZE, or what the launcher made of it",
                   world->rank, told, world->local_size);
}
