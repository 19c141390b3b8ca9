/* Any bytes as a safetensors file: an error, or tensors that lie side by side within them. */
#include "fuzzing.h"

#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, nbytes) != (ssize_t)nbytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ls__safetensors s;
    if (ls__safetensors_open(path, &s) == LS_OK) {
        int64_t at = s.count > 0 ? s.tensors[0].begin : (int64_t)nbytes;
        for (int i = 0; i < s.count; i++) {
            if (s.tensors[i].begin != at || s.tensors[i].end < at) abort();
            at = s.tensors[i].end;
        }
        if (at != (int64_t)nbytes) abort();
        ls__safetensors_free(&s);
    }
    close(fd);
    return 0;
}
