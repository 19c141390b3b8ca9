/* The table that --profile ends with, from the run's profile.json. Rows are sorted by time and the
 * small ones added up, so that the table fits a screen: all of them are in the document. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "run/run_state.h"

enum { MOST_ROWS = 24, DOCUMENT_LIMIT = 16 << 20 };

json_t *ls__profile_read(const ls_run_result *result)
{
    char path[LS_PATH_MAX];
    json_t *json = NULL;
    if (!result->profiled || ls__path_join(path, result->folder, "profile.json") != LS_OK ||
        ls__json_read(path, DOCUMENT_LIMIT, &json) != LS_OK)
        return NULL;
    return json;
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static void put_title(ls__text *out, const json_t *p, bool bold)
{
    double steps = number(p, "steps"), world = number(p, "world_size"),
           threads = number(p, "threads");
    ls__text_add(out, "\n%sprofile of %.0f step%s", bold ? "\033[1m" : "", steps,
                 steps == 1 ? "" : "s");
    if (world > 1) ls__text_add(out, " of rank 0 of %.0f", world);
    if (threads > 1) ls__text_add(out, ", %.0f threads", threads);
    ls__text_add(out, ": %.2f ms a step, %.1f GFLOP/s%s\n", number(p, "seconds") / steps * 1e3,
                 number(p, "step_gflops"), bold ? "\033[0m" : "");
    ls__text_add(out, "%s  share   ms/step  calls/step  GFLOP/s   GB/s  operation%s\n",
                 bold ? "\033[2m" : "", bold ? "\033[0m" : "");
}

static void put_share(ls__text *out, double share, double ms)
{
    ls__text_add(out, "%5.1f %%  %8.3f", 100 * share, ms);
}

/* A rate that says nothing is left out: a copy has no FLOP to speak of. */
static void put_rate(ls__text *out, int width, double rate)
{
    if (rate < 0.05)
        ls__text_add(out, "%*s", width, "");
    else
        ls__text_add(out, "%*.1f", width, rate);
}

static void put_operation(ls__text *out, const json_t *row, double steps)
{
    put_share(out, number(row, "share"), number(row, "seconds") / steps * 1e3);
    ls__text_add(out, "%12.1f", number(row, "calls") / steps);
    put_rate(out, 9, number(row, "gflops"));
    put_rate(out, 7, number(row, "gb_per_s"));
    const char *layer = text_of(row, "layer");
    ls__text_add(out, "  %s%s%s\n", text_of(row, "name"), layer[0] ? " " : "", layer);
}

/* What is beside the operations, or many of them together. */
static void put_other(ls__text *out, const char *name, double share, double ms)
{
    put_share(out, share, ms);
    ls__text_add(out, "%28s  %s\n", "", name);
}

static void put_operations(ls__text *out, const json_t *operations, double steps)
{
    size_t n = json_array_size(operations), most = n <= MOST_ROWS + 1 ? n : MOST_ROWS;
    double share = 0, seconds = 0;
    char name[64];
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(operations, i);
        if (i < most) {
            put_operation(out, row, steps);
            continue;
        }
        share += number(row, "share");
        seconds += number(row, "seconds");
    }
    snprintf(name, sizeof name, "%zu more operations", n - most);
    if (most < n) put_other(out, name, share, seconds / steps * 1e3);
}

void ls__profile_put(ls__text *out, const json_t *profile)
{
    bool bold = ls__color(STDOUT_FILENO);
    double steps = number(profile, "steps");
    const json_t *rest = json_object_get(profile, "rest");
    if (steps < 1) return;
    put_title(out, profile, bold);
    put_operations(out, json_object_get(profile, "operations"), steps);
    for (size_t i = 0; i < json_array_size(rest); i++) {
        const json_t *row = json_array_get(rest, i);
        put_other(out, text_of(row, "name"), number(row, "share"),
                  number(row, "seconds") / steps * 1e3);
    }
    ls__text_add(out, "trace   %s (open it at ui.perfetto.dev or chrome://tracing)\n",
                 text_of(profile, "trace"));
}
