/* A finished hidden folder gets its name. Whatever stands in the way, an older folder of the same
 * step or folders of later ones, is renamed and never removed before the new one is durable. */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

static ls_status rename_in(const ls__checkpointer *c, const char *from, const char *to)
{
    const ls__fs *fs = c->options.fs;
    char source[LS_PATH_MAX], target[LS_PATH_MAX];
    LS_TRY(ls__path_join(source, c->folder, from));
    LS_TRY(ls__path_join(target, c->folder, to));
    if (fs->rename(fs->user, source, target) == 0) return LS_OK;
    return ls__fail_errno(LS_ERR_IO, "%s: cannot rename to %s", source, target);
}

/* A past that the run has left: out of the way, but nothing of it is lost. */
static ls_status set_aside(ls__checkpointer *c, int64_t step)
{
    char name[64], aside[64], path[LS_PATH_MAX];
    ls__step_name(step, name);
    snprintf(aside, sizeof aside, "superseded-%08" PRId64, step);
    LS_TRY(ls__path_join(path, c->folder, aside));
    LS_TRY(ls__folder_remove(c->options.fs, path)); /* of an even earlier past */
    LS_TRY(rename_in(c, name, aside));
    ls__log(LS__LOG_INFO,
            "%s/%s is later than the run, which is at step %" PRId64 "; set aside as %s", c->folder,
            name, c->step, aside);
    return LS_OK;
}

static ls_status set_later_aside(ls__checkpointer *c)
{
    while (c->nentries > 0 && c->entries[c->nentries - 1].step > c->step) {
        LS_TRY(set_aside(c, c->entries[c->nentries - 1].step));
        ls__free(c->entries[--c->nentries].monitor);
    }
    return LS_OK;
}

/* Into the place of an older folder of the same step. Between the two renames the old one has the
 * name from which ls__checkpoint_clean restores it. */
static ls_status replace(ls__checkpointer *c, const char *temporary, const char *name)
{
    char old[80], path[LS_PATH_MAX];
    snprintf(old, sizeof old, ".%s.old", name);
    LS_TRY(ls__path_join(path, c->folder, old));
    LS_TRY(ls__folder_remove(c->options.fs, path)); /* what an earlier replacement left */
    LS_TRY(rename_in(c, name, old));
    ls_status status = rename_in(c, temporary, name);
    if (status != LS_OK) {
        char text[1024];
        snprintf(text, sizeof text, "%s", ls_error_text());
        if (rename_in(c, old, name) != LS_OK)
            ls__log(LS__LOG_WARN, "%s; the next start restores it", ls_error_text());
        return ls_fail(status, "%s", text);
    }
    LS_TRY(ls__folder_sync(c->options.fs, c->folder));
    if (ls__folder_remove(c->options.fs, path) != LS_OK)
        ls__log(LS__LOG_WARN, "a replaced checkpoint was not removed: %s", ls_error_text());
    return LS_OK;
}

ls_status ls__checkpoint_publish(ls__checkpointer *c, const char *temporary)
{
    char name[64], path[LS_PATH_MAX];
    ls__step_name(c->step, name);
    LS_TRY(set_later_aside(c));
    LS_TRY(ls__path_join(path, c->folder, name));
    if (ls__path_exists(path)) return replace(c, temporary, name);
    LS_TRY(rename_in(c, temporary, name));
    return ls__folder_sync(c->options.fs, c->folder);
}
