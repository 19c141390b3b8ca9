/* Verifies a checkpoint against its manifest: one pass over each file, front to back, the pieces as
 * they come. XXH3 is faster than any disk, so one thread reads; what limits is the read. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

enum { CHUNK = 256 << 10 }; /* stays in the second-level cache between read and sum */

/* The sum of the next nbytes of fd. */
static ls_status sum_bytes(int fd, const char *path, int64_t nbytes, char *chunk,
                           XXH3_state_t *state, uint64_t *sum)
{
    XXH3_64bits_reset(state);
    while (nbytes > 0) {
        ssize_t n = read(fd, chunk, nbytes < CHUNK ? (size_t)nbytes : CHUNK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
        if (n == 0) return ls_fail(LS_ERR_DATA, "%s: became shorter while it was read", path);
        XXH3_64bits_update(state, chunk, (size_t)n);
        nbytes -= n;
    }
    *sum = XXH3_64bits_digest(state);
    return LS_OK;
}

static ls_status verify_pieces(int fd, const char *path, const ls__manifest_file *file, char *chunk,
                               XXH3_state_t *state)
{
    ls__piece whole = { .nbytes = file->nbytes, .xxh3 = file->xxh3 };
    const ls__piece *pieces = file->pieces ? file->pieces : &whole;
    int n = file->pieces ? file->npieces : 1;
    for (int i = 0; i < n; i++) {
        uint64_t sum = 0;
        LS_TRY(sum_bytes(fd, path, pieces[i].nbytes, chunk, state, &sum));
        if (sum != pieces[i].xxh3)
            return ls_fail(LS_ERR_DATA,
                           "%s: damaged: the checksum of bytes %" PRId64 " to %" PRId64 " is wrong",
                           path, pieces[i].offset, pieces[i].offset + pieces[i].nbytes);
    }
    return LS_OK;
}

static ls_status verify_open_file(int fd, const char *path, const ls__manifest_file *file)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot look at it", path);
    if (!S_ISREG(info.st_mode)) return ls_fail(LS_ERR_DATA, "%s: damaged: not a file", path);
    if (info.st_size != file->nbytes)
        return ls_fail(LS_ERR_DATA,
                       "%s: damaged: %s: it has %" PRId64 " bytes and should have %" PRId64, path,
                       info.st_size < file->nbytes ? "truncated" : "too long",
                       (int64_t)info.st_size, file->nbytes);
    char *chunk = ls__alloc(CHUNK, 1);
    XXH3_state_t *state = XXH3_createState();
    ls_status status = LS_ERR_MEMORY;
    if (chunk && !state) ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    if (chunk && state) status = verify_pieces(fd, path, file, chunk, state);
    XXH3_freeState(state);
    ls__free(chunk);
    return status;
}

static ls_status verify_file(const char *folder, const ls__manifest_file *file)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, file->name));
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 && errno == ENOENT) return ls_fail(LS_ERR_DATA, "%s: damaged: it is missing", path);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a cold file is read ahead further */
    ls_status status = verify_open_file(fd, path, file);
    close(fd);
    return status;
}

/* A folder that was renamed by hand would make the newest one a matter of taste. */
static ls_status check_step(const char *folder, int64_t step)
{
    const char *slash = strrchr(folder, '/');
    int64_t said;
    if (ls__step_parse(slash ? slash + 1 : folder, &said) && said != step)
        return ls_fail(LS_ERR_DATA, "%s: damaged: its manifest is that of step %" PRId64, folder,
                       step);
    return LS_OK;
}

static ls_status verify_weights(const char *path)
{
    ls__safetensors s;
    LS_TRY(ls__safetensors_open(path, &s));
    ls__safetensors_free(&s);
    return LS_OK;
}

ls_status ls__checkpoint_verify(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    if (!S_ISDIR(info.st_mode)) return verify_weights(path);
    ls__manifest manifest;
    LS_TRY(ls__manifest_read(path, &manifest));
    ls_status status = check_step(path, manifest.step);
    for (int i = 0; status == LS_OK && i < manifest.nfiles; i++)
        status = verify_file(path, &manifest.files[i]);
    ls__manifest_free(&manifest);
    return status;
}
