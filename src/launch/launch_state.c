/* States of runs. A lock of the kernel says whether somebody works on a run; files say only who, and how
 * it went, and may be older than a crash. */
#include "launch/launch_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "record/record.h"

enum { STATE_MAX = 16 << 20, LOCK_TEXT_MAX = 4096 };

static const char lock_name[] = "launch.lock", state_name[] = "launch.json";

ls_status ls__launch_lock(const char *folder, const char *name, int *fd)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, lock_name));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0) return ls__fail_errno(LS_ERR_IO, "%s", path);
    int result;
    double until = ls__now() + 0.5; /* somebody may be looking whether it is held */
    while ((result = flock(*fd, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK &&
           ls__now() < until)
        ls__sleep_ms(10);
    if (result == 0 || errno != EWOULDBLOCK) return LS_OK; /* or a file system without locks */
    close(*fd);
    *fd = -1;
    return ls_fail(LS_ERR_CONFIG,
                   "run \"%s\" is running already; lockstep stop ends it, another --name avoids it",
                   name);
}

ls_status ls__launch_state_write(const char *folder, json_t *document)
{
    char path[LS_PATH_MAX];
    ls_status status = document ? ls__path_join(path, folder, state_name)
                                : ls_fail(LS_ERR_MEMORY, "no memory for launch.json");
    if (status == LS_OK) status = ls__json_write(&ls__fs_unsynced, path, document);
    json_decref(document);
    return status;
}

json_t *ls__launch_state_read(const char *folder)
{
    char path[LS_PATH_MAX];
    json_t *document = NULL;
    if (ls__path_join(path, folder, state_name) != LS_OK || !ls__path_exists(path)) return NULL;
    return ls__json_read(path, STATE_MAX, &document) == LS_OK ? document : NULL;
}

/* --- reading --- */

/* Whether a process holds this lock. Looking takes it for a moment where nobody does. */
static bool is_held(const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    if (ls__path_join(path, folder, name) != LS_OK) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

static double changed_at(const char *folder, const char *name)
{
    char path[LS_PATH_MAX];
    struct stat info;
    if (ls__path_join(path, folder, name) != LS_OK || stat(path, &info) != 0) return 0;
    return (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec * 1e-9;
}

static void copy_text(const json_t *object, const char *key, char *out, size_t nbytes)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text) snprintf(out, nbytes, "%s", text);
}

static char *words_of(const json_t *document)
{
    ls__text text = { 0 };
    const json_t *argv = json_object_get(document, "argv");
    for (size_t i = 0; i < json_array_size(argv); i++) {
        const char *word = json_string_value(json_array_get(argv, i));
        ls__text_add(&text, "%s%s", i > 0 ? " " : "", word ? word : "");
    }
    return ls__text_take(&text);
}

/* What is in run.json (a training run) or launch.json. */
static void take_document(const json_t *document, ls__run_state *out)
{
    const json_t *step = json_object_get(document, "step");
    copy_text(document, "status", out->status, sizeof out->status);
    copy_text(document, "host", out->host, sizeof out->host);
    if (json_is_integer(step)) out->step = json_integer_value(step);
    int size = (int)json_integer_value(json_object_get(document, "world_size"));
    if (size > 0) out->world_size = size;
    out->pid = (int)json_integer_value(json_object_get(document, "pid"));
    char *words = words_of(document);
    if (!words) return;
    ls__free(out->command);
    out->command = words;
}

/* The process that holds a training run's lock is written in it. */
static int holder_of(const char *folder)
{
    char path[LS_PATH_MAX], *text;
    size_t nbytes;
    if (ls__path_join(path, folder, "lock") != LS_OK ||
        ls__file_read(path, LOCK_TEXT_MAX, &text, &nbytes) != LS_OK)
        return 0;
    json_t *holder = json_loadb(text, nbytes, 0, NULL);
    int pid = (int)json_integer_value(json_object_get(holder, "pid"));
    json_decref(holder);
    ls__free(text);
    return pid;
}

static void find_folder(const char *runs_dir, const char *name, ls__run_state *out)
{
    if (strchr(name, '/') || ls__path_join(out->folder, runs_dir, name) != LS_OK)
        snprintf(out->folder, LS_PATH_MAX, "%s", name);
    size_t n = strlen(out->folder);
    while (n > 1 && out->folder[n - 1] == '/') out->folder[--n] = '\0';
    const char *slash = strrchr(out->folder, '/');
    snprintf(out->name, sizeof out->name, "%.255s", slash ? slash + 1 : out->folder);
}

ls_status ls__run_state_read(const char *runs_dir, const char *name, ls__run_state *out)
{
    *out = (ls__run_state) { .step = -1, .status = "unknown" };
    find_folder(runs_dir, name, out);
    json_t *launch = ls__launch_state_read(out->folder), *training = NULL;
    if (ls__run_json_read(out->folder, &training) != LS_OK) training = NULL;
    if (!launch && !training)
        return ls_fail(LS_ERR_CONFIG, "%s: not the folder of a run", out->folder);
    bool launched = is_held(out->folder, lock_name), trains = is_held(out->folder, "lock");
    if (training) take_document(training, out);
    if (launch) take_document(launch, out);
    if (trains && !launched) out->pid = holder_of(out->folder);
    out->live = launched || trains;
    out->launched = launched;
    if (out->live)
        snprintf(out->status, sizeof out->status, "running");
    else if (strcmp(out->status, "running") == 0)
        snprintf(out->status, sizeof out->status, "died");
    double a = changed_at(out->folder, state_name), b = changed_at(out->folder, "run.json");
    out->time = a > b ? a : b;
    snprintf(out->logs, sizeof out->logs, "%.4000s/logs", out->folder);
    copy_text(launch, "log_dir", out->logs, sizeof out->logs);
    json_decref(launch);
    json_decref(training);
    return LS_OK;
}

void ls__run_state_free(ls__run_state *state)
{
    ls__free(state->command);
    state->command = NULL;
}
