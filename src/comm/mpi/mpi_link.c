/* lockstep_mpi.so: links by the system's MPI.
 *
 * A channel is a tag on a communicator of our own, so MPI's rule that messages do not overtake gives
 * the order. Started by mpirun or srun, MPI's ranks are ours; its memory, interconnects and options
 * are the site's affair. Workload: a few messages at a time of up to gigabytes; long ones are cut,
 * because MPI counts in int.
 *
 * MPI 3 cannot tell a live peer from a dead one: mpirun ends the job when a rank dies, and else the
 * caller's patience ends the wait. MPI ends with the process, not with the link, because it cannot
 * be started a second time. */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/link.h"

enum {
    PIECE = 32 << 20, /* bytes of a message that go as one of MPI's */
    EAGER = 1 << 20,  /* what MPIs send at once, or at least announce */
    SPINS = 2000,     /* polls before the CPU is given to others */
    YIELDS = 2000,    /* of those before it sleeps in between */
    LOOK_EVERY = 64,  /* polls between looks at the clock and at the caller's end */
    CANCEL_MS = 200,
};

static const int64_t nap_ns = 50000;

typedef struct message {
    struct message *next, *before;
    int n;
    bool sends;
    MPI_Request requests[];
} message;

typedef struct mpi_link {
    ls__link base;
    MPI_Comm comm;
    message *messages;
    bool aborted;
} mpi_link;

/* Whether MPI is ours to end, and may be: all links were destroyed whole. */
static struct {
    bool ours, broken;
    int links;
} state;

static mpi_link *of(ls__link *link)
{
    return (mpi_link *)link;
}

static ls_status failed(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    return ls_fail(LS_ERR_PEER, "MPI's %s: %s", what, text);
}

#define TRY_MPI(call, what)                                                                        \
    do {                                                                                           \
        int code = (call);                                                                         \
        if (code != MPI_SUCCESS) return failed(code, what);                                        \
    } while (0)

/* --- messages --- */

static void forget(mpi_link *link, message *m)
{
    if (m->before)
        m->before->next = m->next;
    else
        link->messages = m->next;
    if (m->next) m->next->before = m->before;
    ls__free(m);
}

static message *new_message(mpi_link *link, const ls__transfer *t)
{
    size_t pieces = t->nbytes ? (t->nbytes + PIECE - 1) / PIECE : 1;
    if (pieces > INT_MAX) {
        ls_fail(LS_ERR_ARG, "a message of %zu bytes", t->nbytes);
        return NULL;
    }
    message *m = ls__alloc(1, sizeof *m + pieces * sizeof m->requests[0]);
    if (!m) return NULL;
    for (size_t i = 0; i < pieces; i++) m->requests[i] = MPI_REQUEST_NULL;
    m->n = (int)pieces;
    m->sends = t->sends;
    m->next = link->messages;
    if (m->next) m->next->before = m;
    link->messages = m;
    return m;
}

static ls_status link_start(ls__link *link, ls__transfer *t)
{
    MPI_Comm comm = of(link)->comm;
    if (of(link)->aborted) return ls_fail(LS_ERR_PEER, "the link was aborted");
    message *m = new_message(of(link), t);
    if (!m) return t->nbytes / PIECE > INT_MAX ? LS_ERR_ARG : LS_ERR_MEMORY;
    t->engine = m;
    for (int i = 0; i < m->n; i++) {
        size_t done = (size_t)i * PIECE, left = t->nbytes - done;
        char *data = t->nbytes ? (char *)t->data + done : NULL;
        int count = left < PIECE ? (int)left : PIECE, tag = (int)t->channel;
        if (t->sends)
            TRY_MPI(MPI_Isend(data, count, MPI_BYTE, t->peer, tag, comm, &m->requests[i]), "send");
        else
            TRY_MPI(MPI_Irecv(data, count, MPI_BYTE, t->peer, tag, comm, &m->requests[i]),
                    "receive");
    }
    return LS_OK;
}

static ls_status look(const ls__patience *patience)
{
    if (patience->ended && patience->ended(patience->user))
        return ls_fail(LS_ERR_PEER, "the job is being ended");
    if (patience->deadline_ns != INT64_MAX && ls__now_ns() >= patience->deadline_ns)
        return ls_fail(LS_ERR_TIMEOUT, "no bytes came or went in time");
    return LS_OK;
}

/* Between two polls; the more, the longer. */
static void pause_after(int64_t polls)
{
    if (polls < SPINS) return;
    if (polls < SPINS + YIELDS) {
        sched_yield();
        return;
    }
    const struct timespec nap = { .tv_nsec = nap_ns };
    nanosleep(&nap, NULL);
}

static void link_progress(ls__link *link, int64_t polls)
{
    int there;
    (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, of(link)->comm, &there, MPI_STATUS_IGNORE);
    pause_after(polls);
}

