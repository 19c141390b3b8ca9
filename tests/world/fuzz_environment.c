/* Any lines as the variables that say which rank this is: an error, or a place within its world. */
#include "fuzzing.h"

#include "base/log.h"
#include "world/environment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const char *const names[] = { "LOCKSTEP__JOIN", "RANK",        "LOCAL_RANK",
                                         "WORLD_SIZE",     "MASTER_ADDR", "MASTER_PORT" };
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
        if (place.local_rank < 0) abort();
        if (!memchr(place.job, '\0', sizeof place.job)) abort();
        if (place.by == LS__STARTED_BY_US && getenv("LOCKSTEP__JOIN")) abort();
    }
    free(text);
    return 0;
}
