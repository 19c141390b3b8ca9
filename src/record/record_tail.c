/* Repairs the end of a metrics.jsonl whose writer was killed or lost power: half a line, or zeros
 * where the file grew before its bytes were written. Reads from the end backwards, as little as it
 * takes, because files of long runs are large. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "record/record_internal.h"

enum { BLOCK = 4096 };

static ls_status read_at(int fd, const char *path, char *out, size_t nbytes, int64_t offset)
{
    while (nbytes > 0) {
        ssize_t n = pread(fd, out, nbytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
        out += n;
        nbytes -= (size_t)n;
        offset += n;
    }
    return LS_OK;
}

/* Behind the last newline in [0, end); 0 = there is none. */
static ls_status line_start(int fd, const char *path, int64_t end, int64_t *start)
{
    char block[BLOCK];
    while (end > 0) {
        size_t n = end < BLOCK ? (size_t)end : BLOCK;
        LS_TRY(read_at(fd, path, block, n, end - (int64_t)n));
        const char *newline = memrchr(block, '\n', n);
        if (newline) {
            *start = end - (int64_t)n + (newline - block) + 1;
            return LS_OK;
        }
        end -= (int64_t)n;
    }
    *start = 0;
    return LS_OK;
}

/* Whether [start, end) is one JSON object and a newline. */
static ls_status is_whole(int fd, const char *path, int64_t start, int64_t end, bool *whole)
{
    *whole = false;
    if (end - start < 3 || end - start > LS__LINE_MAX) return LS_OK;
    size_t n = (size_t)(end - start);
    char *line = ls__alloc(n, 1);
    if (!line) return LS_ERR_MEMORY;
    ls_status status = read_at(fd, path, line, n, start);
    if (status == LS_OK && line[n - 1] == '\n') {
        json_t *object = json_loadb(line, n, 0, NULL);
        *whole = json_is_object(object);
        json_decref(object);
    }
    ls__free(line);
    return status;
}

ls_status ls__record_repair(int fd, const char *path, int64_t *size)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot look at it", path);
    int64_t end = info.st_size;
    for (bool whole = false; end > 0;) {
        int64_t start;
        LS_TRY(line_start(fd, path, end - 1, &start));
        LS_TRY(is_whole(fd, path, start, end, &whole));
        if (whole) break;
        end = start;
    }
    *size = end;
    if (end == info.st_size) return LS_OK;
    if (ftruncate(fd, end) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot write", path);
    ls__log(LS__LOG_WARN, "%s: its end was torn; %" PRId64 " bytes were cut off", path,
            (int64_t)info.st_size - end);
    return LS_OK;
}
