/* Space in the shared file, and its mappings.
 *
 * One process, rank 0's, hands space out and tells the others the offset in a message (allocation
 * is collective and rare: once per communicator, space or user buffer), so that the file needs no
 * lock that a dying rank could leave taken. The file only ever grows; freed space has its memory
 * punched out, and reads as zero when it is handed out again. */
#include "comm/shm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "device/cgroup.h"

enum { CHECKED_NBYTES = 16 << 20 }; /* smaller reservations are not compared with free memory */

/* Bytes that the machine can still give; -1 = unknown. */
static int64_t memory_available(void)
{
    char line[256];
    long long kilobytes = -1;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return -1;
    while (kilobytes < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld kB", &kilobytes) != 1) kilobytes = -1;
    fclose(file);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/* No more than that, and no more than this process's control groups ever allow. */
static int64_t memory_limit(void)
{
    ls__cgroup_limits limits;
    int64_t available = memory_available();
    ls__cgroup_read("/", &limits);
    if (limits.memory > 0 && (available < 0 || limits.memory < available)) return limits.memory;
    return available;
}

static ls_status check_memory(size_t nbytes)
{
    if (nbytes < CHECKED_NBYTES) return LS_OK;
    int64_t left = memory_limit();
    if (left < 0 || nbytes <= (size_t)left) return LS_OK;
    return ls_fail(LS_ERR_MEMORY,
                   "%.1f GiB of shared memory are needed for all ranks of this machine, %.1f GiB "
                   "are free; use fewer devices or fewer micro-batches per device",
                   (double)nbytes / (1 << 30), (double)left / (1 << 30));
}

/* First fit; SIZE_MAX = none. */
static size_t take_free(ls__heap *heap, size_t nbytes)
{
    for (int i = 0; i < heap->nfree; i++) {
        struct ls__extent *extent = &heap->free[i];
        if (extent->nbytes < nbytes) continue;
        size_t offset = extent->offset;
        extent->offset += nbytes;
        extent->nbytes -= nbytes;
        if (extent->nbytes == 0)
            memmove(extent, extent + 1, sizeof *extent * (size_t)(--heap->nfree - i));
        return offset;
    }
    return SIZE_MAX;
}

/* Space that cannot be listed for want of memory is lost to the heap, no more. */
static void add_free(ls__heap *heap, size_t offset, size_t nbytes)
{
    int at = 0;
    while (at < heap->nfree && heap->free[at].offset < offset) at++;
    struct ls__extent *before = at > 0 ? &heap->free[at - 1] : NULL;
    struct ls__extent *after = at < heap->nfree ? &heap->free[at] : NULL;
    bool joins_before = before && before->offset + before->nbytes == offset;
    bool joins_after = after && offset + nbytes == after->offset;
    if (joins_before && joins_after) {
        before->nbytes += nbytes + after->nbytes;
        memmove(after, after + 1, sizeof *after * (size_t)(--heap->nfree - at));
    } else if (joins_before) {
        before->nbytes += nbytes;
    } else if (joins_after) {
        after->offset = offset;
        after->nbytes += nbytes;
    } else {
        if (heap->nfree == heap->capacity) {
            int capacity = heap->capacity ? 2 * heap->capacity : 16;
            void *grown = ls__realloc(heap->free, (size_t)capacity, sizeof *heap->free);
            if (!grown) return;
            heap->free = grown;
            heap->capacity = capacity;
        }
        memmove(heap->free + at + 1, heap->free + at,
                sizeof *heap->free * (size_t)(heap->nfree++ - at));
        heap->free[at] = (struct ls__extent) { offset, nbytes };
    }
}

static ls_status grow(ls__shm *shm, size_t nbytes, size_t *offset)
{
    if (ftruncate(shm->fd, (off_t)(shm->heap.end + nbytes)) < 0)
        return ls__fail_errno(LS_ERR_MEMORY, "cannot grow the shared memory by %zu bytes", nbytes);
    *offset = shm->heap.end;
    shm->heap.end += nbytes;
    return LS_OK;
}

ls_status ls__shm_reserve(ls__shm *shm, size_t nbytes, bool sparse, size_t *offset)
{
    if (nbytes == 0 || nbytes > (size_t)1 << 50)
        return ls_fail(LS_ERR_MEMORY, "%zu bytes of shared memory cannot be had", nbytes);
    if (!sparse) LS_TRY(check_memory(nbytes));
    nbytes = ls__round_up(nbytes, LS__PAGE);
    pthread_mutex_lock(&shm->mutex);
    ls_status status = LS_OK;
    *offset = take_free(&shm->heap, nbytes);
    if (*offset == SIZE_MAX) status = grow(shm, nbytes, offset);
    pthread_mutex_unlock(&shm->mutex);
    return status;
}

void ls__shm_punch(ls__shm *shm, size_t offset, size_t nbytes)
{
    /* Where it cannot be punched (no such kernel), zeroing keeps the promise that space handed out
     * is zero. */
    if (fallocate(shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)ls__round_up(nbytes, LS__PAGE)) == 0)
        return;
    void *base;
    if (ls__shm_map(shm, offset, nbytes, &base) != LS_OK) return;
    memset(base, 0, nbytes);
    ls__shm_unmap(shm, base);
}

void ls__shm_release(ls__shm *shm, size_t offset, size_t nbytes)
{
    ls__shm_punch(shm, offset, nbytes);
    pthread_mutex_lock(&shm->mutex);
    add_free(&shm->heap, offset, ls__round_up(nbytes, LS__PAGE));
    pthread_mutex_unlock(&shm->mutex);
}

/* With the mutex held. */
static ls_status map_locked(ls__shm *shm, size_t offset, size_t nbytes, void **out)
{
    for (int i = 0; i < shm->nmappings; i++) {
        ls__mapping *m = &shm->mappings[i];
        if (m->offset != offset || m->nbytes != nbytes) continue;
        m->users++;
        *out = m->base;
        return LS_OK;
    }
    if (shm->nmappings == shm->mappings_capacity) {
        int capacity = shm->mappings_capacity ? 2 * shm->mappings_capacity : 8;
        void *grown = ls__realloc(shm->mappings, (size_t)capacity, sizeof *shm->mappings);
        if (!grown) return LS_ERR_MEMORY;
        shm->mappings = grown;
        shm->mappings_capacity = capacity;
    }
    void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, (off_t)offset);
    if (base == MAP_FAILED)
        return ls__fail_errno(LS_ERR_MEMORY, "cannot map %zu bytes of shared memory", nbytes);
    shm->mappings[shm->nmappings++] = (ls__mapping) { offset, nbytes, base, 1 };
    *out = base;
    return LS_OK;
}

