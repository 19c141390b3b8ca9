/* LOCKSTEP_<FLAG> variables: read once, behind the command line. One that nobody reads is no error, as
 * it may be another program's; but one that looks like a misspelling deserves a word, or a run goes
 * on for hours with a default. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option_internal.h"

/* "batch-size" -> "LOCKSTEP_BATCH_SIZE" */
static void variable_of(const char *name, char out[64])
{
    int n = snprintf(out, 64, "LOCKSTEP_%s", name);
    for (int i = 0; i < n; i++) out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

/* An empty variable counts as unset. One that a flag outranks is not looked at: a flag must be a
 * way around a bad environment. */
ls_status ls__option_read_variables(ls__options *o)
{
    for (int i = 0; i < o->count; i++) {
        ls__option *option = &o->options[i];
        if (option->origin || option->row.flag_only) continue;
        char variable[64];
        variable_of(option->row.name, variable);
        const char *text = getenv(variable);
        if (!text || !text[0]) continue;
        ls__option_value value;
        LS_TRY(ls__option_value_parse(&option->row, variable, text, &value));
        option->origin = ls__format("variable %s", variable);
        if (!option->origin) return LS_ERR_MEMORY;
        option->value = value;
    }
    return LS_OK;
}

/* Read by others than the option table. */
static const char *const other_variables[] = { "plugin-dir", "cpu-layout", "heartbeat", "metrics",
                                               "run-name" };

/* "LOCKSTEP_BATCH_SIZE=64" -> "batch-size"; false = not ours, or too long to be misspelt. */
static bool name_of(const char *entry, char out[64])
{
    static const char prefix[] = "LOCKSTEP_";
    if (strncmp(entry, prefix, sizeof prefix - 1) != 0) return false;
    entry += sizeof prefix - 1;
    size_t n = strcspn(entry, "=");
    if (n == 0 || n > 48 || entry[0] == '_' || !entry[n] || !entry[n + 1]) return false;
    for (size_t i = 0; i < n; i++)
        out[i] = entry[i] == '_' ? '-' : (char)tolower((unsigned char)entry[i]);
    out[n] = '\0';
    return true;
}

static bool is_read(const ls__options *o, const char *name)
{
    for (size_t i = 0; i < sizeof other_variables / sizeof other_variables[0]; i++)
        if (strcmp(name, other_variables[i]) == 0) return true;
    for (int i = 0; i < ls__option_table_size; i++) /* also those this program has no use for */
        if (strcmp(name, ls__option_table[i].name) == 0) return true;
    return ls__option_find(o, name, strlen(name)) != NULL;
}

bool ls__options_misspelt(const ls__options *o, const char *entry, char out[LS__MISSPELT])
{
    char name[64], meant[64], variable[64];
    if (!name_of(entry, name) || is_read(o, name)) return false;
    const char **names = ls__option_names(o);
    bool close = names && ls__option_meant(name, names, meant);
    ls__free(names);
    if (!close) return false;
    variable_of(meant, variable);
    snprintf(out, LS__MISSPELT, "variable %.*s is not read; did you mean %s?",
             (int)strcspn(entry, "="), entry, variable);
    return true;
}

void ls__options_warn_misspelt(const ls__options *o)
{
    char text[LS__MISSPELT];
    for (char **entry = environ; entry && *entry; entry++)
        if (ls__options_misspelt(o, *entry, text)) ls__log(LS__LOG_WARN, "%s", text);
}
