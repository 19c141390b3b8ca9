/* Fuzz entry: what a program writes into $LOCKSTEP_METRICS. There is no folder for a record, so that only
 * the reading is done. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pipe_fds[2];
    ls__launcher_plan *plan = ls__alloc(1, sizeof *plan);
    char *line = ls__alloc((size_t)1 << 16, 1); /* as ls__foreign_metrics_open makes it */
    if (!plan || !line || pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        ls__free(plan);
        ls__free(line);
        return 0;
    }
    ls__launcher_job j = { .plan = plan,
                           .metrics_fd = pipe_fds[0],
                           .metrics_line = line,
                           .run_folder.lock = -1,
                           .best_step = -1 };
    ls__log_set_level(LS__LOG_ERROR);
    for (size_t at = 0; at < size; at += 200) { /* lines come in pieces */
        j.metrics_refused = false;
        size_t n = size - at < 200 ? size - at : 200;
        if (write(pipe_fds[1], data + at, n) == (ssize_t)n) ls__foreign_metrics_read(&j);
    }
    ls__foreign_metrics_close(&j);
    close(pipe_fds[1]);
    ls__free(plan);
    return 0;
}
