/* Collectives over shared memory: four ways, by size and by where the buffers lie.
 *
 *     inline     to 48 bytes: in the cache line of the flag; one meeting
 *     direct     buffers in communicator memory: each rank reduces its part straight from all
 *                inputs and writes it to all outputs; a meeting and a step, no copy
 *     one shot   to a few KiB: copied to a slot before the meeting, and everybody reads everything
 *     pipeline   anything else: chunks through slots (pipeline.c)
 *
 * The first is chosen from the call alone. For the others each rank tells where its buffers lie, in
 * the meeting, so that all choose the same. Expected: gradients and parameters of megabytes in
 * communicator memory, metrics of some bytes, now and then a private buffer of a user's. */
#include "comm/collective.h"

#include <string.h>

#include "base/check.h"
#include "comm/net_internal.h"

enum { ONE_SHOT = 8 << 10 }; /* bytes that a rank contributes */

/* What a rank says about its buffers. */
typedef struct place {
    uint64_t in, out; /* offsets in the file; 0 = private */
    uint64_t primed;  /* its contribution, or the first chunk of it, is in the slot */
} place;

ls__part ls__part_of(int64_t count, size_t element, int r, int size)
{
    int64_t line = 64 / (int64_t)element;
    int64_t per = (count + size - 1) / size;
    per = (per + line - 1) / line * line;
    int64_t begin = r * per < count ? r * per : count;
    int64_t end = begin + per < count ? begin + per : count;
    return (ls__part) { begin, end - begin };
}

/* Elements that a rank contributes. */
static int64_t contributed(const ls_comm *comm, const ls__call *call)
{
    return call->op == LS__OP_REDUCE_SCATTER ? call->count * comm->size : call->count;
}

static size_t contributed_nbytes(const ls_comm *comm, const ls__call *call)
{
    return (size_t)contributed(comm, call) * ls_dtype_size(call->type);
}

static bool is_inline(const ls_comm *comm, const ls__call *call)
{
    return contributed_nbytes(comm, call) <= LS__INLINE;
}

static bool is_one_shot(const ls_comm *comm, const ls__call *call)
{
    size_t nbytes = contributed_nbytes(comm, call);
    return nbytes <= ONE_SHOT && nbytes <= comm->arena;
}

/* Whether this rank has anything to bring. */
static bool brings(const ls_comm *comm, const ls__call *call)
{
    return call->op != LS__OP_BARRIER && (call->op != LS__OP_BROADCAST || call->peer == comm->rank);
}

ls_status ls__slots_settle(ls_comm *comm)
{
    if (comm->settled == comm->progress) return LS_OK;
    comm->settled = comm->progress;
    return ls__comm_await_step(comm, comm->progress);
}

static void enter_inline(ls_comm *comm, const ls__call *call)
{
    bool mine = brings(comm, call) && call->count > 0;
    ls__comm_enter(comm, call, mine ? call->in : "", mine ? contributed_nbytes(comm, call) : 0);
}

/* Whether these buffers are where a direct transfer needs them. */
static bool is_direct(const ls__call *call, int r, const place *buffers)
{
    if (call->op == LS__OP_BROADCAST) return r != call->peer || buffers->in != 0;
    return buffers->in != 0 && (call->op != LS__OP_ALL_REDUCE || buffers->out != 0);
}

/* Puts into the slot what the others will read first. */
static ls_status prime(ls_comm *comm, const ls__call *call)
{
    LS_TRY(ls__slots_settle(comm));
    if (is_one_shot(comm, call))
        memcpy(ls__slot(comm, comm->rank, comm->seq + 1, 0), call->in,
               contributed_nbytes(comm, call));
    else
        ls__pipeline_prime(comm, call, comm->seq + 1);
    return LS_OK;
}

static ls_status enter(ls_comm *comm, const ls__call *call)
{
    size_t nbytes = contributed_nbytes(comm, call);
    place mine = { .in = ls__comm_locate(comm, call->in, nbytes) };
    if (call->op == LS__OP_ALL_REDUCE) mine.out = ls__comm_locate(comm, call->out, nbytes);
    mine.primed = !is_direct(call, comm->rank, &mine) || !brings(comm, call);
    if (mine.primed && brings(comm, call)) LS_TRY(prime(comm, call));
    ls__comm_enter(comm, call, &mine, sizeof mine);
    return LS_OK;
}

ls_status ls__collective_begin(ls_comm *comm, const ls__call *call)
{
    if (!comm->lane) return LS_OK;
    if (!is_inline(comm, call)) return enter(comm, call);
    enter_inline(comm, call);
    return LS_OK;
}

/* What rank r contributed to a call that was inline or one shot. */
static const unsigned char *contribution(const ls_comm *comm, int r, bool inlined)
{
    return inlined ? ls__comm_inlined(comm, r) : ls__slot(comm, r, comm->seq, 0);
}

/* The call's result when every rank can read every contribution whole. */
static void finish_whole(ls_comm *comm, const ls__call *call, bool inlined)
{
    size_t element = ls_dtype_size(call->type), nbytes = (size_t)call->count * element;
    unsigned char *out = call->out;
    if (nbytes == 0) return;
    switch (call->op) {
    case LS__OP_BROADCAST:
        if (call->peer != comm->rank) memcpy(out, contribution(comm, call->peer, inlined), nbytes);
        break;
    case LS__OP_ALL_GATHER:
        for (int r = 0; r < comm->size; r++)
            memcpy(out + (size_t)r * nbytes, contribution(comm, r, inlined), nbytes);
        break;
    case LS__OP_ALL_REDUCE:
    case LS__OP_REDUCE_SCATTER: {
        size_t first = call->op == LS__OP_REDUCE_SCATTER ? (size_t)comm->rank * nbytes : 0;
        for (int r = 0; r < comm->size; r++)
            comm->sources[r] = contribution(comm, r, inlined) + first;
        ls__reduce(comm->kernels, comm->tree, call->type, call->reduce, out, comm->sources, 0,
                   call->count);
        break;
    }
    default:
        break;
    }
}

