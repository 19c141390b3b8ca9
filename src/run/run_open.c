/* Which run is this? Rank 0 finds the name, takes the folder and its lock, and finds the
 * checkpoint to go on with; the others are told. Then every rank applies the same rules to the
 * same document. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mac.h"
#include "base/memory.h"
#include "run/micro_batches.h"
#include "run/run_state.h"

/* --- rank 0 --- */

/* ".../NAME/checkpoints/step-x" -> ".../NAME"; false when it is not a run's checkpoint. */
static bool run_of_checkpoint(const char *path, char out[LS_PATH_MAX])
{
    snprintf(out, LS_PATH_MAX, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash) return false;
    *slash = '\0';
    slash = strrchr(out, '/');
    if (!slash || slash == out || strcmp(slash + 1, "checkpoints") != 0) return false;
    *slash = '\0';
    return true;
}

/* --resume RUN: goes on with that run in its own folder, unless --name gives it another. */
static ls_status open_other(ls_run *run, const char *runs_dir, const char *other)
{
    const char *name = run->settings.options.name;
    char folder[LS_PATH_MAX];
    LS_TRY(ls__checkpoint_resolve(runs_dir, other, run->resumed_path));
    if (!run_of_checkpoint(run->resumed_path, folder))
        return ls_fail(
            LS_ERR_CONFIG,
            "--resume %s: %s is not a checkpoint of a run; to begin with its weights, load "
            "them into the model",
            other, run->resumed_path);
    char *slash = strrchr(folder, '/');
    const char *own = slash ? slash + 1 : folder;
    if (slash) *slash = '\0';
    if (name)
        LS_TRY(ls__run_folder_open(runs_dir, name, &run->folder));
    else
        LS_TRY(ls__run_folder_open(slash ? folder : ".", own, &run->folder));
    LS_TRY(ls__checkpoint_verify(run->resumed_path));
    return ls__checkpoint_trainer(run->resumed_path, &run->resumed);
}

static ls_status check_not_taken(const ls_run *run)
{
    char json[LS_PATH_MAX];
    LS_TRY(ls__path_join(json, run->folder.path, "run.json"));
    if (!run->resumed && !ls__path_exists(json)) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "--resume none: the name %s is taken by %s; choose another --name, or leave "
                   "--resume out to go on with it",
                   run->folder.name, run->folder.path);
}

static ls_status find_own(ls_run *run)
{
    return ls__checkpoint_find(run->folder.checkpoints, true, run->resumed_path, &run->resumed);
}

/* After a restart by the supervisor: goes on with what the job was doing, whatever it began
 * with. */
static ls_status open_again(ls_run *run)
{
    char folder[LS_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", ls__world_restart_folder(run->world));
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return ls_fail(LS_ERR_INTERNAL, "restarted in \"%s\"", folder);
    *slash = '\0';
    LS_TRY(ls__run_folder_open(folder, slash + 1, &run->folder));
    return find_own(run);
}

/* --resume RUN with a --name of its own: by the second start it has checkpoints of its own. */
static ls_status open_branch(ls_run *run, const ls_run_options *o)
{
    char own[LS_PATH_MAX];
    LS_TRY(ls__path_join(own, o->runs_dir, o->name));
    if (!ls__path_exists(own)) /* a name that was mistyped leaves no empty folder */
        LS_TRY(ls__checkpoint_resolve(o->runs_dir, o->resume, run->resumed_path));
    LS_TRY(ls__run_folder_open(o->runs_dir, o->name, &run->folder));
    LS_TRY(find_own(run));
    if (run->resumed) return LS_OK;
    ls__run_folder_close(&run->folder);
    return open_other(run, o->runs_dir, o->resume);
}

/* Whether run.json was written by this command line. */
static bool is_ours(const ls_run *run, const json_t *document)
{
    const json_t *argv = json_object_get(document, "argv");
    size_t n = 0;
    for (const char *word; (word = ls__world_argv(run->world, (int)n)); n++) {
        const char *recorded = json_string_value(json_array_get(argv, n));
        if (!recorded || strcmp(word, recorded) != 0) return false;
    }
    return n == json_array_size(argv);
}

/* Without --name: what lockstep run calls the run, so that another start of the job goes on with it;
 * but a script may train several models in one job, and only the first of them gets it. */
static ls_status find_name(const ls_run *run, char out[256])
{
    const char *runs_dir = run->settings.options.runs_dir;
    const char *given = ls__world_run_name(run->world);
    char folder[LS_PATH_MAX];
    json_t *document = NULL;
    if (!given[0] || ls__run_name_check(given) != LS_OK) return ls__run_name(runs_dir, out);
    LS_TRY(ls__path_join(folder, runs_dir, given));
    bool known = ls__run_json_read(folder, &document) == LS_OK;
    bool free = known && (!document || is_ours(run, document));
    json_decref(document);
    snprintf(out, 256, "%s", given);
    if (free) return LS_OK;
    LS_TRY(ls__run_name(runs_dir, out));
    ls__log(LS__LOG_INFO, "another command has trained in %s: this run is called %s", folder, out);
    return LS_OK;
}

static ls_status open_folder(ls_run *run)
{
    const ls_run_options *o = &run->settings.options;
    bool none = strcmp(o->resume, "none") == 0;
    char made_up[256];
    if (ls__world_restart_folder(run->world)[0]) return open_again(run);
    if (!none && strcmp(o->resume, "auto") != 0)
        return o->name ? open_branch(run, o) : open_other(run, o->runs_dir, o->resume);
    if (!o->name) LS_TRY(find_name(run, made_up));
    LS_TRY(ls__run_folder_open(o->runs_dir, o->name ? o->name : made_up, &run->folder));
    LS_TRY(find_own(run));
    bool again =
        ls__world_restarts(run->world) > 0; /* then none has been said of the first start */
    return none && !again ? check_not_taken(run) : LS_OK;
}

/* --- every rank --- */

static json_t *describe(const ls_run *run, const char *mark)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:O?}", "name", run->folder.name, "folder",
                     run->folder.path, "checkpoints", run->folder.checkpoints, "mark", mark, "path",
                     run->resumed_path, "trainer", run->resumed);
}

