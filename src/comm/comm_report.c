/* Who is odd: the text of a timeout or a mismatch, made from every rank's record of its latest call.
 *
 * Ranks that do the same are named together, the fewest first, because in a job of many ranks the
 * one that differs is the one to look at. Any number of ranks may be writing while this reads: a
 * record is a few independent atomics, and a report may be a call late but never wrong about one
 * that is stuck. */
#include "comm/comm_report.h"

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

/* What a rank was doing when the report looked. */
static void look(const ls_comm *comm, int r, ls__activity *out)
{
    out->silent = false;
    const struct ls__record_line *record = &comm->lanes[r].record;
    out->seq = atomic_load_explicit(&record->seq, memory_order_acquire);
    out->what = atomic_load_explicit(&record->what, memory_order_relaxed);
    out->inside = atomic_load_explicit(&record->inside, memory_order_relaxed) != 0;
    /* A rank that reports by itself may be gone before we can look into its process, or while we do:
     * then it has left its place. */
    if (!atomic_load_explicit(&record->placed, memory_order_acquire))
        ls__site_text(atomic_load_explicit(&record->pid, memory_order_relaxed),
                      atomic_load_explicit(&record->site, memory_order_relaxed), out->place,
                      LS__PLACE);
    if (atomic_load_explicit(&record->placed, memory_order_acquire))
        memcpy(out->place, record->place, LS__PLACE);
}

/* Before a rank reports, it resolves its own place for the others. */
static void place_own(ls_comm *comm)
{
    struct ls__record_line *record = &comm->lane->record;
    if (atomic_load_explicit(&record->placed, memory_order_relaxed)) return;
    ls__site_text(atomic_load_explicit(&record->pid, memory_order_relaxed),
                  atomic_load_explicit(&record->site, memory_order_relaxed), record->place,
                  LS__PLACE);
    atomic_store_explicit(&record->placed, 1, memory_order_release);
}

static bool same_activity(const ls__activity *a, const ls__activity *b)
{
    return a->seq == b->seq && a->what == b->what && a->inside == b->inside &&
           a->silent == b->silent && strcmp(a->place, b->place) == 0;
}

/* "is in barrier, call 12, at main+0x1b2", seen from call `seq`. */
static void activity_text(const ls__activity *a, uint64_t seq, bool plural, char *out,
                          size_t nbytes)
{
    const char *have = plural ? "have" : "has";
    char call[128];
    call_text(a->what, call, sizeof call);
    if (a->silent)
        snprintf(out, nbytes, "%s not made call %" PRIu64, have, seq);
    else if (a->what == 0)
        snprintf(out, nbytes, "%s made no call yet", have);
    else if (a->seq < seq && a->inside)
        snprintf(out, nbytes,
                 "%s not made call %" PRIu64 "; %s in %s, after call %" PRIu64 ", at %s", have, seq,
                 plural ? "they are" : "it is", call, a->seq, a->place);
    else if (a->seq < seq)
        snprintf(out, nbytes,
                 "%s not made call %" PRIu64 "; %s last was %s, call %" PRIu64 ", at %s", have, seq,
                 plural ? "their" : "its", call, a->seq, a->place);
    else
        snprintf(out, nbytes, "%s %s, call %" PRIu64 ", at %s",
                 !a->inside ? plural ? "have left" : "has left"
                 : plural   ? "are in"
                            : "is in",
                 call, a->seq, a->place);
}

/* "rank 3" or "ranks 0-2, 5" for the ranks whose group is g. */
static void ranks_text(const int *group, int size, const int *names, int g, char *out,
                       size_t nbytes)
{
    int members = 0;
    for (int r = 0; r < size; r++) members += group[r] == g;
    size_t at = (size_t)snprintf(out, nbytes, members == 1 ? "rank " : "ranks ");
    const char *comma = "";
    for (int r = 0; r < size && at < nbytes; r++) {
        if (group[r] != g) continue;
        int last = r, first = names ? names[r] : r;
        while (last + 1 < size && group[last + 1] == g &&
               (!names || names[last + 1] == names[last] + 1))
            last++;
        if (last > r + 1)
            at +=
                (size_t)snprintf(out + at, nbytes - at, "%s%d-%d", comma, first, first + last - r);
        else
            at += (size_t)snprintf(out + at, nbytes - at, "%s%d", comma, first), last = r;
        comma = ", ";
        r = last;
    }
}

