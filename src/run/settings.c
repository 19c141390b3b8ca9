/* Resolves a run's options once, strictly, before anything happens. A flag's 0 is a value (and
 * often a wrong one: --batch-size 0), a program's 0 stands for the default; the two meet here
 * and nowhere else, so that the rest of the run reads one struct in which every field holds what
 * counts. */
#include "run/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "optim/optim.h"
#include "run/settings_table.h"

static const char origin_program[] = "program", origin_default[] = "default";

/* --- taking values --- */

static bool is_set_by_program(const ls__setting *row, const ls_run_options *options)
{
    static const char zeros[sizeof(ls_every)];
    size_t nbytes = row->kind == LS__SETTING_EVERY  ? sizeof(ls_every)
                    : row->kind == LS__SETTING_INT  ? sizeof(int)
                    : row->kind == LS__SETTING_BOOL ? sizeof(bool)
                    : row->kind == LS__SETTING_MODE || row->kind == LS__SETTING_SCHEDULE ||
                            row->kind == LS__SETTING_PRECISION
                        ? sizeof(ls_mode)
                        : 8;
    return memcmp(ls__setting_at(row, options), zeros, nbytes) != 0;
}

static ls_status take_optimizer(const char *label, const char *name, ls_run_options *out)
{
    const ls_optimizer *kind = ls__optimizer_by_name(name);
    /* The program's own optimizer goes by its name too. */
    if (!kind && out->optimizer.kind && strcmp(out->optimizer.kind->name, name) == 0) return LS_OK;
    if (!kind)
        return ls_fail(LS_ERR_CONFIG, "%s: no such optimizer; there are sgd, nesterov and adamw",
                       label);
    out->optimizer.kind = kind;
    return LS_OK;
}

static ls_status take_schedule(const char *label, const char *name, ls_run_options *out)
{
    if (!ls__schedule_parse(name, &out->schedule.kind))
        return ls_fail(LS_ERR_CONFIG,
                       "%s: no such schedule; there are constant, linear, cosine and step", label);
    out->schedule.custom = NULL;
    return LS_OK;
}

static ls_status take_precision(const char *label, const char *name, ls_run_options *out)
{
    if (ls__precision_parse(name, &out->precision)) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "%s: no such precision; there are 32, tf32 and bf16-mixed",
                   label);
}

/* Overwrites the row's value with the command line's, if it says one. */
static ls_status take_set(const ls__options *set, const ls__setting *row, ls_run_options *out)
{
    void *at = ls__setting_at(row, out);
    const char *text = NULL;
    int64_t number;
    char label[160];
    switch (row->kind) {
    case LS__SETTING_INT:
        if (!ls__options_int(set, row->flag, &number)) return LS_OK;
        if (number < INT32_MIN || number > INT32_MAX)
            return ls_fail(LS_ERR_CONFIG, "--%s %" PRId64 ": too large", row->flag, number);
        *(int *)at = (int)number;
        return LS_OK;
    case LS__SETTING_INT64:
        ls__options_int(set, row->flag, at);
        return LS_OK;
    case LS__SETTING_SEED:
        if (!ls__options_int(set, row->flag, &number)) return LS_OK;
        if (number < 0)
            return ls_fail(LS_ERR_CONFIG, "--%s %" PRId64 ": must be at least 0", row->flag,
                           number);
        *(uint64_t *)at = (uint64_t)number;
        return LS_OK;
    case LS__SETTING_DOUBLE:
        ls__options_double(set, row->flag, at);
        return LS_OK;
    case LS__SETTING_EVERY:
        ls__options_every(set, row->flag, at);
        return LS_OK;
    case LS__SETTING_TEXT:
        if (ls__options_string(set, row->flag, &text)) memcpy(at, &text, sizeof text);
        return LS_OK;
    case LS__SETTING_BOOL:
        ls__options_bool(set, row->flag, at);
        return LS_OK;
    case LS__SETTING_MODE:
        return LS_OK;
    case LS__SETTING_SCHEDULE:
    case LS__SETTING_OPTIMIZER:
    case LS__SETTING_PRECISION:
        break;
    }
    if (!ls__options_string(set, row->flag, &text)) return LS_OK;
    snprintf(label, sizeof label, "--%s %.64s", row->flag, text);
    if (row->kind == LS__SETTING_PRECISION) return take_precision(label, text, out);
    return row->kind == LS__SETTING_SCHEDULE ? take_schedule(label, text, out)
                                             : take_optimizer(label, text, out);
}

/* --- defaults --- */

static bool is_default(const ls__settings *s, const char *key)
{
    return s->origins[ls__settings_row(key)] == origin_default;
}

static void fill_clock(ls__settings *s)
{
    ls_run_options *o = &s->options;
    if (is_default(s, "batch_size")) o->batch_size = 32;
    if (is_default(s, "max_epochs")) o->max_epochs = is_default(s, "max_steps") ? 1 : LS_NONE;
    if (is_default(s, "max_steps")) o->max_steps = LS_NONE;
    if (is_default(s, "runs_dir")) o->runs_dir = "runs";
    if (is_default(s, "resume")) o->resume = "auto";
    if (is_default(s, "log_every")) o->log_every = LS_STEPS(50);
    if (is_default(s, "save_every")) o->save_every = LS_EPOCHS(1);
    if (is_default(s, "validate_every")) o->validate_every = LS_EPOCHS(1);
    if (is_default(s, "norm_group")) o->norm_group = 1;
}

