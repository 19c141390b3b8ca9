/* The shared file of a machine's ranks: control area, poison, stop request, bells.
 *
 * It is a memfd, so nothing is left in /dev/shm whatever dies. The control area is mapped once and
 * holds atomics only: poison may be set by a signal handler or by the supervisor, which knows
 * nothing of communicators, and must still wake every sleeper. So the words that ranks sleep on
 * (bells) lie here and not in a communicator's own part. */
#include "comm/shm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

#define MAGIC 0x6d6873706574736bULL /* "kstepshm" */

enum { VERSION = 1, SIZE_MAX_RANKS = 1024 };

size_t ls__round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static size_t control_nbytes(int size)
{
    _Static_assert(sizeof(ls__shm_control) <= LS__PAGE, "the control page is one page");
    return ls__round_up(LS__PAGE + (size_t)size * sizeof(ls__bell), LS__PAGE);
}

/* Takes fd over: it is closed on failure too. */
static ls_status open_file(int fd, int size, ls__shm **out)
{
    ls_status status = LS_OK;
    ls__shm *shm = ls__alloc(1, sizeof *shm);
    if (!shm) {
        close(fd);
        return LS_ERR_MEMORY;
    }
    *shm = (ls__shm) { .fd = fd, .size = size, .control_nbytes = control_nbytes(size) };
    shm->heap.end = shm->control_nbytes;
    pthread_mutex_init(&shm->mutex, NULL);
    void *base =
        mmap(NULL, shm->control_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED) {
        status = ls__fail_errno(LS_ERR_MEMORY, "cannot map the ranks' shared memory");
        ls__shm_destroy(shm);
        return status;
    }
    shm->control = base;
    shm->bells = (ls__bell *)((char *)base + LS__PAGE);
    *out = shm;
    return LS_OK;
}

ls_status ls__shm_create(int size, ls__shm **out)
{
    *out = NULL;
    if (size < 1 || size > SIZE_MAX_RANKS)
        return ls_fail(LS_ERR_ARG, "%d ranks on one machine: 1 to %d are possible", size,
                       SIZE_MAX_RANKS);
    int fd = memfd_create("lockstep", MFD_CLOEXEC);
    if (fd < 0) return ls__fail_errno(LS_ERR_MEMORY, "cannot create the ranks' shared memory");
    if (ftruncate(fd, (off_t)control_nbytes(size)) < 0) {
        ls_status status = ls__fail_errno(LS_ERR_MEMORY, "cannot size the ranks' shared memory");
        close(fd);
        return status;
    }
    LS_TRY(open_file(fd, size, out));
    ls__shm_control *control = (*out)->control;
    control->version = VERSION;
    control->size = (uint32_t)size;
    control->magic = MAGIC;
    return LS_OK;
}

ls_status ls__shm_attach(int fd, int size, ls__shm **out)
{
    *out = NULL;
    struct stat info;
    ls__shm_control seen = { 0 };
    if (size < 1 || size > SIZE_MAX_RANKS || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) ||
        info.st_size < (off_t)control_nbytes(size) ||
        pread(fd, &seen, sizeof seen, 0) != (ssize_t)sizeof seen || seen.magic != MAGIC ||
        seen.version != VERSION || seen.size != (uint32_t)size) {
        close(fd);
        if (seen.magic == MAGIC && seen.version != VERSION)
            return ls_fail(LS_ERR_PEER,
                           "the other ranks run another version of liblockstep (shared memory "
                           "layout %u, here %d); start all ranks with the same one",
                           seen.version, VERSION);
        if (seen.magic == MAGIC)
            return ls_fail(LS_ERR_PEER, "the shared memory is for %u ranks, this rank expects %d",
                           seen.size, size);
        return ls_fail(LS_ERR_PEER, "descriptor %d is not the ranks' shared memory", fd);
    }
    return open_file(fd, size, out);
}

int ls__shm_fd(const ls__shm *shm)
{
    return shm->fd;
}

void ls__shm_destroy(ls__shm *shm)
{
    if (!shm) return;
    for (int i = 0; i < shm->nmappings; i++) munmap(shm->mappings[i].base, shm->mappings[i].nbytes);
    if (shm->control) munmap(shm->control, shm->control_nbytes);
    close(shm->fd);
    pthread_mutex_destroy(&shm->mutex);
    ls__free(shm->heap.free);
    ls__free(shm->mappings);
    ls__free(shm);
}

/* Not FUTEX_PRIVATE_FLAG: waiter and waker are different processes. */
static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, (void *)word, operation, value, timeout, NULL, 0);
}

void ls__bell_ring(ls__bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    futex(&bell->rings, FUTEX_WAKE, INT32_MAX, NULL);
}

void ls__bell_sleep(ls__bell *bell, uint32_t seen, int64_t timeout_ns)
{
    struct timespec timeout = { .tv_sec = timeout_ns / 1000000000,
                                .tv_nsec = timeout_ns % 1000000000 };
    futex(&bell->rings, FUTEX_WAIT, seen, &timeout);
}

void ls__shm_poison(ls__shm *shm, int rank)
{
    int saved = errno; /* a signal handler may call this */
    uint32_t none = 0;
    atomic_compare_exchange_strong(&shm->control->poison, &none, (uint32_t)(rank + 2));
    for (int r = 0; r < shm->size; r++) ls__bell_ring(&shm->bells[r]);
    errno = saved;
}

bool ls__shm_poisoned(const ls__shm *shm, int *rank)
{
    uint32_t poison = atomic_load_explicit(&shm->control->poison, memory_order_acquire);
    if (poison && rank) *rank = (int)poison - 2;
    return poison != 0;
}

void ls__shm_request_stop(ls__shm *shm, int signal)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong(&shm->control->stop, &none, (uint32_t)signal);
}

int ls__shm_stop_request(const ls__shm *shm)
{
    return (int)atomic_load_explicit(&shm->control->stop, memory_order_relaxed);
}
