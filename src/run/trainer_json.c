/* trainer.json, lockstep.trainer/1: everything of a run that is not in the flat space. Doubles are
 * written with 17 digits, so that sums go on with the bits they had. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_state.h"

/* --- bytes as text --- */

static json_t *hex_of(const void *data, size_t nbytes)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = data;
    char *text = ls__alloc(nbytes * 2 + 1, 1);
    if (!text) return NULL;
    for (size_t i = 0; i < nbytes; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_t *out = json_string(text);
    ls__free(text);
    return out;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_into(const json_t *value, void *data, size_t nbytes)
{
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) != nbytes * 2) return false;
    for (size_t i = 0; i < nbytes; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        ((unsigned char *)data)[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* --- writing --- */

static json_t *callbacks_json(const ls_run *run)
{
    json_t *all = json_object();
    const ls_callback *const *c = run->settings.options.callbacks;
    for (int i = 0; all && c && c[i]; i++)
        if (c[i]->state && c[i]->name)
            json_object_set_new(all, c[i]->name, hex_of(c[i]->state, c[i]->state_size));
    return all;
}

static json_t *kept_json(const ls_run *run)
{
    json_t *all = json_object();
    for (int i = 0; all && i < run->nkept; i++)
        json_object_set_new(all, run->kept[i].name, hex_of(run->kept[i].data, run->kept[i].nbytes));
    return all;
}

static json_t *values_json(const ls_run *run)
{
    json_t *all = json_object();
    for (int i = 0; all && i < run->nvalues; i++)
        json_object_set_new(all, run->values[i].name, ls__json_double(run->values[i].value));
    return all;
}

static json_t *states_json(const ls_run *run)
{
    json_t *all = json_array();
    const char *const *states = run->settings.options.optimizer.kind->states;
    for (int i = 0; all && states && states[i]; i++)
        json_array_append_new(all, json_string(states[i]));
    return all;
}

/* A stop by signal is no end: the same command goes on. */
static json_t *finished_json(const ls_run *run)
{
    if (run->reason == LS_STOP_NONE || run->reason == LS_STOP_SIGNAL) return json_null();
    return json_string(ls_stop_reason_name(run->reason));
}

json_t *ls__trainer_json(ls_run *run)
{
    const ls__cpus *cpus = ls__world_cpus(run->world);
    json_t *clock =
        json_pack("{s:s, s:s, s:I, s:f, s:I, s:I, s:I, s:o, s:o}", "schema", "lockstep.trainer/1",
                  "version", ls_version(), "step", (json_int_t)run->step, "epoch",
                  (double)run->position / (double)run->length, "position",
                  (json_int_t)run->position, "updates", (json_int_t)run->updates, "data_length",
                  (json_int_t)run->length, "finished", finished_json(run), "planned_steps",
                  run->span.steps == INT64_MAX ? json_null() : json_integer(run->span.steps));
    json_t *machine =
        json_pack("{s:i, s:i, s:i, s:{s:s, s:s}, s:o, s:o}", "world_size", run->size,
                  "micro_batches", run->micro_batches, "threads", ls_world_threads(run->world),
                  "cpu", "model", cpus->model, "isa", cpus->isa, "optimizer_states",
                  states_json(run), "program", ls__options_json(ls__world_options(run->world)));
    json_t *state = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "best",
                              ls__judge_json(&run->best), "early_stop", ls__judge_json(&run->early),
                              "interval", ls__sums_json(&run->interval), "values", values_json(run),
                              "callbacks", callbacks_json(run), "kept", kept_json(run),
                              "configuration", ls__settings_json(&run->settings));
    bool ok = clock && machine && state && json_object_update(clock, machine) == 0 &&
              json_object_update(clock, state) == 0;
    json_decref(machine);
    json_decref(state);
    if (ok) return clock;
    json_decref(clock);
    ls_fail(LS_ERR_MEMORY, "out of memory: could not describe the run for its checkpoint");
    return NULL;
}

/* --- reading --- */

#define EXACT ((int64_t)1 << 53) /* no run counts further */

static bool whole_number(const json_t *document, const char *key, int64_t low, int64_t high)
{
    const json_t *value = json_object_get(document, key);
    return json_is_integer(value) && json_integer_value(value) >= low &&
           json_integer_value(value) <= high;
}

ls_status ls__trainer_json_check(const json_t *document, const char *path)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    if (!schema || strcmp(schema, "lockstep.trainer/1") != 0)
        return ls_fail(LS_ERR_DATA, "%s/trainer.json: schema %s is not lockstep.trainer/1", path,
                       schema ? schema : "(none)");
    static const struct {
        const char *key;
        int64_t low, high;
    } wanted[] = {
        { "step", 0, EXACT },
        { "position", 0, EXACT },
        { "updates", 0, EXACT },
        { "data_length", 1, EXACT },
        { "micro_batches", 1, LS__MICRO_BATCHES_MAX },
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!whole_number(document, wanted[i].key, wanted[i].low, wanted[i].high))
            return ls_fail(LS_ERR_DATA, "%s/trainer.json: \"%s\" is missing or not such a number",
                           path, wanted[i].key);
    if (!json_is_object(json_object_get(document, "configuration")))
        return ls_fail(LS_ERR_DATA, "%s/trainer.json: there is no configuration", path);
    return LS_OK;
}

static ls_status restore_kept(ls_run *run)
{
    const json_t *kept = json_object_get(run->resumed, "kept");
    for (int i = 0; i < run->nkept; i++) {
        const ls__kept *k = &run->kept[i];
        if (!hex_into(json_object_get(kept, k->name), k->data, k->nbytes))
            return ls_fail(
                LS_ERR_CONFIG,
                "ls_run_keep: the checkpoint has no \"%s\" of %zu bytes; the program has "
                "changed since it was written",
                k->name, k->nbytes);
    }
    const json_t *callbacks = json_object_get(run->resumed, "callbacks");
    const ls_callback *const *c = run->settings.options.callbacks;
    for (int i = 0; c && c[i]; i++) {
        if (!c[i]->state || !c[i]->name) continue;
        const json_t *state = json_object_get(callbacks, c[i]->name);
        if (!state && run->rank == 0)
            ls__log(LS__LOG_INFO, "callback %s is new since the checkpoint and begins afresh",
                    c[i]->name);
        if (state && !hex_into(state, c[i]->state, c[i]->state_size))
            return ls_fail(
                LS_ERR_CONFIG,
                "callback %s: its state in the checkpoint is not of %zu bytes; the program has "
                "changed since it was written",
                c[i]->name, c[i]->state_size);
    }
    return LS_OK;
}

ls_status ls__trainer_json_restore(ls_run *run)
{
    const json_t *document = run->resumed;
    run->step = json_integer_value(json_object_get(document, "step"));
    run->position = json_integer_value(json_object_get(document, "position"));
    run->updates = json_integer_value(json_object_get(document, "updates"));
    ls__judge_restore(&run->best, json_object_get(document, "best"));
    ls__judge_restore(&run->early, json_object_get(document, "early_stop"));
    if (!ls__sums_parse(json_object_get(document, "interval"), &run->interval))
        return ls_fail(LS_ERR_DATA, "%s/trainer.json: \"interval\" is not one", run->resumed_path);
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get((json_t *)(uintptr_t)document, "values"), name, value)
        ls__run_know(run, name, json_is_number(value) ? json_number_value(value) : NAN);
    return restore_kept(run);
}
