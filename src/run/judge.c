/* Best so far, and how long ago. Its values are agreed ones, so every rank judges alike and no
 * decision needs to be sent. */
#include "run/judge.h"

#include <math.h>
#include <string.h>

ls_mode ls__judge_mode(ls_mode asked, ls_mode metric, const char *name)
{
    if (asked != LS_MODE_AUTO) return asked;
    if (metric != LS_MODE_AUTO) return metric;
    return strstr(name, "accuracy") ? LS_MODE_MAX : LS_MODE_MIN;
}

static const char *mode_name(ls_mode mode)
{
    return mode == LS_MODE_MAX ? "max" : "min";
}

bool ls__judge_see(ls__judge *judge, double value, int64_t step)
{
    double gain = judge->mode == LS_MODE_MAX ? value - judge->best : judge->best - value;
    bool better = !isnan(value) && (isnan(judge->best) || gain > judge->min_delta);
    if (!better) {
        judge->waited++;
        return false;
    }
    judge->best = value;
    judge->best_step = step;
    judge->waited = 0;
    return true;
}

json_t *ls__judge_json(const ls__judge *judge)
{
    if (!judge->monitor) return json_null();
    return json_pack("{s:s, s:s, s:o, s:I, s:I}", "monitor", judge->monitor, "mode",
                     mode_name(judge->mode), "best", ls__json_double(judge->best), "best_step",
                     (json_int_t)judge->best_step, "waited", (json_int_t)judge->waited);
}

void ls__judge_restore(ls__judge *judge, const json_t *json)
{
    const char *monitor = json_string_value(json_object_get(json, "monitor"));
    const char *mode = json_string_value(json_object_get(json, "mode"));
    judge->best = NAN;
    judge->best_step = judge->waited = 0;
    if (!judge->monitor || !monitor || !mode || strcmp(monitor, judge->monitor) != 0 ||
        strcmp(mode, mode_name(judge->mode)) != 0)
        return;
    const json_t *best = json_object_get(json, "best");
    if (json_is_number(best)) judge->best = json_number_value(best);
    judge->best_step = json_integer_value(json_object_get(json, "best_step"));
    judge->waited = json_integer_value(json_object_get(json, "waited"));
    if (judge->waited < 0) judge->waited = 0;
}
