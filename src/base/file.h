/* Files: whole reads, atomic writes, and the few system calls that durable code is made of, behind
 * a table so that tests can record and replay what a power failure would leave. All paths are
 * relative to the working directory or absolute. Errors name the path. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <lockstep/base.h>

/* Each returns 0, a descriptor or a count as the system call does, or -1 with errno set. */
typedef struct ls__fs {
    void *user;
    int (*open)(void *user, const char *path, int flags, int mode);
    int64_t (*pwrite)(void *user, int fd, const void *data, size_t nbytes, int64_t offset);
    int (*truncate)(void *user, int fd, int64_t nbytes);
    int (*sync)(void *user, int fd); /* fdatasync; fsync for directories */
    int (*close)(void *user, int fd);
    int (*rename)(void *user, const char *from, const char *to);
    int (*unlink)(void *user, const char *path);
    int (*mkdir)(void *user, const char *path, int mode);
    int (*rmdir)(void *user, const char *path);
    int (*symlink)(void *user, const char *target, const char *path);
} ls__fs;

extern const ls__fs ls__fs_posix;
/* The same, but nothing waits for the disk: for what may be lost when the power fails. */
extern const ls__fs ls__fs_unsynced;

/* Whole file into memory (NUL behind it), at most limit bytes; freed by ls__free. */
ls_status ls__file_read(const char *path, size_t limit, char **data, size_t *nbytes);
/* Beside, sync, rename, sync the folder. */
ls_status ls__file_write_atomic(const ls__fs *fs, const char *path, const void *data,
                                size_t nbytes);
/* All of data at offset, or an error that names path. */
ls_status ls__file_pwrite(const ls__fs *fs, int fd, const char *path, const void *data,
                          size_t nbytes, int64_t offset);
ls_status ls__folder_sync(const ls__fs *fs, const char *path);
ls_status ls__folder_make(const ls__fs *fs, const char *path);   /* with parents */
ls_status ls__folder_remove(const ls__fs *fs, const char *path); /* with what is in it */
/* link -> target, replaced atomically. */
ls_status ls__symlink_replace(const ls__fs *fs, const char *target, const char *link);
bool ls__path_exists(const char *path);
/* Joins with one '/'; LS_ERR_ARG when out is too small. */
ls_status ls__path_join(char out[LS_PATH_MAX], const char *folder, const char *name);
/* From the root; as it is where the working directory cannot be read. */
ls_status ls__path_absolute(char out[LS_PATH_MAX], const char *path);

#endif
