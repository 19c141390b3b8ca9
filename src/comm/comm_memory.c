/* Memory that all ranks can read and write.
 *
 * Rank 0 reserves and says where in the meeting of the call; a second meeting tells everybody
 * whether everybody could map it, so that all have it or none. Pages are taken here, each part by
 * its own rank, and page tables filled: no page fault is left for the first exchange. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "comm/net_internal.h"
#include "comm/work.h"

static ls_status reserve_alone(size_t nbytes, size_t touched, ls__allocation *out)
{
    out->stride = ls__round_up(nbytes, LS__PAGE);
    out->base = ls__map(out->stride);
    ls__map_populate(out->base, touched, NULL);
    return out->base ? LS_OK : LS_ERR_MEMORY;
}

/* Every rank learns the worst status; the text of the rank that has it stays there. */
static ls_status agree_on_status(ls_comm *comm, const ls__call *call, ls_status status)
{
    LS_TRY(ls__comm_gather_inlined(comm, call, &status, sizeof status));
    for (int r = 0; r < comm->size; r++) {
        ls_status theirs;
        memcpy(&theirs, ls__comm_inlined(comm, r), sizeof theirs);
        if (theirs != LS_OK && status == LS_OK)
            status = ls_fail(theirs, "rank %d could not get %lld bytes of shared memory",
                             ls__comm_name(comm, r), (long long)call->count);
    }
    return status;
}

/* Where rank 0 reserved size parts of stride bytes; 0 = it failed. */
static ls_status find_space(ls_comm *comm, size_t stride, const ls__call *call, uint64_t *offset)
{
    size_t at = 0;
    ls_status status = LS_OK;
    if (comm->rank == 0)
        status = ls__shm_reserve(comm->shm, stride * (size_t)comm->size, false, &at);
    *offset = status == LS_OK ? at : 0;
    ls__comm_enter(comm, call, offset, sizeof *offset);
    LS_TRY(ls__comm_meet(comm));
    memcpy(offset, ls__comm_inlined(comm, 0), sizeof *offset);
    if (*offset != 0) return LS_OK;
    if (comm->rank == 0) return status;
    return ls_fail(LS_ERR_MEMORY, "rank %d could not reserve %lld bytes of shared memory per rank",
                   ls__comm_name(comm, 0), (long long)call->count);
}

void ls__allocation_unmap(ls_comm *comm, const ls__allocation *allocation)
{
    comm = ls__comm_local(comm);
    if (!comm->lane)
        ls__unmap(allocation->base, allocation->stride);
    else
        ls__shm_unmap(comm->shm, allocation->base);
}

/* Every node's ranks have theirs, or none. */
static ls_status reserve_on_nodes(ls_comm *comm, size_t nbytes, size_t touched,
                                  const ls__call *call, ls_status status, ls__allocation *out)
{
    ls_comm *local = comm->nodes->local;
    status = ls__comm_reserve(local, nbytes, touched, call, status, out);
    status = ls__net_agree(comm->nodes, call, status);
    if (status != LS_OK && out->base) ls__comm_release(local, out, call);
    if (status != LS_OK) *out = (ls__allocation) { 0 };
    return status;
}

ls_status ls__comm_reserve(ls_comm *comm, size_t nbytes, size_t touched, const ls__call *call,
                           ls_status status, ls__allocation *out)
{
    *out = (ls__allocation) { 0 };
    if (comm->broken != LS_OK) return ls__comm_broken(comm);
    LS_TRY(ls__works_finish(comm));
    if (comm->nodes) return reserve_on_nodes(comm, nbytes, touched, call, status, out);
    if (!comm->lane) return status == LS_OK ? reserve_alone(nbytes, touched, out) : status;
    size_t stride = ls__round_up(nbytes, LS__PAGE), total = stride * (size_t)comm->size;
    uint64_t offset;
    LS_TRY(find_space(comm, stride, call, &offset));
    *out = (ls__allocation) { .offset = offset, .stride = stride };
    void *base = NULL;
    if (status == LS_OK) status = ls__shm_map(comm->shm, offset, total, &base);
    out->base = base;
    if (status == LS_OK && touched > 0)
        status = ls__shm_populate(ls__allocation_part(out, comm->rank), touched);
    status = agree_on_status(comm, call, status);
    ls__comm_leave(comm);
    if (status == LS_OK) return LS_OK;
    if (base) ls__allocation_unmap(comm, out);
    if (comm->rank == 0) ls__shm_release(comm->shm, offset, total);
    *out = (ls__allocation) { 0 };
    return status;
}

