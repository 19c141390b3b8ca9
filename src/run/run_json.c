/* run.json: what this start of the run was given and found. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_state.h"

static json_t *argv_json(const ls_run *run)
{
    json_t *argv = json_array();
    for (int i = 0; argv && ls__world_argv(run->world, i); i++)
        json_array_append_new(argv, json_string(ls__world_argv(run->world, i)));
    return argv;
}

/* The commit that HEAD of the working directory's repository names; "" = none. Reading two files
 * needs no git. */
static void git_revision(char out[80])
{
    char *head, *target, path[LS_PATH_MAX], base[LS_PATH_MAX] = ".git";
    size_t nbytes;
    out[0] = '\0';
    for (int up = 0; up < 16 && !ls__path_exists(base); up++) {
        char higher[LS_PATH_MAX];
        if (snprintf(higher, sizeof higher, "../%s", base) >= (int)sizeof higher) return;
        memcpy(base, higher, sizeof base);
    }
    if (ls__path_join(path, base, "HEAD") != LS_OK || !ls__path_exists(path) ||
        ls__file_read(path, 4096, &head, &nbytes) != LS_OK)
        return;
    head[strcspn(head, "\n")] = '\0';
    if (strncmp(head, "ref: ", 5) != 0) {
        snprintf(out, 80, "%.64s", head);
    } else if (ls__path_join(path, base, head + 5) == LS_OK && ls__path_exists(path) &&
               ls__file_read(path, 4096, &target, &nbytes) == LS_OK) {
        target[strcspn(target, "\n")] = '\0';
        snprintf(out, 80, "%.64s", target);
        ls__free(target);
    }
    ls__free(head);
}

/* NULL = null: not known, or there is none. */
static json_t *positive(int64_t n)
{
    return n ? json_integer(n) : NULL;
}

static json_t *document(ls_run *run, const char *status)
{
    char host[256] = "", git[80], started[32];
    gethostname(host, sizeof host - 1);
    git_revision(git);
    ls__wall_text(run->started, started);
    const ls__cpus *cpus = ls__world_cpus(run->world);
    json_t *configuration = ls__settings_json(&run->settings);
    if (!configuration) return NULL;
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:s?, s:s, s:s, s:{s:s, s:s}, s:i, s:i, s:i, s:i, s:I, s:I, s:o?, "
        "s:o, s:s?, s:I, s:o?, s:o?, s:o?}",
        "name", run->folder.name, "status", status, "argv", argv_json(run), "version", ls_version(),
        "git", git[0] ? git : NULL, "host", host, "devices", ls__world_devices(run->world)->text,
        "cpu", "model", cpus->model, "isa", cpus->isa, "world_size", run->size, "threads",
        ls_world_threads(run->world), "micro_batches", run->micro_batches, "evaluation_chunk",
        (int)LS__EVALUATION_CHUNK, "step", (json_int_t)run->step, "pid", (json_int_t)getpid(),
        "options", ls__options_json(ls__world_options(run->world)), "configuration", configuration,
        "started", started, "memory_predicted_bytes", (json_int_t)run->memory.predicted,
        "peak_rss_bytes", positive(run->memory.peak), "device_predicted_bytes",
        positive(run->memory.device), "device_peak_bytes", positive(run->memory.device_peak));
}

void ls__run_json(ls_run *run, const char *status)
{
    if (run->rank != 0) return;
    json_t *json = document(run, status);
    if (!json) return;
    if (run->record && strcmp(status, "running") == 0) {
        ls__record_heartbeat(run->record, json); /* stolen */
        return;
    }
    if (ls__run_json_write(&run->folder, json) != LS_OK)
        ls__log(LS__LOG_WARN, "run.json could not be written: %s", ls_error_text());
    json_decref(json);
}