ls_status ls__shm_map(ls__shm *shm, size_t offset, size_t nbytes, void **out)
{
    pthread_mutex_lock(&shm->mutex);
    ls_status status = map_locked(shm, offset, nbytes, out);
    pthread_mutex_unlock(&shm->mutex);
    return status;
}

void ls__shm_unmap(ls__shm *shm, void *base)
{
    pthread_mutex_lock(&shm->mutex);
    for (int i = 0; i < shm->nmappings; i++) {
        ls__mapping *m = &shm->mappings[i];
        if (m->base != base) continue;
        if (--m->users == 0) {
            munmap(m->base, m->nbytes);
            *m = shm->mappings[--shm->nmappings];
        }
        break;
    }
    pthread_mutex_unlock(&shm->mutex);
}

/* For kernels before 5.14: reading a page of a memfd takes it as well. */
static void touch(const volatile char *base, size_t nbytes)
{
    for (size_t at = 0; at < nbytes; at += LS__PAGE) (void)base[at];
}

ls_status ls__shm_populate(void *base, size_t nbytes)
{
    if (madvise(base, nbytes, MADV_POPULATE_WRITE) == 0) return LS_OK;
    if (errno == ENOMEM)
        return ls__fail_errno(LS_ERR_MEMORY, "cannot take %zu bytes of shared memory", nbytes);
    touch(base, nbytes);
    return LS_OK;
}

void ls__shm_prefault(void *base, size_t nbytes)
{
    if (madvise(base, nbytes, MADV_POPULATE_READ) != 0) touch(base, nbytes);
}
