/* Any lines as the variables that say which rank this is: an error, or a place within its world. */
#include "fuzzing.h"

#include "base/log.h"
#include "world/environment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const char *const names[] = { "LOCKSTEP__JOIN",
                                         "RANK",
                                         "LOCAL_RANK",
                                         "WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "LOCAL_WORLD_SIZE",
                                         "GROUP_RANK",
                                         "GROUP_WORLD_SIZE",
                                         "TORCHELASTIC_USE_AGENT_STORE",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "SLURM_PROCID",
                                         "SLURM_NTASKS",
                                         "SLURM_LOCALID",
                                         "SLURM_NODEID",
                                         "SLURM_STEP_ID",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_TASKS_PER_NODE",
                                         "SLURM_STEP_NODELIST",
                                         "LOCKSTEP_SECRET" };
    enum { NAMES = sizeof names / sizeof names[0] };
    char *text = malloc(nbytes + 1), *line = text;
    if (!text) return 0;
    if (nbytes) memcpy(text, data, nbytes);
    text[nbytes] = '\0';
    for (int i = 0; i < NAMES; i++) {
        char *next = line ? strchr(line, '\n') : NULL;
        if (next) *next++ = '\0';
        /* an empty line: not set at all */
        if (line && line[0])
            setenv(names[i], line, 1);
        else
            unsetenv(names[i]);
        line = next;
    }
    ls__log_set_level(LS__LOG_ERROR);
    ls__place place = { 0 };
    if (ls__environment_read(&place) == LS_OK && place.by != LS__STARTED_ALONE) {
        if (place.size < 1 || place.rank < 0 || place.rank >= place.size) abort();
        if (place.local_rank < 0 || place.local_rank >= place.local_size) abort();
        if (place.local_size < 1 || place.local_size > place.size) abort();
        if (place.found == LS__FOUND_AT_ADDRESS && (!place.address[0] || place.port < 1)) abort();
        if (!memchr(place.job, '\0', sizeof place.job)) abort();
        if (place.by == LS__STARTED_BY_US && getenv("LOCKSTEP__JOIN")) abort();
    }
    free(text);
    return 0;
}
