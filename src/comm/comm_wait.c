/* Waiting for a word that another rank publishes.
 *
 * Ranks of a training step arrive within microseconds of each other, and a futex costs as much as
 * the whole exchange of a small message: so spin first. But a rank may also wait for minutes (a
 * save, a straggler) or share its CPU with the rank it waits for: so sleep then, on the bell of the
 * rank that will publish. Publisher and sleeper cannot miss each other: one writes the word and
 * then looks for sleepers, the other counts itself as a sleeper and then looks at the word, all
 * sequentially consistent. */
#include "comm/comm_internal.h"

#include <sched.h>

#include "base/check.h"
#include "base/clock.h"

enum {
    LOOKS = 64,               /* between two looks at the clock */
    SLEEP_NS = 1000 * 1000000 /* only a lost wake-up, which cannot be, would need it */
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool ready(const _Atomic uint64_t *word, uint64_t value)
{
    return atomic_load_explicit(word, memory_order_acquire) >= value;
}

/* True when the word came; false when it is time to sleep. */
static bool spin(const ls_comm *comm, const _Atomic uint64_t *word, uint64_t value)
{
    int64_t end = 0;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (ready(word, value)) return true;
            pause_cpu();
        }
        int64_t now = ls__now_ns();
        if (end == 0) end = now + comm->spin_ns;
        if (now >= end) break;
    } while (!ls__shm_poisoned(comm->shm, NULL));
    for (int i = 0; i < comm->yields; i++) {
        sched_yield();
        if (ready(word, value)) return true;
    }
    return false;
}

ls_status ls__comm_poisoned(ls_comm *comm)
{
    int rank = -1;
    ls__shm_poisoned(comm->shm, &rank);
    if (rank < 0) return ls_fail(LS_ERR_PEER, "the job is being ended");
    return ls_fail(LS_ERR_PEER, "rank %d was lost or failed; see its output above or its log",
                   rank);
}

ls_status ls__comm_wait_slowly(ls_comm *comm, int peer, const _Atomic uint64_t *word,
                               uint64_t value)
{
    if (spin(comm, word, value)) return LS_OK;
    ls__bell *bell = &comm->shm->bells[peer];
    int64_t start = ls__now_ns();
    ls_status status = LS_OK;
    atomic_fetch_add(&bell->sleepers, 1);
    while (true) {
        uint32_t seen = atomic_load(&bell->rings);
        if (atomic_load(word) >= value) break;
        if (ls__shm_poisoned(comm->shm, NULL)) {
            status = ls__comm_poisoned(comm);
            break;
        }
        int64_t waited = ls__now_ns() - start;
        if (waited >= comm->timeout_ns) {
            status = LS_ERR_TIMEOUT;
            break;
        }
        int64_t left = comm->timeout_ns - waited;
        ls__bell_sleep(bell, seen, left < SLEEP_NS ? left : SLEEP_NS);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
    if (status == LS_ERR_TIMEOUT) status = ls__comm_report_timeout(comm);
    return status == LS_OK ? LS_OK : ls__comm_break(comm, status);
}

void ls__comm_publish(ls_comm *comm, _Atomic uint64_t *word, uint64_t value)
{
    atomic_exchange(word, value);
    ls__bell *bell = &comm->shm->bells[comm->rank];
    if (atomic_load(&bell->sleepers) != 0) ls__bell_ring(bell);
}
