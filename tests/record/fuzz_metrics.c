/* Any bytes as a metrics.jsonl: series of increasing steps, whatever they are. */
#include "fuzzing.h"

#include <sys/mman.h>
#include <unistd.h>

#include "record/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, nbytes) != (ssize_t)nbytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ls__metrics m;
    if (ls__metrics_read(path, &m) != LS_OK) abort();
    for (int s = 0; s < m.count; s++) {
        if (ls__metrics_find(&m, m.series[s].name) != &m.series[s]) abort();
        for (int i = 1; i < m.series[s].count; i++)
            if (m.series[s].points[i].step <= m.series[s].points[i - 1].step) abort();
    }
    ls__metrics_free(&m);
    close(fd);
    return 0;
}