/* An empty file of a name that no other folder has, for the others to see whether this is theirs. */
static ls_status make_mark(const ls_run *run, char mark[LS_PATH_MAX])
{
    char name[32];
    uint64_t number;
    LS_TRY(ls__random_bytes(&number, sizeof number));
    snprintf(name, sizeof name, ".seen-%016" PRIx64, number);
    LS_TRY(ls__path_join(mark, run->folder.checkpoints, name));
    return ls__file_write_atomic(&ls__fs_unsynced, mark, "", 0);
}

static void take_text(char *out, size_t nbytes, const json_t *document, const char *key)
{
    const char *text = json_string_value(json_object_get(document, key));
    snprintf(out, nbytes, "%s", text ? text : "");
}

static ls_status take_description(ls_run *run, const json_t *document, char mark[LS_PATH_MAX])
{
    if (!document) return ls_fail(LS_ERR_MEMORY, "out of memory: the run's description");
    run->folder.lock = -1;
    take_text(run->folder.name, sizeof run->folder.name, document, "name");
    take_text(run->folder.path, sizeof run->folder.path, document, "folder");
    take_text(run->folder.checkpoints, sizeof run->folder.checkpoints, document, "checkpoints");
    take_text(mark, LS_PATH_MAX, document, "mark");
    take_text(run->resumed_path, sizeof run->resumed_path, document, "path");
    json_t *trainer = json_object_get(document, "trainer");
    run->resumed = json_is_object(trainer) ? json_incref(trainer) : NULL;
    return LS_OK;
}

static ls_status open_and_share(ls_run *run, char mark[LS_PATH_MAX])
{
    ls_status status = run->rank == 0 ? open_folder(run) : LS_OK;
    if (status == LS_OK && run->rank == 0) status = make_mark(run, mark);
    LS_TRY(ls__share_failure(run->comm, status, NULL, NULL));
    json_t *document = run->rank == 0 ? describe(run, mark) : NULL;
    status = ls__share_json(run->comm, &document);
    if (status == LS_OK && run->rank != 0) status = take_description(run, document, mark);
    json_decref(document);
    return status;
}

/* Every rank writes its part of a checkpoint. Better said before training than at its first save. */
static ls_status check_folder(const ls_run *run, const char *mark)
{
    char host[256] = "?";
    if (ls__path_exists(mark)) return LS_OK;
    gethostname(host, sizeof host - 1);
    if (run->settings.options.save_every.steps != LS_NONE)
        return ls_fail(LS_ERR_CONFIG,
                       "on host %s there is no folder %s, or another than rank 0's: all machines "
                       "save to one folder, so start lockstep in one that they share, or name one "
                       "(--runs-dir FOLDER), or do without (--save-every none)",
                       host, run->folder.checkpoints);
    ls__log(LS__LOG_WARN, "rank %d (host %s) does not see %s: nothing can be saved", run->rank,
            host, run->folder.checkpoints);
    return LS_OK;
}

