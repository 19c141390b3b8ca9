/* /proc/self/cgroup, /proc/self/mountinfo and one limit, made up: parts separated by NUL. Whatever
 * they say, the limits are sane. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cgroup.h"

static const char *const fuzz_files[] = { "proc/self/cgroup", "proc/self/mountinfo",
                                          "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/memory.max" };

/* The made-up root: the current folder, which the test has made. */
static void put_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const folders[] = { "proc", "proc/self", "sys", "sys/fs", "sys/fs/cgroup" };
    for (int i = 0; i < 5; i++) mkdir(folders[i], 0700);
    for (int i = 0; i < 4; i++) {
        const uint8_t *end = i < 3 && size ? memchr(data, '\0', size) : NULL;
        size_t part = end ? (size_t)(end - data) : size;
        put_file(fuzz_files[i], data, part);
        size -= end ? part + 1 : part;
        data += end ? part + 1 : part;
    }
    ls__cgroup_limits limits;
    ls__cgroup_read(".", &limits);
    if (!(limits.cpus >= 0) || limits.memory < 0) abort();
    return 0;
}