void ls__comm_release(ls_comm *comm, const ls__allocation *allocation, const ls__call *call)
{
    if (!allocation->base) return;
    ls_status status = comm->broken;
    if (status == LS_OK) status = ls__works_finish(comm);
    if (comm->nodes) {
        comm = comm->nodes->local;
        if (status == LS_OK) status = comm->broken;
    }
    if (status == LS_OK) status = ls__comm_gather_inlined(comm, call, "", 0);
    ls__allocation_unmap(comm, allocation);
    if (status == LS_OK && comm->lane && comm->rank == 0)
        ls__shm_release(comm->shm, allocation->offset, allocation->stride * (size_t)comm->size);
    if (status == LS_OK) ls__comm_leave(comm);
}

/* Room for one more entry. */
static ls_status grow_allocations(ls_comm *comm)
{
    if (comm->nallocations < comm->allocations_capacity) return LS_OK;
    int capacity = comm->allocations_capacity ? 2 * comm->allocations_capacity : 8;
    void *grown = ls__realloc(comm->allocations, (size_t)capacity, sizeof *comm->allocations);
    if (!grown) return LS_ERR_MEMORY;
    comm->allocations = grown;
    comm->allocations_capacity = capacity;
    return LS_OK;
}

ls_status ls_comm_alloc(ls_comm *comm, size_t nbytes, void **out)
{
    *out = NULL;
    ls__call call = { .op = LS__OP_ALLOC,
                      .type = LS_DTYPE_U8,
                      .count = (int64_t)nbytes,
                      .site = __builtin_return_address(0) };
    if (nbytes == 0 || nbytes >> 42)
        return ls_fail(LS_ERR_ARG, "%zu bytes of communicator memory", nbytes);
    ls__allocation allocation;
    LS_TRY(ls__comm_reserve(comm, nbytes, nbytes, &call, grow_allocations(comm), &allocation));
    const ls_comm *local = ls__comm_local(comm);
    if (local->lane) ls__shm_prefault(allocation.base, allocation.stride * (size_t)local->size);
    comm->allocations[comm->nallocations++] = allocation;
    *out = ls__allocation_part(&allocation, local->rank);
    return LS_OK;
}

void ls_comm_free(ls_comm *comm, void *data)
{
    if (!data) return;
    for (int i = 0; i < comm->nallocations; i++) {
        ls__allocation allocation = comm->allocations[i];
        if (ls__allocation_part(&allocation, ls__comm_local(comm)->rank) != data) continue;
        comm->allocations[i] = comm->allocations[--comm->nallocations];
        ls__call call = { .op = LS__OP_FREE,
                          .type = LS_DTYPE_U8,
                          .count = (int64_t)allocation.stride,
                          .site = __builtin_return_address(0) };
        ls__comm_release(comm, &allocation, &call);
        return;
    }
}

size_t ls__comm_locate(const ls_comm *comm, const void *p, size_t nbytes)
{
    uintptr_t at = (uintptr_t)p;
    for (int i = 0; i < comm->nallocations; i++) {
        const ls__allocation *a = &comm->allocations[i];
        uintptr_t own = (uintptr_t)ls__allocation_part(a, comm->rank);
        if (at >= own && at - own <= a->stride && nbytes <= a->stride - (at - own))
            return a->offset + (size_t)comm->rank * a->stride + (at - own);
    }
    return 0;
}

void *ls__comm_address(const ls_comm *comm, size_t offset)
{
    for (int i = 0; i < comm->nallocations; i++) {
        const ls__allocation *a = &comm->allocations[i];
        if (offset >= a->offset && offset - a->offset < a->stride * (size_t)comm->size)
            return a->base + (offset - a->offset);
    }
    return NULL;
}
