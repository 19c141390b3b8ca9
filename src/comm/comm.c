/* Communicators over shared memory: made, taken apart, broken.
 *
 * Ranks find each other by number: the k-th communicator that a rank creates over a file is the
 * k-th of every rank. Rank 0 reserves the region, and the others wait for its offset in the control
 * page, so creating needs no other channel. Everything a collective will need is allocated here. */
#include "comm/comm_internal.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "comm/net_internal.h"
#include "comm/work.h"

enum {
    TIMEOUT_MS = 300000,
    ARENA = 256 << 10,
    SPIN_NS = 50000,
    SPIN_CROWDED_NS = 1000,
    YIELDS_CROWDED = 4,
};

int ls_comm_rank(const ls_comm *comm)
{
    return comm->rank;
}

int ls_comm_size(const ls_comm *comm)
{
    return comm->size;
}

/* Sets the region's parts from its base, or (base NULL) only its size. */
static void lay_out(ls_comm *comm, unsigned char *base)
{
    size_t size = (size_t)comm->size;
    size_t lanes = 0;
    size_t pairs = lanes + size * sizeof(ls__lane);
    size_t slots = ls__round_up(pairs + size * size * sizeof(ls__pair), LS__PAGE);
    size_t mail = slots + size * LS__SLOTS * comm->arena;
    comm->nbytes = ls__round_up(mail + size * 2 * comm->arena, LS__PAGE);
    if (!base) return;
    comm->region = base;
    comm->lanes = (ls__lane *)(void *)(base + lanes);
    comm->lane = &comm->lanes[comm->rank];
    comm->pairs = (ls__pair *)(void *)(base + pairs);
    comm->slots = base + slots;
    comm->mail = base + mail;
}

/* Rank 0 reserves the region and says where; the others wait for that. */
static ls_status find_region(ls_comm *comm)
{
    ls__shm *shm = comm->shm;
    uint32_t number = atomic_fetch_add(&shm->bells[comm->rank].comms, 1);
    if (number >= LS__COMMS_MAX)
        return ls_fail(LS_ERR_UNSUPPORTED, "more than %d communicators in one job", LS__COMMS_MAX);
    comm->number = (int)number;
    _Atomic uint64_t *word = &shm->control->comms[number].offset;
    ls_status status = LS_OK;
    if (comm->rank == 0) {
        status = ls__shm_reserve(shm, comm->nbytes, true, &comm->offset);
        ls__comm_publish(comm, word, status == LS_OK ? comm->offset : 1);
        return status;
    }
    LS_TRY(ls__comm_wait(comm, 0, word, 1));
    comm->offset = atomic_load(word);
    if (comm->offset == 1)
        return ls_fail(LS_ERR_PEER, "rank %d could not create the communicator",
                       ls__comm_name(comm, 0));
    return LS_OK;
}

static ls_status join_region(ls_comm *comm)
{
    lay_out(comm, NULL);
    LS_TRY(find_region(comm));
    void *base;
    LS_TRY(ls__shm_map(comm->shm, comm->offset, comm->nbytes, &base));
    lay_out(comm, base);
    LS_TRY(ls__shm_populate(base, (size_t)(comm->slots - comm->region)));
    size_t own = LS__SLOTS * comm->arena;
    unsigned char *first = comm->slots + (size_t)comm->rank * own;
    size_t before = (size_t)(first - comm->region) % LS__PAGE;
    LS_TRY(ls__shm_populate(first - before, own + before));
    atomic_store(&comm->lane->record.pid, (int)getpid());
    return LS_OK;
}

static void set_options(ls_comm *comm, const ls__comm_shm_options *options)
{
    int timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
    comm->timeout_ns = timeout_ms == LS_NONE ? INT64_MAX : (int64_t)timeout_ms * 1000000;
    comm->spin_ns = options->oversubscribed ? SPIN_CROWDED_NS : SPIN_NS;
    comm->yields = options->oversubscribed ? YIELDS_CROWDED : 0;
    comm->arena = ls__round_up(options->arena ? options->arena : ARENA, 64);
}

ls_status ls__comm_shm_create(ls__shm *shm, const ls__comm_shm_options *options, ls_comm **out)
{
    *out = NULL;
    int rank = options->rank, size = options->size;
    if (size < 1 || rank < 0 || rank >= size)
        return ls_fail(LS_ERR_ARG, "rank %d is not in [0, %d)", rank, size);
    bool alone = size == 1 && !options->names;
    if (!alone && (!shm || shm->size != size))
        return ls_fail(LS_ERR_ARG, "a communicator of %d ranks needs shared memory for as many",
                       size);
    ls_comm *comm = ls__alloc(1, sizeof *comm);
    if (!comm) return LS_ERR_MEMORY;
    comm->rank = rank;
    comm->size = size;
    comm->shm = alone ? NULL : shm;
    comm->names = options->names;
    comm->last = &comm->first;
    comm->kernels = ls__kernels_best();
    set_options(comm, options);
    comm->sources = ls__alloc((size_t)size, sizeof *comm->sources);
    comm->targets = ls__alloc((size_t)size, sizeof *comm->targets);
    ls_status status = comm->sources && comm->targets ? LS_OK : LS_ERR_MEMORY;
    if (status == LS_OK) status = ls__tree_create_full(size, &comm->tree);
    if (status == LS_OK && !alone) status = join_region(comm);
    if (status != LS_OK) {
        ls__comm_destroy(comm);
        return status;
    }
    *out = comm;
    return LS_OK;
}

/* The last rank to leave gives the memory back; the space in the file stays taken. */
static void leave_region(ls_comm *comm)
{
    ls__shm_unmap(comm->shm, comm->region);
    uint32_t left = atomic_fetch_add(&comm->shm->control->comms[comm->number].left, 1) + 1;
    if (left == (uint32_t)comm->size) ls__shm_punch(comm->shm, comm->offset, comm->nbytes);
}

void ls__comm_destroy(ls_comm *comm)
{
    if (!comm) return;
    ls__works_free(comm);
    for (int i = 0; i < comm->nallocations; i++) ls__allocation_unmap(comm, &comm->allocations[i]);
    ls__net_destroy(comm->nodes);
    ls__free(comm->allocations);
    if (comm->region) leave_region(comm);
    ls__tree_destroy(comm->tree);
    ls__free(comm->sources);
    ls__free(comm->targets);
    ls__free(comm);
}

ls_status ls__comm_break(ls_comm *comm, ls_status status)
{
    if (comm->broken != LS_OK) return status;
    comm->broken = status;
    strncpy(comm->broken_text, ls_error_text(), sizeof comm->broken_text - 1);
    return status;
}

ls_status ls__comm_broken(ls_comm *comm)
{
    return ls_fail(comm->broken, "%s (this communicator failed before and can only be destroyed)",
                   comm->broken_text);
}