static void fill_optimizer(ls__settings *s)
{
    ls_run_options *o = &s->options;
    if (is_default(s, "optimizer.kind")) o->optimizer.kind = &ls_adamw;
    const ls_optimizer *kind = o->optimizer.kind;
    bool has_momentum = kind == &ls_sgd || kind == &ls_nesterov;
    if (is_default(s, "optimizer.lr"))
        o->optimizer.lr = kind->default_lr > 0 ? kind->default_lr : 1e-3;
    if (is_default(s, "optimizer.weight_decay"))
        o->optimizer.weight_decay = kind == &ls_adamw ? 0.01 : 0;
    if (is_default(s, "optimizer.momentum")) o->optimizer.momentum = has_momentum ? 0.9 : 0;
    if (is_default(s, "optimizer.beta1")) o->optimizer.beta1 = 0.9;
    if (is_default(s, "optimizer.beta2")) o->optimizer.beta2 = 0.999;
    if (is_default(s, "schedule.gamma")) o->schedule.gamma = 0.1;
    /* LS_NONE has done its work: from here on off is 0. */
    if (o->optimizer.weight_decay == LS_NONE) o->optimizer.weight_decay = 0;
    if (o->optimizer.momentum == LS_NONE) o->optimizer.momentum = 0;
    if (o->clip_norm == LS_NONE) o->clip_norm = 0;
    if (o->schedule.warmup_steps == LS_NONE) o->schedule.warmup_steps = 0;
}

static void fill_judges(ls__settings *s)
{
    ls_run_options *o = &s->options;
    if (is_default(s, "checkpoint.monitor")) o->checkpoint.monitor = "val/loss";
    if (is_default(s, "checkpoint.keep_best")) o->checkpoint.keep_best = 1;
    if (is_default(s, "checkpoint.keep_last")) o->checkpoint.keep_last = 1;
    if (is_default(s, "early_stop.patience")) o->early_stop.patience = 3;
}

/* --- checking --- */