/* A part of the sum into every rank's output, block by block: the block is in L1 when the copies
 * are made, and its lines were just read there. */
static void reduce_to_all(ls_comm *comm, const ls__call *call, ls__part part)
{
    const ls__kernels *kernels = comm->kernels;
    size_t element = ls_dtype_size(call->type);
    ls__combine_twice_fn *twice = kernels->combine_twice[call->type][call->reduce];
    if (comm->size == 2 && twice) {
        size_t at = (size_t)part.begin * element;
        twice((char *)comm->targets[0] + at, (char *)comm->targets[1] + at,
              (const char *)comm->sources[0] + at, (const char *)comm->sources[1] + at,
              (size_t)part.count);
        return;
    }
    int64_t block = LS__REDUCE_BLOCK / (int64_t)element;
    for (int64_t at = part.begin; at < part.begin + part.count; at += block) {
        int64_t left = part.begin + part.count - at, n = left < block ? left : block;
        ls__reduce(kernels, comm->tree, call->type, call->reduce, call->out, comm->sources, at, n);
        size_t first = (size_t)at * element, nbytes = (size_t)n * element;
        for (int r = 0; r < comm->size; r++)
            if (r != comm->rank)
                kernels->copy((char *)comm->targets[r] + first, (char *)call->out + first, nbytes);
    }
}

static void copy_unless_same(void *dst, const void *src, size_t nbytes)
{
    if (dst != src) memmove(dst, src, nbytes);
}

static void transfer_direct(ls_comm *comm, const ls__call *call)
{
    size_t element = ls_dtype_size(call->type), nbytes = (size_t)call->count * element;
    unsigned char *out = call->out;
    switch (call->op) {
    case LS__OP_ALL_REDUCE:
        reduce_to_all(comm, call, ls__part_of(call->count, element, comm->rank, comm->size));
        break;
    case LS__OP_REDUCE_SCATTER:
        for (int r = 0; r < comm->size; r++)
            comm->sources[r] = (const char *)comm->sources[r] + (size_t)comm->rank * nbytes;
        ls__reduce(comm->kernels, comm->tree, call->type, call->reduce, out, comm->sources, 0,
                   call->count);
        break;
    case LS__OP_ALL_GATHER:
        for (int r = 0; r < comm->size; r++)
            if (out + (size_t)r * nbytes != comm->sources[r])
                memcpy(out + (size_t)r * nbytes, comm->sources[r], nbytes);
        break;
    case LS__OP_BROADCAST:
        if (call->peer != comm->rank) memcpy(out, comm->sources[call->peer], nbytes);
        break;
    default:
        break;
    }
}

/* Reads where everybody's buffers lie; true when all are where a direct transfer needs them. */
static bool read_places(ls_comm *comm, const ls__call *call, bool *primed_everywhere)
{
    bool direct = true;
    *primed_everywhere = true;
    for (int r = 0; r < comm->size; r++) {
        place theirs;
        memcpy(&theirs, ls__comm_inlined(comm, r), sizeof theirs);
        direct = direct && is_direct(call, r, &theirs);
        *primed_everywhere = *primed_everywhere && theirs.primed;
        comm->sources[r] = r == comm->rank ? call->in : ls__comm_address(comm, theirs.in);
        comm->targets[r] = r == comm->rank ? call->out : ls__comm_address(comm, theirs.out);
    }
    return direct;
}

/* Buffers of both kinds met: ranks that counted on a direct transfer fill their slots now. */
static ls_status prime_late(ls_comm *comm, const ls__call *call, bool primed_here)
{
    if (!primed_here && is_one_shot(comm, call))
        memcpy(ls__slot(comm, comm->rank, comm->seq, 0), call->in, contributed_nbytes(comm, call));
    else if (!primed_here)
        ls__pipeline_prime(comm, call, comm->seq);
    ls__comm_step(comm);
    return ls__comm_await_step(comm, comm->progress);
}

static ls_status finish_met(ls_comm *comm, const ls__call *call)
{
    bool everywhere;
    place mine;
    memcpy(&mine, ls__comm_inlined(comm, comm->rank), sizeof mine);
    if (read_places(comm, call, &everywhere)) {
        transfer_direct(comm, call);
        ls__comm_step(comm);
        return ls__comm_await_step(comm, comm->progress);
    }
    if (!everywhere) LS_TRY(prime_late(comm, call, mine.primed != 0));
    if (!is_one_shot(comm, call)) return ls__pipeline_run(comm, call);
    finish_whole(comm, call, false);
    return LS_OK;
}

/* A world of one: the result is the contribution. */
static ls_status finish_alone(const ls__call *call)
{
    size_t nbytes = (size_t)call->count * ls_dtype_size(call->type);
    if (call->op != LS__OP_BARRIER && nbytes > 0) copy_unless_same(call->out, call->in, nbytes);
    return LS_OK;
}

ls_status ls__collective_finish(ls_comm *comm, const ls__call *call)
{
    if (!comm->lane)
        return comm->nodes ? ls__net_collective(comm->nodes, call) : finish_alone(call);
    LS_TRY(ls__comm_meet(comm));
    if (!is_inline(comm, call)) return finish_met(comm, call);
    finish_whole(comm, call, true);
    return LS_OK;
}
