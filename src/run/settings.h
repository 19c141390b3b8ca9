/* A run's options, resolved: flags outrank options outrank defaults, each value with its origin. */
#ifndef LS_RUN_SETTINGS_H
#define LS_RUN_SETTINGS_H

#include <lockstep/run.h>

#include "base/json.h"
#include "base/option.h"

enum { LS__SETTINGS_MAX = 48, LS__MICRO_BATCHES_MAX = 1024 };

typedef struct ls__settings {
    /* Every field holds what counts: no 0 stands for a default, weight_decay and momentum 0 are
     * none, periods are set, max_epochs and max_steps are -1 for unlimited. name, resume and
     * early_stop.monitor may be NULL; micro_batches 0 = not named. Texts are borrowed from the
     * options or the table. */
    ls_run_options options;
    const char
        *origins[LS__SETTINGS_MAX]; /* per row of the table: "flag", "variable ...", "program",
                                              "default" */
} ls__settings;

const char *ls__precision_name(ls_precision precision); /* "32", "tf32", "bf16-mixed" */
bool ls__precision_parse(const char *text, ls_precision *out);

/* set: what the command line says; options may be NULL. LS_ERR_CONFIG names the value and where it
 * comes from. */
ls_status ls__settings_resolve(const ls__options *set, const ls_run_options *options,
                               ls__settings *out);
/* {"batch_size":{"value":64,"origin":"flag"}, "optimizer.lr":...}; NULL when out of memory. */
json_t *ls__settings_json(const ls__settings *settings);
const char *ls__settings_origin(const ls__settings *settings, const char *key);
/* How messages name an option: "--batch-size 0" for a flag, "batch_size 0" for the program's. */
void ls__settings_label(const ls__settings *settings, const char *key, char out[96]);

/* Compares with the configuration of a checkpoint. What must not change (batch size, seed, the
 * optimizer when it has other states) is LS_ERR_CONFIG; changes ("optimizer.lr 0.001 -> 0.0003")
 * are listed in *changes, "" = none; freed by ls__free. */
ls_status ls__settings_compare(const ls__settings *settings, const json_t *recorded,
                               char **changes);

#endif