/* --- the rules of a resume --- */

static ls_status check_length(const ls_run *run)
{
    int64_t length = json_integer_value(json_object_get(run->resumed, "data_length"));
    if (length == run->length) return LS_OK;
    return ls_fail(
        LS_ERR_CONFIG,
        "the training data has %" PRId64 " samples; run %s was begun with %" PRId64
        ", and its place in them would be another: give it that data, or begin a run with "
        "--name",
        run->length, run->folder.name, length);
}

/* An optimizer whose states are not in the checkpoint cannot go on from it. */
static ls_status check_states(const ls_run *run)
{
    const json_t *states = json_object_get(run->resumed, "optimizer_states");
    const ls_optimizer *kind = run->settings.options.optimizer.kind;
    size_t n = 0;
    bool same = true;
    for (; kind->states && kind->states[n]; n++) {
        const char *recorded = json_string_value(json_array_get(states, n));
        same = same && recorded && strcmp(recorded, kind->states[n]) == 0;
    }
    if (same && json_array_size(states) == n) return LS_OK;
    return ls_fail(
        LS_ERR_CONFIG,
        "optimizer %s keeps other state than the one that run %s was begun with; begin a run "
        "with --name",
        kind->name, run->folder.name);
}

static void tell_machine(const ls_run *run)
{
    const ls__cpus *cpus = ls__world_cpus(run->world);
    const json_t *cpu = json_object_get(run->resumed, "cpu");
    const char *model = json_string_value(json_object_get(cpu, "model"));
    const char *isa = json_string_value(json_object_get(cpu, "isa"));
    int threads = (int)json_integer_value(json_object_get(run->resumed, "threads"));
    if (model && isa && (strcmp(model, cpus->model) != 0 || strcmp(isa, cpus->isa) != 0))
        ls__log(LS__LOG_WARN,
                "this CPU (%s, %s) is another than the run's (%s, %s): its bits may differ",
                cpus->model, cpus->isa, model, isa);
    if (threads > 0 && threads != ls_world_threads(run->world))
        ls__log(LS__LOG_WARN,
                "%d threads per device instead of the run's %d: bits may differ "
                "(--threads-per-device %d)",
                ls_world_threads(run->world), threads, threads);
}

static ls_status check_resume(ls_run *run)
{
    char *changes;
    LS_TRY(ls__trainer_json_check(run->resumed, run->resumed_path));
    LS_TRY(check_length(run));
    LS_TRY(ls__settings_compare(&run->settings, json_object_get(run->resumed, "configuration"),
                                &changes));
    if (changes[0] && run->rank == 0)
        ls__log(LS__LOG_INFO, "changed since the checkpoint: %s", changes);
    ls__free(changes);
    LS_TRY(check_states(run));
    if (run->rank == 0) tell_machine(run);
    return LS_OK;
}

static ls_status choose_micro_batches(ls_run *run)
{
    char label[96];
    bool changed;
    ls__settings_label(&run->settings, "micro_batches", label);
    ls__micro_batches_request request = {
        .requested = run->settings.options.micro_batches,
        .label = label,
        .recorded = (int)json_integer_value(json_object_get(run->resumed, "micro_batches")),
        .world_size = run->size,
    };
    LS_TRY(ls__micro_batches_choose(&request, &run->micro_batches, &changed));
    if (changed && run->rank == 0)
        ls__log(
            LS__LOG_WARN,
            "the batch is cut into %d micro-batches instead of %d from here on, so the bits differ "
            "from those of a run that stays with %d (--micro-batches at the first start keeps "
            "them)",
            run->micro_batches, request.recorded, request.recorded);
    else if (request.requested && request.requested < run->micro_batches && run->rank == 0)
        ls__log(LS__LOG_INFO, "%s: the run keeps its %d, since fewer would change its bits", label,
                run->micro_batches);
    return LS_OK;
}

ls_status ls__run_open(ls_run *run)
{
    char mark[LS_PATH_MAX];
    LS_TRY(open_and_share(run, mark));
    if (run->rank == 0) ls__world_set_folder(run->world, run->folder.path);
    ls_status status = check_folder(run, mark);
    if (status == LS_OK && run->resumed) status = check_resume(run);
    if (status == LS_OK) status = choose_micro_batches(run);
    status = ls__share_failure(run->comm, status, NULL, NULL);
    if (run->rank == 0) unlink(mark);
    return status;
}
