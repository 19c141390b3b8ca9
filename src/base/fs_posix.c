/* The system calls behind ls__fs, as they are. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static int posix_open(void *user, const char *path, int flags, int mode)
{
    (void)user;
    return open(path, flags, mode);
}

static int64_t posix_pwrite(void *user, int fd, const void *data, size_t nbytes, int64_t offset)
{
    (void)user;
    return pwrite(fd, data, nbytes, offset);
}

static int posix_truncate(void *user, int fd, int64_t nbytes)
{
    (void)user;
    return ftruncate(fd, nbytes);
}

static int posix_sync(void *user, int fd)
{
    (void)user;
    struct stat info;
    bool is_folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
    return is_folder ? fsync(fd) : fdatasync(fd);
}

static int no_sync(void *user, int fd)
{
    (void)user, (void)fd;
    return 0;
}

static int posix_close(void *user, int fd)
{
    (void)user;
    return close(fd);
}

static int posix_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to);
}

static int posix_unlink(void *user, const char *path)
{
    (void)user;
    return unlink(path);
}

static int posix_mkdir(void *user, const char *path, int mode)
{
    (void)user;
    return mkdir(path, (mode_t)mode);
}

static int posix_rmdir(void *user, const char *path)
{
    (void)user;
    return rmdir(path);
}

static int posix_symlink(void *user, const char *target, const char *path)
{
    (void)user;
    return symlink(target, path);
}

/* All that they have in common: all but sync. */
#define POSIX_CALLS                                                                                \
    .open = posix_open, .pwrite = posix_pwrite, .truncate = posix_truncate, .close = posix_close,  \
    .rename = posix_rename, .unlink = posix_unlink, .mkdir = posix_mkdir, .rmdir = posix_rmdir,    \
    .symlink = posix_symlink

const ls__fs ls__fs_posix = { POSIX_CALLS, .sync = posix_sync };
const ls__fs ls__fs_unsynced = { POSIX_CALLS, .sync = no_sync };
