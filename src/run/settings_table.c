/* One table behind a run's options: resolving, checking, recording and comparing are loops over it,
 * so that an option cannot be known to one of them and unknown to another. */
#include "run/settings_table.h"

#include <string.h>

#include "base/check.h"
#include "optim/optim.h"

#define AT(field) offsetof(ls_run_options, field)
#define ROW(key, flag, kind, role, field, low, high, none, why)                                    \
    {                                                                                              \
        key, flag, LS__SETTING_##kind, LS__SETTING_##role, AT(field), low, high, none, why         \
    }

enum { MOST = LS__MICRO_BATCHES_MAX };
#define HUGE_INT 9.2e18 /* below 2^63 */

const ls__setting ls__settings_table[] = {
    ROW("batch_size", "batch-size", INT64, HARD, batch_size, 1, HUGE_INT, false,
        "samples per optimizer step over all devices"),
    ROW("micro_batches", "micro-batches", INT, QUIET, micro_batches, 1, MOST, false,
        "the batch is cut into so many; at least one per device"),
    ROW("max_epochs", "max-epochs", INT64, LISTED, max_epochs, 1, HUGE_INT, true, NULL),
    ROW("max_steps", "max-steps", INT64, LISTED, max_steps, 1, HUGE_INT, true, NULL),
    ROW("seed", "seed", SEED, HARD, seed, 0, 0, false, NULL),
    ROW("name", "name", TEXT, QUIET, name, 0, 0, false, NULL),
    ROW("runs_dir", "runs-dir", TEXT, QUIET, runs_dir, 0, 0, false, NULL),
    ROW("resume", "resume", TEXT, QUIET, resume, 0, 0, false, NULL),
    ROW("log_every", "log-every", EVERY, LISTED, log_every, 0, 0, true, NULL),
    ROW("save_every", "save-every", EVERY, LISTED, save_every, 0, 0, true, NULL),
    ROW("validate_every", "validate-every", EVERY, LISTED, validate_every, 0, 0, true, NULL),
    ROW("optimizer.kind", "optimizer", OPTIMIZER, LISTED, optimizer.kind, 0, 0, false, NULL),
    ROW("optimizer.lr", "lr", DOUBLE, LISTED, optimizer.lr, LS__ABOVE_ZERO, INFINITY, false, NULL),
    ROW("optimizer.weight_decay", "weight-decay", DOUBLE, LISTED, optimizer.weight_decay, 0,
        INFINITY, true, NULL),
    ROW("optimizer.momentum", "momentum", DOUBLE, LISTED, optimizer.momentum, 0, LS__BELOW_ONE,
        true, NULL),
    ROW("optimizer.beta1", NULL, DOUBLE, LISTED, optimizer.beta1, 0, LS__BELOW_ONE, false, NULL),
    ROW("optimizer.beta2", NULL, DOUBLE, LISTED, optimizer.beta2, 0, LS__BELOW_ONE, false, NULL),
    ROW("schedule.kind", "schedule", SCHEDULE, LISTED, schedule.kind, 0, 0, false, NULL),
    ROW("schedule.warmup_steps", "warmup-steps", INT64, LISTED, schedule.warmup_steps, 0, HUGE_INT,
        true, NULL),
    ROW("schedule.step_size", NULL, INT64, LISTED, schedule.step_size, 1, HUGE_INT, false, NULL),
    ROW("schedule.gamma", NULL, DOUBLE, LISTED, schedule.gamma, LS__ABOVE_ZERO, INFINITY, false,
        NULL),
    ROW("clip_norm", "gradient-clip-val", DOUBLE, LISTED, clip_norm, 0, INFINITY, true, NULL),
    ROW("checkpoint.monitor", "monitor", TEXT, LISTED, checkpoint.monitor, 0, 0, false, NULL),
    ROW("checkpoint.mode", NULL, MODE, LISTED, checkpoint.mode, 0, 0, false, NULL),
    ROW("checkpoint.keep_best", "keep-best", INT, LISTED, checkpoint.keep_best, 0, 1e9, true, NULL),
    ROW("checkpoint.keep_last", "keep-last", INT, LISTED, checkpoint.keep_last, 1, 1e9, true,
        "a run goes on from its last checkpoint"),
    ROW("early_stop.monitor", "early-stop", TEXT, LISTED, early_stop.monitor, 0, 0, false, NULL),
    ROW("early_stop.mode", NULL, MODE, LISTED, early_stop.mode, 0, 0, false, NULL),
    ROW("early_stop.patience", "patience", INT, LISTED, early_stop.patience, 1, 1e9, false,
        "validations without improvement"),
    ROW("early_stop.min_delta", "min-delta", DOUBLE, LISTED, early_stop.min_delta, 0, INFINITY,
        false, NULL),
    ROW("norm_group", NULL, INT64, HARD, norm_group, 1, HUGE_INT, false,
        "samples of a batch norm's group"),
    ROW("precision", "precision", PRECISION, LISTED, precision, 0, 0, false, NULL),
    ROW("deterministic", "deterministic", BOOL, LISTED, deterministic, 0, 0, false, NULL),
    ROW("profile", "profile", BOOL, QUIET, profile, 0, 0, false, NULL),
};
const int ls__settings_count = sizeof ls__settings_table / sizeof ls__settings_table[0];
_Static_assert(sizeof ls__settings_table / sizeof ls__settings_table[0] <= LS__SETTINGS_MAX,
               "origins have room for every row");

