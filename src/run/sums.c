/* Named weighted sums. A fixed small table: a step logs a handful of names, and the order in which
 * names first appear is the order in which they are reported. */
#include "run/sums.h"

#include <stdio.h>
#include <string.h>

bool ls__metric_name(const char *stage, const char *name, char out[LS__RECORD_NAME_MAX])
{
    int n = strchr(name, '/') ? snprintf(out, LS__RECORD_NAME_MAX, "%s", name)
                              : snprintf(out, LS__RECORD_NAME_MAX, "%s/%s", stage, name);
    return n > 0 && n < LS__RECORD_NAME_MAX;
}

bool ls__sums_add(ls__sums *sums, const char *name, double sum, double weight)
{
    int64_t i = 0;
    while (i < sums->count && strcmp(sums->items[i].name, name) != 0) i++;
    if (i == LS__RECORDS_MAX || strlen(name) >= LS__RECORD_NAME_MAX) return false;
    ls__record *item = &sums->items[i];
    if (i == sums->count) {
        sums->count++;
        memset(item, 0, sizeof *item);
        memcpy(item->name, name, strlen(name) + 1);
    }
    item->sum += sum;
    item->weight += weight;
    return true;
}

void ls__sums_merge(ls__sums *sums, const ls__sums *next)
{
    for (int64_t i = 0; i < next->count; i++)
        ls__sums_add(sums, next->items[i].name, next->items[i].sum, next->items[i].weight);
}

json_t *ls__sums_json(const ls__sums *sums)
{
    json_t *all = json_array();
    for (int64_t i = 0; all && i < sums->count; i++)
        json_array_append_new(all, json_pack("[s, o, o]", sums->items[i].name,
                                             ls__json_double(sums->items[i].sum),
                                             ls__json_double(sums->items[i].weight)));
    return all;
}

bool ls__sums_parse(const json_t *json, ls__sums *out)
{
    *out = (ls__sums) { 0 };
    size_t i;
    json_t *row;
    json_array_foreach(json, i, row)
    {
        const json_t *name = json_array_get(row, 0);
        const json_t *sum = json_array_get(row, 1), *weight = json_array_get(row, 2);
        if (!json_is_string(name) || !json_is_number(sum) || !json_is_number(weight)) return false;
        if (!ls__sums_add(out, json_string_value(name), json_number_value(sum),
                          json_number_value(weight)))
            return false;
    }
    return json_is_array(json);
}

static void metric_merge(void *state, const void *next)
{
    ls__sums_merge(state, next);
}

const ls_metric ls__sums_metric = {
    .name = "sums",
    .state_size = sizeof(ls__sums),
    .merge = metric_merge,
};
