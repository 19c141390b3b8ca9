/* Who is odd: the text of a timeout or a mismatch, made from every rank's record of its latest call.
 *
 * Ranks that do the same are named together, the fewest first, because in a job of many ranks the
 * one that differs is the one to look at. Any number of ranks may be writing while this reads: a
 * record is a few independent atomics, and a report may be a call late but never wrong about one
 * that is stuck. */
#include "comm/comm_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/comm_site.h"

enum { LINE = 512, GRACE_MS = 200 };

static const char *const op_names[] = {
    [LS__OP_NONE] = "nothing",
    [LS__OP_BARRIER] = "barrier",
    [LS__OP_ALL_REDUCE] = "all_reduce",
    [LS__OP_REDUCE_SCATTER] = "reduce_scatter",
    [LS__OP_ALL_GATHER] = "all_gather",
    [LS__OP_BROADCAST] = "broadcast",
    [LS__OP_SEND] = "send",
    [LS__OP_RECV] = "recv",
    [LS__OP_ALLOC] = "alloc",
    [LS__OP_FREE] = "free",
    [LS__OP_AGREE] = "agree (end of a step)",
    [LS__OP_COMMIT] = "wait (for the step's commit)",
};
static const char *const reduce_names[] = { "sum", "min", "max" };

/* "all_reduce of 4096 f32 (sum)" */
static void call_text(uint64_t what, char *out, size_t nbytes)
{
    ls__call call = ls__call_unpack(what);
    int at = snprintf(out, nbytes, "%s", op_names[call.op]);
    char *rest = out + at;
    size_t left = nbytes - (size_t)at;
    const char *type = ls_dtype_name(call.type);
    switch (call.op) {
    case LS__OP_ALL_REDUCE:
    case LS__OP_REDUCE_SCATTER:
        snprintf(rest, left, " of %" PRId64 " %s (%s)", call.count, type,
                 reduce_names[call.reduce]);
        break;
    case LS__OP_ALL_GATHER:
        snprintf(rest, left, " of %" PRId64 " %s", call.count, type);
        break;
    case LS__OP_BROADCAST:
    case LS__OP_RECV:
        snprintf(rest, left, " of %" PRId64 " %s from rank %d", call.count, type, call.peer);
        break;
    case LS__OP_SEND:
        snprintf(rest, left, " of %" PRId64 " %s to rank %d", call.count, type, call.peer);
        break;
    case LS__OP_ALLOC:
        snprintf(rest, left, " of %" PRId64 " bytes", call.count);
        break;
    default:
        break;
    }
}

/* What rank r does, seen from call `seq`: "is in barrier, call 12, at main+0x1b2". */
static void rank_text(const ls_comm *comm, int r, uint64_t seq, char out[LINE])
{
    const struct ls__record_line *record = &comm->lanes[r].record;
    uint64_t theirs = atomic_load_explicit(&record->seq, memory_order_acquire);
    uint64_t what = atomic_load_explicit(&record->what, memory_order_relaxed);
    uint64_t site = atomic_load_explicit(&record->site, memory_order_relaxed);
    bool inside = atomic_load_explicit(&record->inside, memory_order_relaxed) != 0;
    if (what == 0) {
        snprintf(out, LINE, "has made no call yet");
        return;
    }
    char call[128], place[128];
    call_text(what, call, sizeof call);
    ls__site_text(atomic_load_explicit(&record->pid, memory_order_relaxed), site, place,
                  sizeof place);
    if (theirs < seq)
        snprintf(out, LINE, "has not made call %" PRIu64 "; %s %s, call %" PRIu64 ", at %s", seq,
                 inside ? "it is in" : "its last was", call, theirs, place);
    else
        snprintf(out, LINE, "%s %s, call %" PRIu64 ", at %s", inside ? "is in" : "has left", call,
                 theirs, place);
}

/* "rank 3" or "ranks 0-2, 5" for the ranks whose group is g. */
static void ranks_text(const int *group, int size, int g, char *out, size_t nbytes)
{
    int members = 0;
    for (int r = 0; r < size; r++) members += group[r] == g;
    size_t at = (size_t)snprintf(out, nbytes, members == 1 ? "rank " : "ranks ");
    const char *comma = "";
    for (int r = 0; r < size && at < nbytes; r++) {
        if (group[r] != g) continue;
        int last = r;
        while (last + 1 < size && group[last + 1] == g) last++;
        if (last > r + 1)
            at += (size_t)snprintf(out + at, nbytes - at, "%s%d-%d", comma, r, last);
        else
            at += (size_t)snprintf(out + at, nbytes - at, "%s%d", comma, last = r);
        comma = ", ";
        r = last;
    }
}

