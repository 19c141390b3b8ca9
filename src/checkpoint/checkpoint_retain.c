/* Which checkpoints stay, and what `last` and `best` point to. Runs after the new one is durable;
 * then a failure here costs disk space, never a checkpoint, so it is a warning. Kept: the newest
 * keep_last, the best keep_best, and whatever the links point to. Workload: a few entries. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

ls_status ls__checkpoint_survey(ls__checkpointer *c)
{
    return ls__checkpoint_list(c->folder, &c->entries, &c->nentries);
}

/* --- the entries --- */

/* Steps are ascending and none is later than the new one: it comes last, or replaces the last. */
static ls_status add_entry(ls__checkpointer *c)
{
    char *monitor = c->monitor ? ls__strdup(c->monitor) : NULL;
    if (c->monitor && !monitor) return LS_ERR_MEMORY;
    bool again = c->nentries > 0 && c->entries[c->nentries - 1].step == c->step;
    if (!again) {
        ls__checkpoint_entry *grown =
            ls__realloc(c->entries, (size_t)c->nentries + 1, sizeof *grown);
        if (!grown) {
            ls__free(monitor);
            return LS_ERR_MEMORY;
        }
        c->entries = grown;
        c->nentries++;
    } else {
        ls__free(c->entries[c->nentries - 1].monitor);
    }
    c->entries[c->nentries - 1] =
        (ls__checkpoint_entry) { .step = c->step, .metric = c->metric, .monitor = monitor };
    return LS_OK;
}

static bool same_monitor(const ls__checkpointer *c, const ls__checkpoint_entry *entry)
{
    if (!c->monitor || !entry->monitor) return c->monitor == entry->monitor;
    return strcmp(c->monitor, entry->monitor) == 0;
}

static bool has_metric(const ls__checkpointer *c, int i)
{
    return !isnan(c->entries[i].metric) && same_monitor(c, &c->entries[i]);
}

/* Whether entry i is better than entry j; of equals the earlier one is. */
static bool better(const ls__checkpointer *c, int i, int j)
{
    double a = c->entries[i].metric, b = c->entries[j].metric;
    if (a != b) return c->options.higher_is_better ? a > b : a < b;
    return i < j;
}

/* How many entries are better than i. */
static int place_of(const ls__checkpointer *c, int i)
{
    int place = 0;
    for (int j = 0; j < c->nentries; j++)
        if (j != i && has_metric(c, j) && better(c, j, i)) place++;
    return place;
}

static int best_entry(const ls__checkpointer *c)
{
    for (int i = 0; i < c->nentries; i++)
        if (has_metric(c, i) && place_of(c, i) == 0) return i;
    return -1;
}

/* --- links --- */

static ls_status point(ls__checkpointer *c, const char *link, int64_t step)
{
    char name[64], path[LS_PATH_MAX];
    ls__step_name(step, name);
    LS_TRY(ls__path_join(path, c->folder, link));
    if (ls__checkpoint_link(c->folder, link) == step) return LS_OK;
    return ls__symlink_replace(c->options.fs, name, path);
}

static ls_status point_best(ls__checkpointer *c, int best)
{
    char path[LS_PATH_MAX];
    if (best >= 0) return point(c, "best", c->entries[best].step);
    LS_TRY(ls__path_join(path, c->folder, "best"));
    if (ls__path_exists(path) && ls__checkpoint_link(c->folder, "best") < 0)
        c->options.fs->unlink(c->options.fs->user, path); /* what it named was set aside */
    return LS_OK;
}

/* --- removing --- */

static bool stays(const ls__checkpointer *c, int i, int best, int64_t linked_best)
{
    int last = c->options.keep_last, good = c->options.keep_best;
    if (last < 0 || i >= c->nentries - last) return true;
    if (i == best || c->entries[i].step == linked_best) return true;
    return has_metric(c, i) && (good < 0 || place_of(c, i) < good);
}

static void remove_rest(ls__checkpointer *c, int best)
{
    int64_t linked_best = ls__checkpoint_link(c->folder, "best");
    bool *keep = ls__alloc((size_t)c->nentries, sizeof *keep);
    if (!keep) return; /* next time */
    for (int i = 0; i < c->nentries; i++) keep[i] = stays(c, i, best, linked_best);
    int n = 0;
    for (int i = 0; i < c->nentries; i++) {
        ls_status status = LS_OK;
        if (!keep[i]) status = ls__checkpoint_remove(c->options.fs, c->folder, c->entries[i].step);
        if (status != LS_OK)
            ls__log(LS__LOG_WARN, "an old checkpoint was not removed: %s", ls_error_text());
        if (keep[i] || status != LS_OK)
            c->entries[n++] = c->entries[i];
        else
            ls__free(c->entries[i].monitor);
    }
    c->nentries = n;
    ls__free(keep);
}

/* --- together --- */

static void announce(ls__checkpointer *c, int best)
{
    pthread_mutex_lock(&c->mutex);
    c->newest = c->step;
    c->best = best >= 0 ? c->entries[best].step : -1;
    c->best_metric = best >= 0 ? c->entries[best].metric : NAN;
    pthread_mutex_unlock(&c->mutex);
}

ls_status ls__checkpoint_retain(ls__checkpointer *c)
{
    LS_TRY(add_entry(c));
    int best = c->options.keep_best == 0 ? -1 : best_entry(c);
    announce(c, best);
    LS_TRY(point(c, "last", c->step));
    LS_TRY(point_best(c, best));
    remove_rest(c, best);
    return LS_OK;
}