/* Numbers the different activities; group[r] is r's. Returns how many there are. */
static int find_groups(const ls__activity *each, int size, int *group)
{
    int ngroups = 0;
    for (int r = 0; r < size; r++) {
        group[r] = -1;
        for (int before = 0; before < r && group[r] < 0; before++)
            if (same_activity(&each[before], &each[r])) group[r] = group[before];
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

static void say_groups(const ls__activity *each, int *group, bool *said, int size, const int *names,
                       uint64_t seq, char *out, size_t nbytes)
{
    int ngroups = find_groups(each, size, group);
    size_t at = 0;
    for (int i = 0; i < ngroups && at + 1 < nbytes; i++) {
        int members = 0, first = -1, g = smallest_left(group, size, ngroups, said);
        for (int r = size - 1; r >= 0; r--)
            if (group[r] == g) members++, first = r;
        char ranks[256], text[LINE];
        ranks_text(group, size, names, g, ranks, sizeof ranks);
        activity_text(&each[first], seq, members > 1, text, sizeof text);
        at += (size_t)snprintf(out + at, nbytes - at, "%s%s %s", i ? "; " : "", ranks, text);
    }
}

void ls__activities_text(const ls__activity *each, int size, const int *names, uint64_t seq,
                         char *out, size_t nbytes)
{
    int *group = ls__alloc((size_t)size, sizeof *group);
    bool *said = ls__alloc((size_t)size, sizeof *said);
    out[0] = '\0';
    if (group && said) say_groups(each, group, said, size, names, seq, out, nbytes);
    ls__free(group);
    ls__free(said);
}

void ls__activity_own(ls_comm *comm, ls__activity *out)
{
    place_own(comm);
    look(comm, comm->rank, out);
}

static void everybody(ls_comm *comm, uint64_t seq, char *out, size_t nbytes)
{
    ls__activity *each = ls__alloc((size_t)comm->size, sizeof *each);
    out[0] = '\0';
    if (!each) return;
    place_own(comm);
    for (int r = 0; r < comm->size; r++) look(comm, r, &each[r]);
    ls__activities_text(each, comm->size, comm->names, seq, out, nbytes);
    ls__free(each);
}

ls_status ls__comm_report_timeout(ls_comm *comm)
{
    if (!comm->lane)
        return ls_fail(LS_ERR_TIMEOUT, "rank %d did not create the communicator within %.3g s",
                       ls__comm_name(comm, 0), 1e-9 * (double)comm->timeout_ns);
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
    char mine[128], other[128], there[LS__PLACE];
    int peer_at = ls__comm_index(comm, call->peer);
    int pid = atomic_load(&comm->lanes[peer_at].record.pid);
    ls__call counterpart = ls__call_unpack(theirs);
    counterpart.op = call->op == LS__OP_SEND ? LS__OP_RECV : LS__OP_SEND;
    counterpart.peer = ls__comm_name(comm, comm->rank);
    call_text(ls__call_what(call), mine, sizeof mine);
    call_text(ls__call_what(&counterpart), other, sizeof other);
    place_own(comm);
    ls__activity peer;
    look(comm, peer_at, &peer);
    const char *place = there; /* as the peer says, if it still is in that call */
    if (atomic_load(&comm->lanes[peer_at].record.site) == site)
        place = peer.place;
    else
        ls__site_text(pid, site, there, sizeof there);
    return ls_fail(LS_ERR_MISMATCH,
                   "ranks disagree: rank %d is in %s, at %s; rank %d is in %s, at %s; count and "
                   "type must be the same on both sides",
                   ls__comm_name(comm, comm->rank), mine, comm->lane->record.place, call->peer,
                   other, place);
}