/* Numbers the different lines; group[r] is r's. Returns how many there are. */
static int find_groups(char (*lines)[LINE], int size, int *group)
{
    int ngroups = 0;
    for (int r = 0; r < size; r++) {
        group[r] = -1;
        for (int before = 0; before < r && group[r] < 0; before++)
            if (strcmp(lines[before], lines[r]) == 0) group[r] = group[before];
        if (group[r] < 0) group[r] = ngroups++;
    }
    return ngroups;
}

/* The smallest group not yet said; of equal ones the first. */
static int smallest_left(const int *group, int size, int ngroups, bool *said)
{
    int best = -1, best_members = 0;
    for (int g = 0; g < ngroups; g++) {
        int members = 0;
        for (int r = 0; r < size; r++) members += group[r] == g;
        if (!said[g] && (best < 0 || members < best_members)) {
            best = g;
            best_members = members;
        }
    }
    said[best] = true;
    return best;
}

/* "rank 1 is in ...; ranks 0, 2 are in ..." */
static void everybody(const ls_comm *comm, uint64_t seq, char *out, size_t nbytes)
{
    int size = comm->size;
    size_t count = (size_t)size;
    char(*lines)[LINE] = ls__alloc(count, LINE);
    int *group = ls__alloc(count, sizeof *group);
    bool *said = ls__alloc(count, sizeof *said);
    out[0] = '\0';
    if (lines && group && said) {
        for (int r = 0; r < size; r++) rank_text(comm, r, seq, lines[r]);
        int ngroups = find_groups(lines, size, group);
        size_t at = 0;
        for (int i = 0; i < ngroups && at + 1 < nbytes; i++) {
            int g = smallest_left(group, size, ngroups, said), first = 0;
            char ranks[256];
            ranks_text(group, size, g, ranks, sizeof ranks);
            while (group[first] != g) first++;
            at += (size_t)snprintf(out + at, nbytes - at, "%s%s: %s", i ? "; " : "", ranks,
                                   lines[first]);
        }
    }
    ls__free(lines);
    ls__free(group);
    ls__free(said);
}

ls_status ls__comm_report_timeout(ls_comm *comm)
{
    if (!comm->lane)
        return ls_fail(LS_ERR_TIMEOUT, "rank 0 did not create the communicator within %.3g s",
                       1e-9 * (double)comm->timeout_ns);
    char text[1536];
    everybody(comm, comm->seq, text, sizeof text);
    return ls_fail(LS_ERR_TIMEOUT,
                   "call %" PRIu64 " was not finished within %.3g s: %s; if the wait was meant, "
                   "give a longer --timeout",
                   comm->seq, 1e-9 * (double)comm->timeout_ns, text);
}

/* Gives the others a moment to arrive, so that the report knows what they call. */
static void await_records(const ls_comm *comm)
{
    double end = ls__now() + 1e-3 * GRACE_MS;
    for (int r = 0; r < comm->size; r++)
        while (atomic_load_explicit(&comm->lanes[r].record.seq, memory_order_acquire) < comm->seq &&
               ls__now() < end && !ls__shm_poisoned(comm->shm, NULL))
            ls__sleep_ms(1);
}

ls_status ls__comm_report_mismatch(ls_comm *comm)
{
    await_records(comm);
    char text[1536];
    everybody(comm, comm->seq, text, sizeof text);
    return ls_fail(LS_ERR_MISMATCH,
                   "ranks disagree about call %" PRIu64 ": %s; every rank must make the same calls "
                   "in the same order with the same count and type",
                   comm->seq, text);
}

ls_status ls__comm_report_pair(ls_comm *comm, const ls__call *call, uint64_t theirs, uint64_t site)
{
    char mine[128], other[128], here[128], there[128];
    int pid = atomic_load(&comm->lanes[call->peer].record.pid);
    ls__call counterpart = ls__call_unpack(theirs);
    counterpart.op = call->op == LS__OP_SEND ? LS__OP_RECV : LS__OP_SEND;
    counterpart.peer = comm->rank;
    call_text(ls__call_what(call), mine, sizeof mine);
    call_text(ls__call_what(&counterpart), other, sizeof other);
    ls__site_text(atomic_load(&comm->lane->record.pid), (uintptr_t)call->site, here, sizeof here);
    ls__site_text(pid, site, there, sizeof there);
    return ls_fail(LS_ERR_MISMATCH,
                   "ranks disagree: rank %d: is in %s, at %s; rank %d: is in %s, at %s; count and "
                   "type must be the same on both sides",
                   comm->rank, mine, here, call->peer, other, there);
}
