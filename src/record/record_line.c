/* Lines of metrics.jsonl as text. Made by the thread that logs, a few microseconds each, so that
 * what waits in the queue is one string and shares nothing. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "record/record_internal.h"

static const char *const reserved_members[] = {
    "schema", "step", "epoch", "time", "rewind", "event"
};

bool ls__record_is_reserved(const char *member)
{
    for (size_t i = 0; i < sizeof reserved_members / sizeof *reserved_members; i++)
        if (strcmp(member, reserved_members[i]) == 0) return true;
    return false;
}

/* With its newline; steals object. */
static char *finish(json_t *object)
{
    char *text = object ? ls__json_line(object) : NULL;
    json_decref(object);
    if (!text) return NULL;
    char *line = ls__format("%s\n", text);
    ls__free(text);
    return line;
}

/* "stage/name" into {"stage":{"name":value}}; false = it cannot be told from other members. */
static bool put(json_t *line, const char *name, double value)
{
    char stage[128];
    const char *slash = strchr(name, '/');
    if (!slash || slash == name || slash[1] == '\0' || slash - name >= (long)sizeof stage)
        return false;
    snprintf(stage, sizeof stage, "%.*s", (int)(slash - name), name);
    if (ls__record_is_reserved(stage)) return false;
    json_t *object = json_object_get(line, stage);
    if (!object) {
        object = json_object();
        if (json_object_set_new(line, stage, object) != 0) return false;
    }
    return json_object_set_new(object, slash + 1, ls__json_double(value)) == 0;
}

char *ls__record_point_line(int64_t step, double epoch, double time, const char *const *names,
                            const double *values, int n, int *reserved)
{
    *reserved = 0;
    json_t *line = json_object();
    json_object_set_new(line, "step", json_integer(step));
    json_object_set_new(line, "epoch", ls__json_double(epoch));
    json_object_set_new(line, "time", ls__json_double(time));
    for (int i = 0; line && i < n; i++) *reserved += !put(line, names[i], values[i]);
    return finish(line);
}

char *ls__record_event_line(const char *kind, double time, json_t *fields)
{
    json_t *line = json_object();
    json_object_set_new(line, "event", json_string(kind));
    json_object_set_new(line, "time", ls__json_double(time));
    if (line && fields) json_object_update_missing(line, fields);
    return finish(line);
}

char *ls__record_rewind_line(int64_t step, double time)
{
    json_t *line = json_object();
    json_object_set_new(line, "rewind", json_integer(step));
    json_object_set_new(line, "time", ls__json_double(time));
    return finish(line);
}