static ls_status link_wait(ls__link *link, ls__transfer *t, const ls__patience *patience)
{
    message *m = t->engine;
    for (int64_t polls = 1;; polls++) {
        int done = 0;
        TRY_MPI(MPI_Testall(m->n, m->requests, &done, MPI_STATUSES_IGNORE),
                m->sends ? "send" : "receive");
        if (done) break;
        if (polls % LOOK_EVERY == 0 || polls > SPINS) LS_TRY(look(patience));
        pause_after(polls);
    }
    t->engine = NULL;
    forget(of(link), m);
    return LS_OK;
}

/* --- ends --- */

/* Receives that have not begun are taken back. What has begun ends with MPI, which is not called
 * again: MPI has no way to stop it, and its memory is written by nobody but us and our peers. */
static void cancel(message *m)
{
    int64_t deadline = ls__now_ns() + INT64_C(1000000) * CANCEL_MS;
    for (int i = 0; i < m->n; i++)
        if (!m->sends && m->requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&m->requests[i]);
    for (int done = 0; !done && !m->sends && ls__now_ns() < deadline;)
        if (MPI_Testall(m->n, m->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
}

static void link_abort(ls__link *base)
{
    mpi_link *link = of(base);
    while (link->messages) {
        cancel(link->messages);
        forget(link, link->messages);
    }
    link->aborted = true;
    state.broken = true;
}

/* Runs at the process's end. Not after an abort: it would wait for peers that are gone. */
static void finalize(void)
{
    int over = 0;
    if (state.links || state.broken) return;
    if (MPI_Finalized(&over) == MPI_SUCCESS && !over) MPI_Finalize();
}

static void link_destroy(ls__link *base)
{
    int over = 0;
    mpi_link *link = of(base);
    if (!link) return;
    if (link->messages) link_abort(base);
    if (!link->aborted && MPI_Finalized(&over) == MPI_SUCCESS && !over) MPI_Comm_free(&link->comm);
    state.links--;
    ls__free(link);
}

/* --- opening --- */

static ls_status init(void)
{
    int there = 0, over = 0, level;
    sigset_t all, before;
    TRY_MPI(MPI_Finalized(&over), "state");
    if (over) return ls_fail(LS_ERR_UNSUPPORTED, "this process has ended MPI already");
    TRY_MPI(MPI_Initialized(&there), "state");
    if (there) return LS_OK;
    /* Signals are for the program's own threads: MPI's block them. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != MPI_SUCCESS) return ls_fail(LS_ERR_PEER, "MPI cannot be started (error %d)", code);
    state.ours = true;
    atexit(finalize);
    return LS_OK;
}

/* MPI's ranks must be ours. */
static ls_status compare(int our_rank, int our_size)
{
    int rank, size;
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "rank");
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size), "size");
    if (rank == our_rank && size == our_size) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "this is rank %d of %d, but MPI calls it rank %d of %d; start the ranks by the "
                   "mpirun of the MPI that Lockstep was built with (or srun --mpi=pmix), or use "
                   "--comm gloo",
                   our_rank, our_size, rank, size);
}

static ls_status link_open(const ls__link_options *options, ls__link **out)
{
    *out = NULL;
    LS_TRY(init());
    LS_TRY(compare(options->rank, options->size));
    mpi_link *link = ls__alloc(1, sizeof *link);
    if (!link) return LS_ERR_MEMORY;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &link->comm);
    if (code != MPI_SUCCESS) {
        ls__free(link);
        return failed(code, "communicator");
    }
    MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN);
    link->base =
        (ls__link) { link_start, link_wait, link_abort, link_destroy, link_progress, EAGER };
    state.links++;
    *out = &link->base;
    return LS_OK;
}

/* A broadcast that is looked after: MPI's own waits know no time limit. Given up, it stays begun, so MPI
 * is not ended in order and what it may still write to is never freed. */
static ls_status share(int rank, int size, int timeout_ms, char *text, size_t limit)
{
    ls__patience patience = { .deadline_ns = timeout_ms < 0
                                                 ? INT64_MAX
                                                 : ls__now_ns() + INT64_C(1000000) * timeout_ms };
    MPI_Request request;
    int done = 0;
    if (limit > INT_MAX) return ls_fail(LS_ERR_ARG, "a text of %zu bytes", limit);
    LS_TRY(init());
    LS_TRY(compare(rank, size));
    char *buffer = ls__alloc(limit, 1);
    if (!buffer) return LS_ERR_MEMORY;
    if (rank == 0) snprintf(buffer, limit, "%s", text);
    ls_status status = LS_OK;
    int code = MPI_Ibcast(buffer, (int)limit, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
    for (int64_t polls = 1; code == MPI_SUCCESS && status == LS_OK; polls++) {
        code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) break;
        status = look(&patience);
        pause_after(polls);
    }
    if (code != MPI_SUCCESS) status = failed(code, "broadcast");
    if (status != LS_OK) {
        state.broken = true;
        return status;
    }
    buffer[limit - 1] = '\0';
    memcpy(text, buffer, limit);
    ls__free(buffer);
    return LS_OK;
}

/* The type has taken the name, so the symbol is given it by hand. */
extern const ls__link_table table __asm__("ls__link_table");
const ls__link_table table = { "mpi", link_open, share };