void ls__settings_label(const ls__settings *settings, const char *key, char out[96])
{
    int i = ls__settings_row(key);
    const ls__setting *row = &ls__settings_table[i];
    const char *origin = settings->origins[i];
    json_t *json = ls__setting_value(row, &settings->options);
    char *value = json ? json_dumps(json, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;
    const char *text = json_is_string(json) ? json_string_value(json) : value ? value : "?";
    if (strcmp(origin, "flag") == 0)
        snprintf(out, 96, "--%s %.48s", row->flag, text);
    else if (strncmp(origin, "variable ", 9) == 0)
        snprintf(out, 96, "%.40s=%.48s", origin + 9, text);
    else
        snprintf(out, 96, "%s %.48s", key, text);
    free(value);
    json_decref(json);
}

static ls_status check_number(const ls__settings *s, int i)
{
    const ls__setting *row = &ls__settings_table[i];
    const void *at = ls__setting_at(row, &s->options);
    double value = row->kind == LS__SETTING_INT     ? *(const int *)at
                   : row->kind == LS__SETTING_INT64 ? (double)*(const int64_t *)at
                                                    : *(const double *)at;
    if ((value >= row->low && value <= row->high && isfinite(value)) ||
        (row->none && value == LS_NONE))
        return LS_OK;
    char label[96], bound[64];
    ls__settings_label(s, row->key, label);
    if (!isfinite(value))
        snprintf(bound, sizeof bound, "must be a finite number");
    else if (value > row->high)
        snprintf(bound, sizeof bound,
                 row->high == LS__BELOW_ONE ? "must be below 1" : "must be at most %.0f",
                 row->high);
    else if (row->low == LS__ABOVE_ZERO)
        snprintf(bound, sizeof bound, "must be greater than 0");
    else
        snprintf(bound, sizeof bound, "must be at least %.0f", row->low);
    return ls_fail(LS_ERR_CONFIG, "%s: %s%s%s%s", label, bound, row->why ? " (" : "",
                   row->why ? row->why : "", row->why ? ")" : "");
}

static ls_status check_every(const ls__settings *s, int i)
{
    const ls_every *every = ls__setting_at(&ls__settings_table[i], &s->options);
    int set = (every->steps != 0) + (every->epochs != 0) + (every->seconds != 0);
    bool fits = every->steps >= LS_NONE && every->epochs >= 0 && every->seconds >= 0 &&
                isfinite(every->epochs) && isfinite(every->seconds);
    if (set == 1 && fits) return LS_OK;
    return ls_fail(LS_ERR_CONFIG,
                   "%s: a period is a number of steps, epochs or seconds, one of them, above 0: "
                   "LS_STEPS(500), LS_EPOCHS(0.5), LS_MINUTES(10)",
                   ls__settings_table[i].key);
}

static ls_status check_row(const ls__settings *s, int i)
{
    const ls__setting *row = &ls__settings_table[i];
    bool numeric = row->kind == LS__SETTING_INT || row->kind == LS__SETTING_INT64 ||
                   row->kind == LS__SETTING_DOUBLE;
    if (s->origins[i] == origin_default) return LS_OK;
    if (numeric) return check_number(s, i);
    if (row->kind == LS__SETTING_EVERY) return check_every(s, i);
    if (row->kind != LS__SETTING_TEXT) return LS_OK;
    const char *text;
    memcpy(&text, ls__setting_at(row, &s->options), sizeof text);
    if (text && text[0] == '\0')
        return ls_fail(LS_ERR_CONFIG, "--%s: must not be empty", row->flag);
    return LS_OK;
}

static ls_status check_together(const ls__settings *s)
{
    const ls_run_options *o = &s->options;
    bool endless = o->max_epochs == LS_NONE && o->max_steps == LS_NONE;
    if (!o->optimizer.kind->update || !o->optimizer.kind->name)
        return ls_fail(LS_ERR_ARG, "optimizer.kind: a name and an update function are needed");
    return ls__schedule_check(o, endless ? 0 : 1);
}

ls_status ls__settings_resolve(const ls__options *set, const ls_run_options *options,
                               ls__settings *out)
{
    *out = (ls__settings) { .options = options ? *options : (ls_run_options) { 0 } };
    for (int i = 0; i < ls__settings_count; i++) {
        const ls__setting *row = &ls__settings_table[i];
        bool program = is_set_by_program(row, &out->options);
        if (row->kind == LS__SETTING_SCHEDULE && out->options.schedule.custom) program = true;
        const char *origin = row->flag && set ? ls__options_origin(set, row->flag) : NULL;
        if (origin) LS_TRY(take_set(set, row, &out->options));
        out->origins[i] = origin ? origin : program ? origin_program : origin_default;
    }
    fill_clock(out);
    fill_optimizer(out);
    fill_judges(out);
    for (int i = 0; i < ls__settings_count; i++) LS_TRY(check_row(out, i));
    return check_together(out);
}

/* --- recording and comparing --- */

const char *ls__settings_origin(const ls__settings *settings, const char *key)
{
    return settings->origins[ls__settings_row(key)];
}

json_t *ls__settings_json(const ls__settings *settings)
{
    json_t *all = json_object();
    for (int i = 0; all && i < ls__settings_count; i++) {
        const ls__setting *row = &ls__settings_table[i];
        json_t *entry = json_pack("{s:o, s:s}", "value", ls__setting_value(row, &settings->options),
                                  "origin", settings->origins[i]);
        if (!entry || json_object_set_new(all, row->key, entry)) {
            json_decref(all);
            all = NULL;
        }
    }
    if (!all) ls_fail(LS_ERR_MEMORY, "out of memory: could not record the configuration");
    return all;
}

static char *value_text(const json_t *value)
{
    if (json_is_string(value)) return ls__strdup(json_string_value(value));
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
    char *text = ls__strdup(dumped ? dumped : "?");
    free(dumped);
    return text;
}

static ls_status add_change(char **changes, const char *key, const json_t *then, const json_t *now)
{
    char *a = value_text(then), *b = value_text(now), *old = *changes;
    *changes = a && b ? ls__format("%s%s%s %s -> %s", old, old[0] ? ", " : "", key, a, b) : NULL;
    ls__free(a);
    ls__free(b);
    if (*changes) {
        ls__free(old);
        return LS_OK;
    }
    *changes = old;
    return LS_ERR_MEMORY;
}

static ls_status refuse_change(const ls__settings *s, const ls__setting *row, const json_t *then)
{
    char label[96];
    ls__settings_label(s, row->key, label);
    char *recorded = value_text(then);
    ls_status status =
        ls_fail(LS_ERR_CONFIG,
                "%s: this run was begun with %s, and going on with another would be another "
                "run: leave it out, or begin one with --name",
                label, recorded ? recorded : "another");
    ls__free(recorded);
    return status;
}

ls_status ls__settings_compare(const ls__settings *settings, const json_t *recorded, char **changes)
{
    ls_status status = LS_OK;
    LS_TRY((*changes = ls__strdup("")) ? LS_OK : LS_ERR_MEMORY);
    for (int i = 0; status == LS_OK && i < ls__settings_count; i++) {
        const ls__setting *row = &ls__settings_table[i];
        const json_t *then = json_object_get(json_object_get(recorded, row->key), "value");
        if (!then || row->role == LS__SETTING_QUIET) continue;
        json_t *now = ls__setting_value(row, &settings->options);
        if (now && !json_equal(then, now))
            status = row->role == LS__SETTING_HARD ? refuse_change(settings, row, then)
                                                   : add_change(changes, row->key, then, now);
        json_decref(now);
    }
    if (status == LS_OK) return LS_OK;
    ls__free(*changes);
    *changes = NULL;
    return status;
}
