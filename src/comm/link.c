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

static ls_status load(const char *name, const ls__link_table **out)
{
    const void *table;
    if (!ls__link_there(name)) return not_built(name);
    LS_TRY(ls__plugin_load(name, "ls__link_table", "libgloo0 or libopenmpi3", &table));
    *out = table;
    return LS_OK;
}

ls_status ls__link_open(const char *name, const ls__link_options *options, ls__link **out)
{
    const ls__link_table *table = NULL;
    *out = NULL;
    LS_TRY(load(name, &table));
    return table->open(options, out);
}

ls_status ls__link_share(const char *name, int rank, int size, int timeout_ms, char *text,
                         size_t limit)
{
    const ls__link_table *table = NULL;
    LS_TRY(load(name, &table));
    if (table->share) return table->share(rank, size, timeout_ms, text, limit);
    return ls_fail(LS_ERR_UNSUPPORTED, "the engine %s needs a store", name);
}

bool ls__link_there(const char *name)
{
    char path[LS_PATH_MAX];
    return ls__plugin_find(name, path) == LS_OK;
}
