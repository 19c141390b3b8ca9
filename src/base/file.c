/* Reading whole files and writing durable ones. What changes a disk goes through ls__fs, so that
 * tests can fail any call and replay what a power failure would leave; reading uses the system
 * directly. Files here are small (configuration, manifests); large ones are written with
 * ls__file_pwrite by their owners. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

/* --- reading --- */

/* Grows *data as read returns more; st_size is a hint only (it is 0 in /proc). */
static ls_status read_all(int fd, const char *path, size_t hint, size_t limit, char **data,
                          size_t *nbytes)
{
    size_t used = 0, room = hint + 1;
    for (;;) {
        if (used + 1 >= room || !*data) {
            room = *data ? room * 2 : room + 1;
            char *grown = ls__realloc(*data, room, 1);
            if (!grown) return LS_ERR_MEMORY;
            *data = grown;
        }
        ssize_t n = read(fd, *data + used, room - 1 - used);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
        if (n == 0) break;
        used += (size_t)n;
        if (used > limit)
            return ls_fail(LS_ERR_DATA, "%s: larger than the %zu bytes that are allowed", path,
                           limit);
    }
    (*data)[used] = '\0';
    *nbytes = used;
    return LS_OK;
}

ls_status ls__file_read(const char *path, size_t limit, char **data, size_t *nbytes)
{
    *data = NULL;
    *nbytes = 0;
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    struct stat info;
    size_t hint = 0;
    if (fstat(fd, &info) == 0 && info.st_size > 0)
        hint = (size_t)info.st_size < limit ? (size_t)info.st_size : limit;
    ls_status status = read_all(fd, path, hint, limit, data, nbytes);
    close(fd);
    if (status != LS_OK) {
        ls__free(*data);
        *data = NULL;
        *nbytes = 0;
    }
    return status;
}

bool ls__path_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* --- paths --- */

ls_status ls__path_join(char out[LS_PATH_MAX], const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *between = n > 0 && folder[n - 1] != '/' ? "/" : "";
    if (snprintf(out, LS_PATH_MAX, "%s%s%s", folder, between, name) >= LS_PATH_MAX) {
        out[0] = '\0';
        return ls_fail(LS_ERR_ARG, "%.64s.../%.64s: the path is longer than %d bytes", folder, name,
                       LS_PATH_MAX - 1);
    }
    return LS_OK;
}

ls_status ls__path_absolute(char out[LS_PATH_MAX], const char *path)
{
    char folder[LS_PATH_MAX];
    bool relative = path[0] != '/' && getcwd(folder, sizeof folder);
    return ls__path_join(out, relative ? folder : "", path);
}

/* The folder that holds path: "." for a bare name. */
static ls_status parent_of(const char *path, char out[LS_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    if (!slash) return ls__path_join(out, "", ".");
    if (slash == path) return ls__path_join(out, "", "/");
    if ((size_t)(slash - path) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_ARG, "%.64s...: the path is longer than %d bytes", path,
                       LS_PATH_MAX - 1);
    memcpy(out, path, (size_t)(slash - path));
    out[slash - path] = '\0';
    return LS_OK;
}

/* A name beside path that no other thread of this machine uses. */
static ls_status temporary_beside(const char *path, char out[LS_PATH_MAX])
{
    if (snprintf(out, LS_PATH_MAX, "%s.tmp-%ld", path, (long)syscall(SYS_gettid)) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_ARG, "%.64s...: the path is longer than %d bytes", path,
                       LS_PATH_MAX - 1);
    return LS_OK;
}

/* --- writing --- */

ls_status ls__file_pwrite(const ls__fs *fs, int fd, const char *path, const void *data,
                          size_t nbytes, int64_t offset)
{
    const char *next = data;
    while (nbytes > 0) {
        int64_t n = fs->pwrite(fs->user, fd, next, nbytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC; /* no progress and no reason given */
        if (n <= 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot write", path);
        next += n;
        nbytes -= (size_t)n;
        offset += n;
    }
    return LS_OK;
}

static int open_retrying(const ls__fs *fs, const char *path, int flags, int mode)
{
    int fd;
    do fd = fs->open(fs->user, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static ls_status write_and_sync(const ls__fs *fs, const char *path, const void *data, size_t nbytes)
{
    int fd = open_retrying(fs, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot create", path);
    ls_status status = ls__file_pwrite(fs, fd, path, data, nbytes, 0);
    if (status == LS_OK && fs->sync(fs->user, fd) != 0)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot sync", path);
    if (fs->close(fs->user, fd) != 0 && status == LS_OK && errno != EINTR)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot close", path);
    return status;
}

ls_status ls__folder_sync(const ls__fs *fs, const char *path)
{
    int fd = open_retrying(fs, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    ls_status status = LS_OK;
    /* EINVAL: a file system that cannot sync folders orders its own metadata. */
    if (fs->sync(fs->user, fd) != 0 && errno != EINVAL)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot sync", path);
    fs->close(fs->user, fd);
    return status;
}

/* from -> to, durable. */
static ls_status rename_and_sync(const ls__fs *fs, const char *from, const char *to)
{
    char folder[LS_PATH_MAX];
    LS_TRY(parent_of(to, folder));
    if (fs->rename(fs->user, from, to) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot rename to %s", from, to);
    return ls__folder_sync(fs, folder);
}

ls_status ls__file_write_atomic(const ls__fs *fs, const char *path, const void *data, size_t nbytes)
{
    char temporary[LS_PATH_MAX];
    LS_TRY(temporary_beside(path, temporary));
    ls_status status = write_and_sync(fs, temporary, data, nbytes);
    if (status == LS_OK) status = rename_and_sync(fs, temporary, path);
    if (status != LS_OK) fs->unlink(fs->user, temporary); /* as well as we can */
    return status;
}

ls_status ls__symlink_replace(const ls__fs *fs, const char *target, const char *link)
{
    char temporary[LS_PATH_MAX];
    LS_TRY(temporary_beside(link, temporary));
    fs->unlink(fs->user, temporary); /* of a process that was killed here and had our id */
    if (fs->symlink(fs->user, target, temporary) != 0)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot create a link", temporary);
    ls_status status = rename_and_sync(fs, temporary, link);
    if (status != LS_OK) fs->unlink(fs->user, temporary);
    return status;
}

/* --- folders --- */

static ls_status make_one(const ls__fs *fs, const char *path)
{
    if (fs->mkdir(fs->user, path, 0777) == 0) {
        char parent[LS_PATH_MAX];
        LS_TRY(parent_of(path, parent));
        return ls__folder_sync(fs, parent);
    }
    struct stat info;
    if (errno == EEXIST && (stat(path, &info) != 0 || S_ISDIR(info.st_mode))) return LS_OK;
    return ls__fail_errno(LS_ERR_IO, "%s: cannot create the folder", path);
}

ls_status ls__folder_make(const ls__fs *fs, const char *path)
{
    char part[LS_PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0 || n >= sizeof part)
        return ls_fail(LS_ERR_ARG, "\"%.64s\": not a path of 1 to %d bytes", path, LS_PATH_MAX - 1);
    memcpy(part, path, n);
    part[n] = '\0';
    struct stat info;
    if (stat(part, &info) == 0 && S_ISDIR(info.st_mode)) return LS_OK;
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        /* Folders that exist may refuse mkdir with EROFS or EACCES rather than EEXIST. */
        if (!(stat(part, &info) == 0 && S_ISDIR(info.st_mode))) LS_TRY(make_one(fs, part));
        *slash = '/';
    }
    return make_one(fs, part);
}
