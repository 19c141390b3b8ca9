/* Writes safetensors. Tensors keep the order they are given in, which is that of the flat space, so
 * that neighbouring ranges are neighbours in the file too; the format asks only that there are no
 * holes. The header is padded with spaces until the data begins on a page. Workload: a header per
 * save, a few thousand tensors. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

enum { HEADER_MAX = 100000000 };

/* --- the header --- */

static int64_t elements(const ls__saved_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    return count;
}

/* "name":{"dtype":"F32","shape":[..],"data_offsets":[b,e]} */
static void write_entry(FILE *to, const char *quoted, const ls__saved_tensor *t, int64_t begin)
{
    fprintf(to, "%s:{\"dtype\":\"F32\",\"shape\":[", quoted);
    for (int d = 0; d < t->rank; d++) fprintf(to, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    fprintf(to, "],\"data_offsets\":[%lld,%lld]}", (long long)begin,
            (long long)(begin + 4 * elements(t)));
}

static ls_status write_json(FILE *to, const ls__saved_tensor *tensors, int n, int64_t *begins)
{
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", to); /* the key that transformers looks for */
    int64_t begin = 0;
    for (int i = 0; i < n; i++) {
        json_t *name = json_string(tensors[i].name);
        char *quoted = json_dumps(name, JSON_ENCODE_ANY | JSON_COMPACT);
        json_decref(name);
        if (!quoted)
            return ls_fail(LS_ERR_ARG, "tensor \"%.100s\": its name is not UTF-8", tensors[i].name);
        fputc(',', to);
        write_entry(to, quoted, &tensors[i], begin);
        free(quoted);
        if (begins) begins[i] = begin;
        begin += 4 * elements(&tensors[i]);
    }
    fputc('}', to);
    return LS_OK;
}

/* text of length bytes behind 8 bytes of length, padded. */
static ls_status frame(const char *text, size_t length, size_t align, char **header, size_t *nbytes)
{
    size_t total = (8 + length + align - 1) / align * align;
    if (total - 8 > HEADER_MAX)
        return ls_fail(LS_ERR_ARG, "a safetensors header of %zu bytes; the format allows %d",
                       total - 8, HEADER_MAX);
    char *out = ls__alloc(total, 1);
    if (!out) return LS_ERR_MEMORY;
    for (int i = 0; i < 8; i++) out[i] = (char)((uint64_t)(total - 8) >> 8 * i);
    memcpy(out + 8, text, length);
    memset(out + 8 + length, ' ', total - 8 - length);
    *header = out;
    *nbytes = total;
    return LS_OK;
}

ls_status ls__safetensors_header(const ls__saved_tensor *tensors, int n, size_t align,
                                 char **header, size_t *nbytes, int64_t *begins)
{
    *header = NULL;
    *nbytes = 0;
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    if (!to) return ls_fail(LS_ERR_MEMORY, "out of memory: could not write a header");
    ls_status status = write_json(to, tensors, n, begins);
    if (fclose(to) != 0 && status == LS_OK)
        status = ls_fail(LS_ERR_MEMORY, "out of memory: could not write a header");
    if (status == LS_OK) status = frame(text, length, align, header, nbytes);
    free(text);
    for (int i = 0; status == LS_OK && begins && i < n; i++) begins[i] += (int64_t)*nbytes;
    return status;
}

/* --- a whole file --- */

static ls_status write_data(const ls__fs *fs, int fd, const char *path,
                            const ls__saved_tensor *tensors, int n, const float *params,
                            const int64_t *begins)
{
    for (int i = 0; i < n; i++)
        LS_TRY(ls__file_pwrite(fs, fd, path, params + tensors[i].offset,
                               4 * (size_t)elements(&tensors[i]), begins[i]));
    return LS_OK;
}

/* Beside its place, synced, renamed, the folder synced; like ls__file_write_atomic for data that is
 * nowhere in one piece. */
static ls_status write_beside(const ls__fs *fs, const char *path, const char *temporary,
                              const ls__saved_tensor *tensors, int n, const float *params,
                              const char *header, size_t nbytes, const int64_t *begins)
{
    int fd = fs->open(fs->user, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot create", temporary);
    ls_status status = ls__file_pwrite(fs, fd, temporary, header, nbytes, 0);
    if (status == LS_OK) status = write_data(fs, fd, temporary, tensors, n, params, begins);
    if (status == LS_OK && fs->sync(fs->user, fd) != 0)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot sync", temporary);
    if (fs->close(fs->user, fd) != 0 && status == LS_OK)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot close", temporary);
    if (status == LS_OK && fs->rename(fs->user, temporary, path) != 0)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot rename to %s", temporary, path);
    return status;
}

static ls_status sync_parent(const ls__fs *fs, const char *path)
{
    char folder[LS_PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return ls__folder_sync(fs, folder[0] ? folder : "/");
}

ls_status ls__safetensors_write(const ls__fs *fs, const char *path, const ls__saved_tensor *tensors,
                                int n, const float *params)
{
    char temporary[LS_PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid()) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_ARG, "%.64s...: the path is too long", path);
    if (!fs) fs = &ls__fs_posix;
    char *header = NULL;
    size_t nbytes;
    ls_status status;
    int64_t *begins = ls__alloc((size_t)n + 1, sizeof *begins);
    if (!begins) return LS_ERR_MEMORY;
    LS_TRY_GOTO(ls__safetensors_header(tensors, n, 4096, &header, &nbytes, begins), status, done);
    status = write_beside(fs, path, temporary, tensors, n, params, header, nbytes, begins);
    if (status != LS_OK)
        fs->unlink(fs->user, temporary); /* as well as we can */
    else
        status = sync_parent(fs, path);
done:
    ls__free(header);
    ls__free(begins);
    return status;
}
