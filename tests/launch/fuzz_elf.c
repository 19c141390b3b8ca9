/* Fuzz entry: the executable's table of libraries. */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launch/launcher_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char library[64];
    int fd = memfd_create("elf", MFD_CLOEXEC);
    if (fd < 0) return 0;
    if (write(fd, data, size) == (ssize_t)size) (void)ls__elf_needs_mpi(fd, library);
    close(fd);
    return 0;
}
