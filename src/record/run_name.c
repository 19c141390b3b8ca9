/* Names of runs: which are allowed, and one made up for a run that was given none. A name is a
 * folder, a word of the command line and the part before '@', so it must be harmless as each. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "record/record_internal.h"

enum { NAME_MAX_BYTES = 200, TRIES = 1000 };

static ls_status bad(const char *name, const char *why)
{
    return ls_fail(LS_ERR_CONFIG, "\"%.60s\" cannot be the name of a run: %s", name, why);
}

ls_status ls__run_name_check(const char *name)
{
    if (!*name) return bad(name, "it is empty");
    if (strlen(name) > NAME_MAX_BYTES) return bad(name, "it is longer than 200 bytes");
    if (name[0] == '.' || name[0] == '-') return bad(name, "it begins with '.' or '-'");
    for (const char *c = name; *c; c++) {
        if (*c == '/') return bad(name, "it contains '/' (--runs-dir says where runs are)");
        if (*c == '@') return bad(name, "it contains '@', which introduces a checkpoint");
        if ((unsigned char)*c < ' ' || *c == 127) return bad(name, "it has control characters");
    }
    json_t *utf8 = json_string(name);
    json_decref(utf8);
    return utf8 ? LS_OK : bad(name, "it is not UTF-8");
}

static const char *const colours[] = { "amber",  "azure",  "black", "blue",    "bronze", "brown",
                                       "copper", "coral",  "cream", "crimson", "cyan",   "gold",
                                       "green",  "indigo", "ivory", "jade",    "khaki",  "lilac",
                                       "lime",   "maroon", "mint",  "ochre",   "olive",  "orange",
                                       "pearl",  "purple", "red",   "silver",  "teal",   "violet",
                                       "white",  "yellow" };
static const char *const animals[] = { "ant",  "bat",  "bear", "bee",  "bison", "cat",  "crab",
                                       "crow", "deer", "dove", "duck", "eel",   "elk",  "finch",
                                       "fox",  "frog", "gull", "hare", "hawk",  "ibis", "lark",
                                       "lynx", "mole", "moth", "newt", "otter", "owl",  "seal",
                                       "swan", "toad", "wolf", "wren" };

ls_status ls__run_name(const char *runs_dir, char out[256])
{
    ls_rng rng;
    time_t now = (time_t)ls__wall_time();
    struct tm day;
    localtime_r(&now, &day);
    ls__rng_init(&rng, (uint64_t)ls__now_ns(), "run name", (uint64_t)now, (uint64_t)getpid());
    for (int i = 0; i < TRIES; i++) {
        char path[LS_PATH_MAX];
        snprintf(out, 256, "%s-%s-%02d%02d", colours[ls_rng_below(&rng, 32)],
                 animals[ls_rng_below(&rng, 32)], day.tm_mon + 1, day.tm_mday);
        LS_TRY(ls__path_join(path, runs_dir, out));
        if (!ls__path_exists(path)) return LS_OK;
    }
    return ls_fail(LS_ERR_CONFIG, "%s: no free name was found for a run; give it a --name",
                   runs_dir);
}
