/* lockstep stop RUN: asks a run to save and stop, and waits until it has. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"
#include "launch/launch_state.h"

enum { LOOK_MS = 50 };

static ls_status ask(const ls__run_state *run, int number)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (run->host[0] && strcmp(run->host, host) != 0)
        return ls_fail(LS_ERR_CONFIG, "run \"%s\" runs on host %s; stop it there", run->name,
                       run->host);
    if (run->pid <= 0)
        return ls_fail(LS_ERR_CONFIG, "run \"%s\" does not say which process runs it", run->name);
    if (kill(run->pid, number) == 0 || errno == ESRCH) return LS_OK;
    return ls__fail_errno(LS_ERR_CONFIG, "run \"%s\", process %d", run->name, run->pid);
}

static ls_status stop(const char *runs_dir, const char *name, double seconds, bool now)
{
    ls__run_state run;
    LS_TRY(ls_cli_run_state(runs_dir, name, &run));
    bool live = run.live;
    ls_status status = live ? ask(&run, SIGTERM) : LS_OK;
    if (!live) ls__log(LS__LOG_INFO, "run \"%s\" is not running (%s)", run.name, run.status);
    ls__run_state_free(&run);
    double begin = ls__now(),
           second = begin + 1.1; /* a request sooner would count as the same one */
    while (status == LS_OK && live) {
        LS_TRY(ls__run_state_read(runs_dir, name, &run));
        live = run.live;
        if (live && now && ls__now() > second) {
            now = false;
            status = ask(&run, SIGTERM);
        }
        if (!live) ls__log(LS__LOG_INFO, "run \"%s\": %s", run.name, run.status);
        ls__run_state_free(&run);
        if (live && ls__now() - begin > seconds)
            return ls_fail(LS_ERR_TIMEOUT,
                           "run \"%s\" still runs %g s after it was asked to stop; "
                           "--now ends it",
                           name, seconds);
        if (live) ls__sleep_ms(LOOK_MS);
    }
    return status;
}

int ls_cli_stop(int argc, char **argv)
{
    static const char *const only[] = { "runs-dir", "log-level", "json", "help", "version", NULL };
    bool now = false;
    double wait = 60;
    const ls_flag flags[] = {
        { "now", 'b', &now, "ask twice: the run ends at once, without saving" },
        { "wait", 'd', &wait, "seconds to wait for its end" },
        { 0 },
    };
    const ls_world_options program = {
        .summary = "Asks a run to save and stop, and waits until it has.",
        .arguments = "RUN",
        .flags = flags,
    };
    const char *runs_dir = "runs";
    ls__options *o = ls_cli_options(&argc, &argv, &program, only);
    ls__options_string(o, "runs-dir", &runs_dir);
    ls_status status = argc == 2 ? stop(runs_dir, argv[1], wait, now)
                                 : ls_fail(LS_ERR_CONFIG, "which run? lockstep stop RUN");
    return ls_cli_end(o, status);
}
