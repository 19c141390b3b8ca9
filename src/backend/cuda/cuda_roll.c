/* The roll's memory: a file without a name that rank 0 makes and the others open as long as it holds it
 * open. That works among processes of one machine and user, which is where it is of use. */
#include "backend/cuda/cuda_roll.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

enum { PAGE = 4096 };

/* How the others find it. The host's name, so that no other machine's process is taken for it. */
typedef struct address {
    int64_t pid, fd;
    char host[256];
} address;

static int make(cuda_roll *roll, address *out)
{
    int fd = memfd_create("lockstep-roll", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)roll->nbytes) != 0) {
        close(fd);
        fd = -1;
    }
    *out = (address) { getpid(), fd, "" };
    if (gethostname(out->host, sizeof out->host - 1) != 0) out->fd = -1;
    return fd;
}

static int open_of(const address *a)
{
    char path[64], host[256] = "";
    if (a->fd < 0 || gethostname(host, sizeof host - 1) != 0 || strcmp(host, a->host) != 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)a->pid, (long long)a->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

ls_status ls__cuda_roll_create(ls_comm *comm, size_t room, cuda_roll *out)
{
    *out = (cuda_roll) { .rank = ls_comm_rank(comm), .size = ls_comm_size(comm) };
    out->stride = (sizeof(cuda_roll_line) + room + PAGE - 1) / PAGE * PAGE;
    out->nbytes = out->stride * (size_t)out->size;
    address where = { 0 };
    int fd = out->rank == 0 ? make(out, &where) : -1;
    ls_status status = ls_comm_broadcast(comm, &where, (int64_t)sizeof where, LS_DTYPE_U8, 0);
    if (status == LS_OK && out->rank != 0) fd = open_of(&where);
    void *base = MAP_FAILED;
    if (fd >= 0) base = mmap(NULL, out->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint8_t failed = base == MAP_FAILED, any = 1;
    if (status == LS_OK)
        status = ls_comm_all_reduce(comm, &failed, &any, 1, LS_DTYPE_U8, LS_REDUCE_MAX);
    if (fd >= 0) close(fd); /* everybody has opened it */
    if (base != MAP_FAILED) out->base = base;
    if (status == LS_OK && any)
        status = ls_fail(LS_ERR_UNSUPPORTED, "the ranks cannot share memory of this machine");
    if (status != LS_OK) ls__cuda_roll_destroy(out);
    return status;
}

void ls__cuda_roll_destroy(cuda_roll *roll)
{
    if (roll->base) munmap(roll->base, roll->nbytes);
    roll->base = NULL;
}

cuda_roll_line *ls__cuda_roll_line(const cuda_roll *roll, int rank)
{
    return (cuda_roll_line *)(void *)(roll->base + (size_t)rank * roll->stride);
}

char *ls__cuda_roll_room(const cuda_roll *roll, int rank)
{
    return (char *)(ls__cuda_roll_line(roll, rank) + 1);
}

void ls__cuda_roll_fail(const cuda_roll *roll, const char *text)
{
    if (!roll->base) return;
    cuda_roll_line *own = ls__cuda_roll_line(roll, roll->rank);
    if (atomic_load_explicit(&own->failed, memory_order_relaxed)) return;
    snprintf(own->text, sizeof own->text, "%s", text);
    atomic_store_explicit(&own->failed, 1, memory_order_release);
}

ls_status ls__cuda_roll_check(const cuda_roll *roll)
{
    for (int r = 0; roll->base && r < roll->size; r++) {
        cuda_roll_line *line = ls__cuda_roll_line(roll, r);
        if (r == roll->rank || !atomic_load_explicit(&line->failed, memory_order_acquire)) continue;
        return ls_fail(LS_ERR_DEVICE, "rank %d: %.*s", r, CUDA_ROLL_TEXT - 1, line->text);
    }
    return LS_OK;
}

int ls__cuda_roll_last(const cuda_roll *roll)
{
    uint64_t most = 0, least = UINT64_MAX;
    int last = -1;
    for (int r = 0; roll->base && r < roll->size; r++) {
        uint64_t begun =
            atomic_load_explicit(&ls__cuda_roll_line(roll, r)->begun, memory_order_acquire);
        if (begun > most) most = begun;
        if (begun >= least) continue;
        least = begun;
        last = r;
    }
    return least < most ? last : -1;
}
