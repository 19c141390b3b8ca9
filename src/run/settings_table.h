/* The table of a run's options: where each value lies, its flag, its bounds, and what a resume may
 * change. */
#ifndef LS_RUN_SETTINGS_TABLE_H
#define LS_RUN_SETTINGS_TABLE_H

#include <math.h>

#include "run/settings.h"

typedef enum ls__setting_kind {
    LS__SETTING_INT,
    LS__SETTING_INT64,
    LS__SETTING_SEED,
    LS__SETTING_DOUBLE,
    LS__SETTING_TEXT,
    LS__SETTING_EVERY,
    LS__SETTING_MODE,
    LS__SETTING_SCHEDULE,
    LS__SETTING_OPTIMIZER,
    LS__SETTING_PRECISION,
    LS__SETTING_BOOL,
} ls__setting_kind;

typedef enum ls__setting_role {
    LS__SETTING_HARD,   /* must agree with the checkpoint */
    LS__SETTING_LISTED, /* a change is listed */
    LS__SETTING_QUIET,  /* has a rule or a notice of its own, or none */
} ls__setting_role;

typedef struct ls__setting {
    const char *key, *flag; /* flag NULL = the program's alone */
    ls__setting_kind kind;
    ls__setting_role role;
    size_t offset;
    double low, high; /* of a number: in [low, high] */
    bool none;        /* LS_NONE is a value too */
    const char *why;  /* behind "must be at least ..." */
} ls__setting;

/* Bounds that stand for open ones. */
#define LS__ABOVE_ZERO 1e-300
#define LS__BELOW_ONE  0.9999999999999999

extern const ls__setting ls__settings_table[];
extern const int ls__settings_count;

int ls__settings_row(const char *key); /* asserts that there is one */
void *ls__setting_at(const ls__setting *row, const ls_run_options *options);
json_t *ls__setting_value(const ls__setting *row, const ls_run_options *options);

#endif
