/* The one option table: behind flags, LOCKSTEP_<FLAG> variables, --help and run.json.
 *
 * Strength: flag, variable, the program's defaults, values in its structs, default. Values are
 * parsed and checked once, strictly, when the world begins; rooms then ask for what was set:
 * ls__options_int(o, "batch-size", &options.batch_size) overwrites only if one of the first three
 * says so. */
#ifndef LS_BASE_OPTION_H
#define LS_BASE_OPTION_H

#include <lockstep/base.h>
#include <lockstep/world.h>

#include "base/json.h"

typedef struct ls__options ls__options;

typedef enum ls__option_group {
    LS__GROUP_LAUNCH,
    LS__GROUP_RUN,
    LS__GROUP_PROGRAM
} ls__option_group;

/* Parses argv and the environment. With keep_unknown, what is not ours stays in argv; positional
 * words stay when options->arguments allows them. argc and argv may be NULL (an embedded library):
 * then only variables count. On success *out holds every value that was set. --help and
 * --version are not acted on here: see ls__options_wants. Errors are LS_ERR_CONFIG with a
 * suggestion ("did you mean --batch-size?"). */
ls_status ls__options_parse(int *argc, char ***argv, const ls_world_options *options,
                            ls__options **out);
/* The same for a command to which only these flags of ours are known ("json", "help"; NULL-ended).
 */
ls_status ls__options_parse_only(int *argc, char ***argv, const ls_world_options *options,
                                 const char *const *only, ls__options **out);
void ls__options_free(ls__options *o);

bool ls__options_wants(const ls__options *o,
                       const char *flag); /* "help", "version", "json": given, or true */
char *ls__options_help(const ls__options *o, const char *program,
                       const ls_world_options *options); /* freed by ls__free */

/* True and *value overwritten when name was set. name without dashes. Asserts that the table has it
 * with that type. */
bool ls__options_int(const ls__options *o, const char *name, int64_t *value);
bool ls__options_double(const ls__options *o, const char *name, double *value);
bool ls__options_string(const ls__options *o, const char *name, const char **value);
bool ls__options_bool(const ls__options *o, const char *name, bool *value);
bool ls__options_every(const ls__options *o, const char *name, ls_every *value);
/* "flag", "variable LOCKSTEP_X", "program"; NULL = not set. */
const char *ls__options_origin(const ls__options *o, const char *name);
/* {"batch-size":{"value":64,"origin":"flag"}, ...} of what was set, the program's own flags with
 * their defaults included. */
json_t *ls__options_json(const ls__options *o);
/* The first option of a group that a flag or variable set, or NULL: so that a program without a run
 * can say that it had no use for it. */
const char *ls__options_first_set(const ls__options *o, ls__option_group group);

/* Warns of variables that nobody reads but whose names are close to one that is read. */
void ls__options_warn_misspelt(const ls__options *o);
/* One of them, "NAME=value": true and a text when it is misspelt. */
enum { LS__MISSPELT = 256 };
bool ls__options_misspelt(const ls__options *o, const char *entry, char out[LS__MISSPELT]);

/* "500" -> steps, "0.5epoch", "10min" ("30s", "2h"), "none". */
bool ls__every_parse(const char *text, ls_every *out);
void ls__every_text(ls_every every, char out[32]);
/* "300", "30s", "5min" -> seconds. */
bool ls__duration_parse(const char *text, double *seconds);
/* The closest of names (NULL-ended) to text, for "did you mean"; NULL when none is close. */
const char *ls__suggest(const char *text, const char *const *names);

#endif
