#include "helper_fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct fault_disk {
    ls__fs fs;
    pthread_mutex_t lock;
    fault_kind kind;
    int n, calls;
    bool happened, half_written;
};

/* Whether this call fails; errno is set. */
static bool fails(fault_disk *d)
{
    pthread_mutex_lock(&d->lock);
    d->calls++;
    bool now = d->n > 0 && (d->calls == d->n || (d->kind == FAULT_BROKEN && d->calls > d->n));
    d->happened = d->happened || now;
    pthread_mutex_unlock(&d->lock);
    if (now) errno = d->kind == FAULT_FULL ? ENOSPC : EIO;
    return now;
}

static int fault_open(void *user, const char *path, int flags, int mode)
{
    return fails(user) ? -1 : ls__fs_posix.open(NULL, path, flags, mode);
}

/* A full disk takes what still fits before it says so. */
static int64_t fault_pwrite(void *user, int fd, const void *data, size_t nbytes, int64_t offset)
{
    fault_disk *d = user;
    bool bad = fails(d);
    if (bad && (d->kind == FAULT_BROKEN || nbytes < 2)) return -1;
    if (bad) {
        pthread_mutex_lock(&d->lock);
        d->n = d->calls + 1; /* the rest fails */
        pthread_mutex_unlock(&d->lock);
    }
    size_t part = nbytes > 1 ? (nbytes + 1) / 2 : nbytes;
    return ls__fs_posix.pwrite(NULL, fd, data, part, offset);
}

static int fault_truncate(void *user, int fd, int64_t nbytes)
{
    return fails(user) ? -1 : ls__fs_posix.truncate(NULL, fd, nbytes);
}

static int fault_sync(void *user, int fd)
{
    return fails(user) ? -1 : ls__fs_posix.sync(NULL, fd);
}

static int fault_close(void *user, int fd)
{
    (void)user;
    return ls__fs_posix.close(NULL, fd);
}

static int fault_rename(void *user, const char *from, const char *to)
{
    return fails(user) ? -1 : ls__fs_posix.rename(NULL, from, to);
}

static int fault_unlink(void *user, const char *path)
{
    return fails(user) ? -1 : ls__fs_posix.unlink(NULL, path);
}

static int fault_mkdir(void *user, const char *path, int mode)
{
    return fails(user) ? -1 : ls__fs_posix.mkdir(NULL, path, mode);
}

static int fault_rmdir(void *user, const char *path)
{
    return fails(user) ? -1 : ls__fs_posix.rmdir(NULL, path);
}

static int fault_symlink(void *user, const char *target, const char *path)
{
    return fails(user) ? -1 : ls__fs_posix.symlink(NULL, target, path);
}

fault_disk *fault_create(fault_kind kind, int n)
{
    fault_disk *d = calloc(1, sizeof *d);
    d->kind = kind;
    d->n = n;
    d->fs = (ls__fs) { .user = d,
                       .open = fault_open,
                       .pwrite = fault_pwrite,
                       .truncate = fault_truncate,
                       .sync = fault_sync,
                       .close = fault_close,
                       .rename = fault_rename,
                       .unlink = fault_unlink,
                       .mkdir = fault_mkdir,
                       .rmdir = fault_rmdir,
                       .symlink = fault_symlink };
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

void fault_destroy(fault_disk *disk)
{
    free(disk);
}

const ls__fs *fault_fs(fault_disk *disk)
{
    return &disk->fs;
}

bool fault_happened(const fault_disk *disk)
{
    return disk->happened;
}
