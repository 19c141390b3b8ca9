/* What a program prints at its end: one document for programs (lockstep.fit/1), or a few lines for
 * people. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "run/run_state.h"

const char *ls_stop_reason_name(ls_stop_reason reason)
{
    static const char *const names[] = {
#define REASON_NAME(name, text) text,
        LS_STOP_REASON_MAP(REASON_NAME)
#undef REASON_NAME
    };
    return (int)reason >= 0 && (size_t)reason < sizeof names / sizeof names[0] ? names[reason]
                                                                               : "unknown";
}

static json_t *values_json(const ls_values *values)
{
    json_t *all = json_object();
    for (int i = 0; all && i < values->count; i++)
        json_object_set_new(all, values->items[i].name, ls__json_double(values->items[i].value));
    return all;
}

static char *document(const ls_run_result *r, const ls_values *test)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:i, s:i, s:I, s:I, s:s, s:o, s:o, s:f, s:{s:f, s:f}, s:o, s:I, s:I, s:o, s:s, "
        "s:s}",
        "schema", "lockstep.fit/1", "run", r->name, "world_size", r->world_size, "micro_batches",
        r->micro_batches, "steps", (json_int_t)r->steps, "epochs", (json_int_t)r->epochs,
        "stop_reason", ls_stop_reason_name(r->reason), "train", values_json(&r->train), "val",
        values_json(&r->val), "samples_per_s", r->samples_per_s, "step_ms", "median",
        r->step_ms_median, "p95", r->step_ms_p95, "weights_xxh3", ls__json_u64(r->weights_xxh3),
        "peak_rss_bytes", (json_int_t)r->peak_rss_bytes, "memory_predicted_bytes",
        (json_int_t)r->memory_predicted_bytes, "best", ls__json_double(r->best), "best_checkpoint",
        r->best_checkpoint, "folder", r->folder);
    if (json && r->unit.name[0]) {
        char key[32];
        snprintf(key, sizeof key, "%s_per_s", r->unit.name);
        json_object_set_new(json, key, json_real(r->samples_per_s * (double)r->unit.per_sample));
    }
    if (json && r->device_predicted_bytes) {
        json_object_set_new(json, "device_peak_bytes", json_integer(r->device_peak_bytes));
        json_object_set_new(json, "device_predicted_bytes",
                            json_integer(r->device_predicted_bytes));
    }
    if (json && test) json_object_set_new(json, "test", values_json(test));
    json_t *profile = ls__profile_read(r);
    if (json && profile) json_object_set(json, "profile", profile);
    json_decref(profile);
    char *line = json ? ls__json_line(json) : NULL;
    json_decref(json);
    return line;
}

static void put_values(ls__text *out, const char *stage, const ls_values *values)
{
    if (!values || values->count == 0) return;
    ls__text_add(out, "%-6s", stage);
    for (int i = 0; i < values->count; i++)
        if (strcmp(values->items[i].name, "lr") != 0)
            ls__text_add(out, "  %s %.4g", values->items[i].name, values->items[i].value);
    ls__text_add(out, "\n");
}

static void put_end(ls__text *out, const ls_run_result *r)
{
    ls__text_add(out, "run %s: %" PRId64 " step%s", r->name, r->steps, r->steps == 1 ? "" : "s");
    if (r->epochs > 0)
        ls__text_add(out, ", %" PRId64 " epoch%s", r->epochs, r->epochs == 1 ? "" : "s");
    ls__text_add(out, " (%s)\n", ls_stop_reason_name(r->reason));
}

static void put_speed(ls__text *out, const ls_run_result *r)
{
    ls__text_add(out, "speed   %.0f samples/s", r->samples_per_s);
    if (r->unit.name[0])
        ls__text_add(out, ", %.0f %s/s", r->samples_per_s * (double)r->unit.per_sample,
                     r->unit.name);
    ls__text_add(out, " on %d device%s, %.2f ms a step\n", r->world_size,
                 r->world_size == 1 ? "" : "s", r->step_ms_median);
}

static void put_memory(ls__text *out, const ls_run_result *r)
{
    char peak[32], predicted[32];
    bool several = r->world_size > 1, own = r->device_predicted_bytes > 0;
    const char *whose = own ? " of the host" : several ? " on a device" : "";
    if (r->memory_predicted_bytes == 0) return;
    ls__text_add(out, "memory  %s at most%s%s, %s predicted\n",
                 ls__megabytes(r->peak_rss_bytes, peak), whose, own && several ? " by a rank" : "",
                 ls__megabytes(r->memory_predicted_bytes, predicted));
    if (!own) return;
    ls__text_add(out, "        %s at most of %s GPU, %s predicted\n",
                 ls__megabytes(r->device_peak_bytes, peak), several ? "a" : "the",
                 ls__megabytes(r->device_predicted_bytes, predicted));
}

static char *summary(const ls_run_result *r, const ls_values *test)
{
    ls__text text = { 0 };
    put_end(&text, r);
    put_values(&text, "train", &r->train);
    put_values(&text, "val", &r->val);
    put_values(&text, "test", test);
    if (r->samples_per_s > 0) put_speed(&text, r);
    put_memory(&text, r);
    ls__text_add(&text, "folder  %s\n", r->folder);
    if (r->best_checkpoint[0]) ls__text_add(&text, "best    %s\n", r->best_checkpoint);
    json_t *profile = ls__profile_read(r);
    if (profile) ls__profile_put(&text, profile);
    json_decref(profile);
    return ls__text_take(&text);
}

char *ls_run_result_text(const ls_world *world, const ls_run_result *result, const ls_values *test)
{
    if (ls_world_rank(world) != 0) return ls__strdup("");
    if (!ls__options_wants(ls__world_options(world), "json")) return summary(result, test);
    char *line = document(result, test);
    char *text = line ? ls__format("%s\n", line) : NULL;
    ls__free(line);
    return text;
}
