/* Turns what a person types for a checkpoint into a path. Somebody who mistypes is told what is
 * there. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/option.h"
#include "checkpoint/checkpoint_internal.h"

enum { LISTED = 10 };

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static bool holds(const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    return ls__path_join(path, folder, name) == LS_OK && ls__path_exists(path);
}

/* --- a run that is not there --- */

typedef struct run_names {
    char *names[256];
    int n;
} run_names;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_runs(const char *runs_dir, run_names *out)
{
    *out = (run_names) { .n = 0 };
    DIR *dir = opendir(runs_dir);
    if (!dir) return;
    for (const struct dirent *entry; out->n < 255 && (entry = readdir(dir));) {
        char path[LS_PATH_MAX];
        if (entry->d_name[0] == '.' || ls__path_join(path, runs_dir, entry->d_name) != LS_OK ||
            !is_folder(path))
            continue;
        out->names[out->n] = ls__strdup(entry->d_name);
        if (out->names[out->n]) out->n++;
    }
    closedir(dir);
    qsort(out->names, (size_t)out->n, sizeof *out->names, by_name);
}

ls_status ls__run_unknown(const char *runs_dir, const char *run)
{
    run_names runs;
    char where[LS_PATH_MAX];
    list_runs(runs_dir, &runs);
    LS_TRY(ls__path_absolute(where, runs_dir));
    char list[1024] = "";
    size_t used = 0;
    for (int i = 0; i < runs.n && i < LISTED && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.80s", i ? ", " : "",
                                 runs.names[i]);
    const char *close = ls__suggest(run, (const char *const *)runs.names);
    if (runs.n == 0)
        ls_fail(LS_ERR_CONFIG, "no run \"%s\": %s holds no runs (--runs-dir)", run, where);
    else if (close)
        ls_fail(LS_ERR_CONFIG, "no run \"%s\" in %s; did you mean %s?", run, where, close);
    else
        ls_fail(LS_ERR_CONFIG, "no run \"%s\" in %s; there are: %s%s", run, where, list,
                runs.n > LISTED ? ", ..." : "");
    for (int i = 0; i < runs.n; i++) ls__free(runs.names[i]);
    return LS_ERR_CONFIG;
}

/* --- a checkpoint of a run --- */

static ls_status no_checkpoint(const char *folder, const char *which, const int64_t *steps, int n)
{
    char list[512] = "";
    size_t used = 0;
    int first = n > LISTED ? n - LISTED : 0;
    for (int i = first; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRId64,
                                 i > first ? ", " : "", steps[i]);
    if (n == 0) return ls_fail(LS_ERR_CONFIG, "%s: no checkpoint yet", folder);
    return ls_fail(LS_ERR_CONFIG, "%s: no checkpoint \"%s\"; there are last%s and the steps %s%s",
                   folder, which, ls__checkpoint_link(folder, "best") >= 0 ? ", best" : "",
                   first ? "..., " : "", list);
}

static bool has_step(const int64_t *steps, int n, int64_t step)
{
    for (int i = 0; i < n; i++)
        if (steps[i] == step) return true;
    return false;
}

/* which: "last", "best" or a step. A link that is missing or dangling is no reason not to find the
 * newest. -1 = none. */
static int64_t choose(const char *folder, const char *which, const int64_t *steps, int n)
{
    if (strcmp(which, "best") == 0) return ls__checkpoint_link(folder, "best");
    if (strcmp(which, "last") == 0) return n > 0 ? steps[n - 1] : -1;
    char *end;
    errno = 0;
    long long step = strtoll(which, &end, 10);
    bool number = which[0] >= '0' && which[0] <= '9' && *end == '\0' && errno == 0;
    return number && has_step(steps, n, step) ? step : -1;
}

static ls_status in_run(const char *run, const char *which, char path[LS_PATH_MAX])
{
    char folder[LS_PATH_MAX], name[64];
    int64_t *steps;
    int n;
    LS_TRY(ls__path_join(folder, run, "checkpoints"));
    LS_TRY(ls__checkpoint_steps(folder, &steps, &n));
    int64_t step = choose(folder, which, steps, n);
    ls_status status = step >= 0 ? LS_OK : no_checkpoint(folder, which, steps, n);
    ls__free(steps);
    if (status != LS_OK) return status;
    ls__step_name(step, name);
    return ls__path_join(path, folder, name);
}

/* --- what was typed --- */

/* A path to something that is a checkpoint by itself. A bare name is a file only when it says so:
 * the program `mlp` may lie beside its run `mlp`. */
static bool is_checkpoint(const char *path)
{
    size_t n = strlen(path);
    bool named = n > 12 && strcmp(path + n - 12, ".safetensors") == 0;
    return ((named || strchr(path, '/')) && is_file(path)) ||
           (is_folder(path) && holds(path, LS__MANIFEST_FILE));
}

static ls_status copy_path(const char *from, char out[LS_PATH_MAX])
{
    return ls__path_join(out, "", from);
}

/* run: a name under runs_dir, or a path. */
static ls_status find_run(const char *runs_dir, const char *run, char path[LS_PATH_MAX])
{
    if (!*run) return ls_fail(LS_ERR_CONFIG, "an empty name is no run");
    if (!strchr(run, '/')) {
        LS_TRY(ls__path_join(path, runs_dir, run));
        if (is_folder(path)) return LS_OK;
    }
    if (is_folder(run) && holds(run, "checkpoints")) return copy_path(run, path);
    if (is_folder(run) && strchr(run, '/'))
        return ls_fail(LS_ERR_CONFIG, "%s: neither a run nor a checkpoint", run);
    if (strchr(run, '/')) return ls_fail(LS_ERR_CONFIG, "%s: there is nothing", run);
    return ls__run_unknown(runs_dir, run);
}

ls_status ls__checkpoint_resolve(const char *runs_dir, const char *name, char path[LS_PATH_MAX])
{
    char run[LS_PATH_MAX], folder[LS_PATH_MAX];
    LS_TRY(copy_path(name, run)); /* its length is checked */
    size_t n = strlen(run);
    while (n > 1 && run[n - 1] == '/') run[--n] = '\0';
    if (is_checkpoint(run)) return copy_path(run, path);
    const char *which = "last";
    char *at = strrchr(run, '@');
    if (at && !strchr(at, '/') && !is_folder(run)) {
        *at = '\0';
        which = at + 1;
    }
    LS_TRY(find_run(runs_dir, run, folder));
    return in_run(folder, which, path);
}
