/* Data files are mapped, not read: start-up does not wait for their bytes, and ranks share them in
 * the page cache. A file that shrinks while it is mapped ends the process with SIGBUS, as with
 * every program that maps its data; sizes are checked when it is opened. */
#include "data/data_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

static ls_status map(int fd, const char *path, ls__data_file *out)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return ls__fail_errno(LS_ERR_DATA, "%s: cannot be read", path);
    if (!S_ISREG(info.st_mode))
        return ls_fail(LS_ERR_DATA, "%s: is %s, not a regular file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    if (info.st_size == 0) return ls_fail(LS_ERR_DATA, "%s: the file is empty", path);
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return ls__fail_errno(LS_ERR_DATA, "%s: cannot be mapped", path);
    *out = (ls__data_file) { .bytes = bytes, .nbytes = (size_t)info.st_size, .is_file = true };
    return LS_OK;
}

ls_status ls__data_file_map(const char *path, ls__data_file *out)
{
    *out = (ls__data_file) { 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (fd < 0) return ls__fail_errno(LS_ERR_DATA, "%s: cannot be opened", path);
    ls_status status = map(fd, path, out);
    close(fd);
    return status;
}

void ls__data_file_want(ls__data_file *file, bool whole)
{
    file->in_memory = whole || !file->is_file;
    if (file->is_file) /* hints, which do not wait */
        (void)madvise((void *)file->bytes, file->nbytes, whole ? MADV_WILLNEED : MADV_RANDOM);
}

ls_status ls__data_file_open(const char *path, ls__data_file *out)
{
    LS_TRY(ls__data_file_map(path, out));
    if (out->nbytes <= LS__DATA_WHOLE_MAX) ls__data_file_want(out, true);
    return LS_OK;
}

/* Of the pages around [begin, end) of a mapping. */
static void advise(const ls__data_file *file, size_t begin, size_t end, int advice)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (end > file->nbytes) end = file->nbytes;
    begin -= begin % page;
    if (file->is_file && begin < end)
        (void)madvise((uint8_t *)file->bytes + begin, end - begin, advice);
}

void ls__data_file_drop(const ls__data_file *file, size_t begin, size_t end)
{
    advise(file, begin, end, MADV_DONTNEED);
}

void ls__data_file_fetch(const ls__data_file *file, size_t begin, size_t end)
{
    advise(file, begin, end, MADV_WILLNEED);
}

void ls__data_file_close(ls__data_file *file)
{
    if (file->bytes && file->is_file)
        munmap((void *)file->bytes, file->nbytes);
    else if (file->bytes)
        ls__unmap((void *)file->bytes, file->nbytes);
    *file = (ls__data_file) { 0 };
}

static bool begins(const uint8_t *bytes, size_t nbytes, const char *with)
{
    size_t n = strlen(with);
    return nbytes >= n && memcmp(bytes, with, n) == 0;
}

const char *ls__data_file_guess(const uint8_t *bytes, size_t nbytes)
{
    if (begins(bytes, nbytes, "version https://git-lfs"))
        return " (it is a git-lfs pointer: run git lfs pull)";
    if (begins(bytes, nbytes, "<html") || begins(bytes, nbytes, "<!DOCTYPE") ||
        begins(bytes, nbytes, "<!doctype") || begins(bytes, nbytes, "<HTML"))
        return " (it is an HTML page: the download failed)";
    if (begins(bytes, nbytes, "PK\003\004")) return " (it is a zip archive: unpack it)";
    if (begins(bytes, nbytes, "\037\213")) return " (it is compressed: run gunzip)";
    if (begins(bytes, nbytes, "\x93NUMPY")) return " (it is a NumPy file)";
    return "";
}
