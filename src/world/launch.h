/* What the launch options of a command line ask for. */
#ifndef LS_WORLD_LAUNCH_H
#define LS_WORLD_LAUNCH_H

#include <lockstep/world.h>

#include "base/option.h"
#include "device/device.h"
#include "world/environment.h"

typedef struct ls__launch {
    ls__cpus cpus;
    ls__device_plan plan;
    bool crowded;   /* more threads than CPUs: waits sleep at once */
    int timeout_ms; /* -1 = none */
    double grace;   /* seconds; -1 = none */
    int max_restarts;
    bool json;
    char report[LS_PATH_MAX]; /* absolute; "" = none */
    double started;           /* ls__now() scale: exec of the process that began the job */
} ls__launch;

/* place decides how many devices there are when it names a rank. */
ls_status ls__launch_read(const ls__options *options, const ls_world_options *program,
                          const ls__place *place, ls__launch *out);
/* What a line that cannot be read says of --json and --report, so that the report of that comes where
 * it is looked for. */
void ls__launch_guess(int argc, char *const *argv, ls__launch *out);
/* The line that says nodes x devices = ranks and where each value comes from. */
void ls__launch_log(const ls__launch *launch, const ls__options *options, const ls__place *place);

/* The command line as typed, NULL-ended; by /proc. Freed by ls__command_line_free. */
char **ls__command_line(void);
void ls__command_line_free(char **argv);

#endif
