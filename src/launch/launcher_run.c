/* One run of the launcher from plan to exit code: its name and folders, and who does what. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "launch/first_node.h"
#include "launch/launch_state.h"
#include "launch/launcher.h"
#include "record/record.h"

/* A name, and its folder. One that nobody asked for must not keep a program from running where the
 * current folder is read-only. */
static ls_status make_run(ls__launcher_plan *plan, int *lock)
{
    char folder[LS_PATH_MAX];
    ls_status status = LS_OK;
    if (!plan->name[0]) status = ls__run_name(plan->runs_dir, plan->name);
    if (status == LS_OK) status = ls__path_join(folder, plan->runs_dir, plan->name);
    if (status == LS_OK) status = ls__folder_make(&ls__fs_unsynced, folder);
    if (status == LS_OK) return ls__launch_lock(folder, plan->name, lock);
    if (plan->named) return status;
    ls__log(LS__LOG_WARN, "no logs and no report are kept: %s (--runs-dir DIR puts them elsewhere)",
            ls_error_text());
    plan->name[0] = '\0';
    return LS_OK;
}

/* Logs that somebody asked for are worth more than a run without them. */
static ls_status make_log_dir(const char *path)
{
    if (!path[0]) return LS_OK;
    if (ls__folder_make(&ls__fs_unsynced, path) == LS_OK && access(path, W_OK | X_OK) == 0)
        return LS_OK;
    if (errno == EEXIST) errno = ENOTDIR; /* a file has that name */
    return ls__fail_errno(LS_ERR_CONFIG, "--log-dir %s cannot be written", path);
}

/* For files that are the job's own and go with it. */
static ls_status make_folder(char out[LS_PATH_MAX])
{
    const char *place = getenv("TMPDIR");
    if (!place || place[0] != '/') place = "/tmp";
    snprintf(out, LS_PATH_MAX, "%.3900s/lockstep-run-XXXXXX", place);
    return mkdtemp(out) ? LS_OK : ls__fail_errno(LS_ERR_IO, "%s", out);
}

typedef struct job_of_run {
    ls__launcher_plan *plan;
    const char *folder;
} job_of_run;

static int supervise(void *user, int guardian_fd)
{
    const job_of_run *job = user;
    return ls__launcher_supervise(job->plan, guardian_fd, job->folder);
}

int ls__launcher_run(ls__launcher_plan *plan)
{
    char folder[LS_PATH_MAX];
    int lock = -1; /* held by this process and the launcher, whichever lives longer */
    /* The first of several machines keeps the run. */
    bool other = plan->nodes.role == LS__NODES_OTHER;
    if (other) plan->name[0] = '\0';
    bool kept = !other && (!plan->no_logs || plan->named);
    if (kept) ls__first_node_find(plan);
    ls_status status = make_log_dir(plan->log_dir);
    if (status == LS_OK && kept) status = make_run(plan, &lock);
    if (status == LS_OK && !plan->run_id[0])
        snprintf(plan->run_id, sizeof plan->run_id, "%s", plan->name[0] ? plan->name : "lockstep");
    if (status == LS_OK) status = make_folder(folder);
    if (status != LS_OK) {
        if (lock >= 0) close(lock);
        ls__log(LS__LOG_ERROR, "%s", ls_error_text());
        return ls__exit_code(status);
    }
    job_of_run job = { .plan = plan, .folder = folder };
    int code = ls__guard(supervise, &job);
    /* By whoever is left of the two; the other's removal finds nothing. */
    if (ls__path_exists(folder) && ls__folder_remove(&ls__fs_posix, folder) != LS_OK)
        ls__log(LS__LOG_DEBUG, "%s", ls_error_text());
    if (lock >= 0) close(lock);
    return code;
}
