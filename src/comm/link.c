/* Finding an engine: a plugin opened by name when there is more than one machine, so that a program
 * on one machine loads neither Gloo nor MPI. */
#include "comm/link.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/plugin.h"

static ls_status not_built(const char *name)
{
    char why[512];
    snprintf(why, sizeof why, "%s", ls_error_text());
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "the engine %s is not part of this installation: %s; it is built where %s is "
                   "installed",
                   name, why, !strcmp(name, "gloo") ? "libgloo-dev" : "an MPI (libopenmpi-dev)");
}

ls_status ls__link_open(const char *name, const ls__link_options *options, ls__link **out)
{
    const void *table;
    *out = NULL;
    if (!ls__link_there(name)) return not_built(name);
    LS_TRY(ls__plugin_load(name, "ls__link_table", "libgloo0 or libopenmpi3", &table));
    return ((const ls__link_table *)table)->open(options, out);
}

bool ls__link_there(const char *name)
{
    char path[LS_PATH_MAX];
    return ls__plugin_find(name, path) == LS_OK;
}
