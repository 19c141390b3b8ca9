/* Reads metrics.jsonl into series: one pass, superseded points dropped on the way. Lines that are
 * no JSON objects (torn ones, in the middle of a file that two starts wrote) are counted and
 * passed over: a reader shows what there is. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "record/record_internal.h"

typedef struct reader {
    ls__metrics *out;
    json_t *index; /* name -> its place in out->series */
    int room;
} reader;

/* --- series --- */

static ls_status add_series(reader *r, const char *name, ls__metric_series **series)
{
    ls__metrics *m = r->out;
    if (m->count == r->room) {
        int room = 2 * r->room + 16;
        ls__metric_series *grown = ls__realloc(m->series, (size_t)room, sizeof *grown);
        if (!grown) return LS_ERR_MEMORY;
        m->series = grown;
        r->room = room;
    }
    char *copy = ls__strdup(name);
    if (!copy) return LS_ERR_MEMORY;
    if (json_object_set_new(r->index, name, json_integer(m->count)) != 0) {
        ls__free(copy);
        return ls_fail(LS_ERR_MEMORY, "out of memory: could not index metrics");
    }
    *series = &m->series[m->count++];
    **series = (ls__metric_series) { .name = copy };
    return LS_OK;
}

static ls_status series_of(reader *r, const char *name, ls__metric_series **series)
{
    const json_t *place = json_object_get(r->index, name);
    if (!place) return add_series(r, name, series);
    *series = &r->out->series[json_integer_value(place)];
    return LS_OK;
}

/* The first point whose step is not below step. */
static int lower_bound(const ls__metric_series *s, int64_t step)
{
    int low = 0, high = s->count;
    if (high == 0 || s->points[high - 1].step < step) return high; /* nearly always */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->points[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static ls_status add_point(ls__metric_series *s, const ls__metric_point *point)
{
    int at = lower_bound(s, point->step);
    if (at < s->count && s->points[at].step == point->step) {
        s->points[at] = *point; /* the later counts */
        return LS_OK;
    }
    if (s->count == s->capacity) {
        int capacity = 2 * s->capacity + 16;
        ls__metric_point *grown = ls__realloc(s->points, (size_t)capacity, sizeof *grown);
        if (!grown) return LS_ERR_MEMORY;
        s->points = grown;
        s->capacity = capacity;
    }
    memmove(&s->points[at + 1], &s->points[at], (size_t)(s->count - at) * sizeof *s->points);
    s->points[at] = *point;
    s->count++;
    return LS_OK;
}

static void rewind_to(ls__metrics *m, int64_t step)
{
    for (int i = 0; i < m->count; i++) {
        ls__metric_series *s = &m->series[i];
        while (s->count > 0 && s->points[s->count - 1].step > step) s->count--;
    }
}

/* --- lines --- */

static double number(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static ls_status read_stage(reader *r, const char *stage, json_t *members, ls__metric_point *point)
{
    const char *key;
    json_t *value;
    json_object_foreach(members, key, value)
    {
        if (!json_is_number(value) && !json_is_null(value)) continue;
        ls__metric_series *series = NULL;
        char *name = ls__format("%s/%s", stage, key);
        if (!name) return LS_ERR_MEMORY;
        ls_status status = series_of(r, name, &series);
        ls__free(name);
        LS_TRY(status);
        point->value = number(value);
        LS_TRY(add_point(series, point));
    }
    return LS_OK;
}

static ls_status read_object(reader *r, json_t *line)
{
    const json_t *rewind = json_object_get(line, "rewind"), *step = json_object_get(line, "step");
    if (json_is_integer(rewind)) rewind_to(r->out, json_integer_value(rewind));
    if (!json_is_integer(step) || json_object_get(line, "event")) return LS_OK;
    ls__metric_point point = { .step = json_integer_value(step),
                               .epoch = number(json_object_get(line, "epoch")),
                               .time = number(json_object_get(line, "time")) };
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value)
    {
        if (json_is_object(value) && !ls__record_is_reserved(key))
            LS_TRY(read_stage(r, key, value, &point));
    }
    return LS_OK;
}

static ls_status read_line(reader *r, const char *line, size_t n)
{
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    ls_status status = LS_OK;
    if (json_is_object(object))
        status = read_object(r, object);
    else
        r->out->skipped++;
    json_decref(object);
    return status;
}

/* A line that does not fit into the buffer is passed over to its end. */
static ls_status read_lines(reader *r, FILE *file, const char *path, char *buffer)
{
    ls_status status = LS_OK;
    bool too_long = false;
    while (status == LS_OK && fgets(buffer, LS__LINE_MAX, file)) {
        size_t n = strlen(buffer);
        bool ends = n > 0 && buffer[n - 1] == '\n';
        bool part = !ends && n + 1 == LS__LINE_MAX;
        if (part || too_long)
            r->out->skipped += !part;
        else
            status = read_line(r, buffer, n);
        too_long = part;
    }
    if (status == LS_OK && ferror(file)) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
    return status;
}

ls_status ls__metrics_read(const char *path, ls__metrics *out)
{
    *out = (ls__metrics) { 0 };
    reader r = { .out = out };
    FILE *file = fopen(path, "re");
    if (!file) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    ls_status status = LS_ERR_MEMORY;
    char *buffer = ls__alloc(LS__LINE_MAX, 1);
    r.index = json_object();
    if (buffer && r.index)
        status = read_lines(&r, file, path, buffer);
    else if (buffer)
        ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    json_decref(r.index);
    ls__free(buffer);
    fclose(file);
    if (status != LS_OK) ls__metrics_free(out);
    return status;
}

void ls__metrics_free(ls__metrics *m)
{
    for (int i = 0; i < m->count; i++) {
        ls__free(m->series[i].name);
        ls__free(m->series[i].points);
    }
    ls__free(m->series);
    *m = (ls__metrics) { 0 };
}

const ls__metric_series *ls__metrics_find(const ls__metrics *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->series[i].name, name) == 0) return &m->series[i];
    return NULL;
}