int ls__settings_row(const char *key)
{
    int i = 0;
    while (i < ls__settings_count && strcmp(ls__settings_table[i].key, key) != 0) i++;
    LS_ASSERT(i < ls__settings_count);
    return i;
}

void *ls__setting_at(const ls__setting *row, const ls_run_options *options)
{
    return (char *)(uintptr_t)options + row->offset;
}

/* A number for people; the few that JSON's integers cannot hold are hexadecimal text. */
static json_t *seed_value(uint64_t seed)
{
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : ls__json_u64(seed);
}

static json_t *mode_value(ls_mode mode)
{
    return json_string(mode == LS_MODE_MAX ? "max" : mode == LS_MODE_MIN ? "min" : "auto");
}

static json_t *schedule_value(const ls_run_options *options)
{
    return json_string(options->schedule.custom ? "custom"
                                                : ls__schedule_name(options->schedule.kind));
}

static json_t *every_value(ls_every every)
{
    char text[32];
    ls__every_text(every, text);
    return json_string(text);
}

static const char *const precisions[] = {
    [LS_PRECISION_32] = "32",
    [LS_PRECISION_BF16_MIXED] = "bf16-mixed",
    [LS_PRECISION_TF32] = "tf32",
};

const char *ls__precision_name(ls_precision precision)
{
    return precisions[precision];
}

bool ls__precision_parse(const char *text, ls_precision *out)
{
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        if (strcmp(text, precisions[i]) != 0) continue;
        *out = (ls_precision)i;
        return true;
    }
    return false;
}

json_t *ls__setting_value(const ls__setting *row, const ls_run_options *options)
{
    const void *at = ls__setting_at(row, options);
    const char *text;
    switch (row->kind) {
    case LS__SETTING_INT:
        return json_integer(*(const int *)at);
    case LS__SETTING_INT64:
        return json_integer(*(const int64_t *)at);
    case LS__SETTING_SEED:
        return seed_value(*(const uint64_t *)at);
    case LS__SETTING_DOUBLE:
        return ls__json_double(*(const double *)at);
    case LS__SETTING_TEXT:
        memcpy(&text, at, sizeof text);
        return text ? json_string(text) : json_null();
    case LS__SETTING_EVERY:
        return every_value(*(const ls_every *)at);
    case LS__SETTING_MODE:
        return mode_value(*(const ls_mode *)at);
    case LS__SETTING_SCHEDULE:
        return schedule_value(options);
    case LS__SETTING_OPTIMIZER:
        return json_string(options->optimizer.kind->name);
    case LS__SETTING_PRECISION:
        return json_string(ls__precision_name(options->precision));
    case LS__SETTING_BOOL:
        return json_boolean(*(const bool *)at);
    }
    return NULL;
}
