/* --profile: where the steps of a fit spend their time, by operation and layer.
 *
 * The backend measures its steps, the run what is around them; here both meet the graph's names.
 * Layers that differ in a number only (block0.fc, block1.fc) are one row, block*.fc: a table that
 * fits a screen says more than one with a line for each of a hundred layers, which are in the
 * trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"
#include "graph/ops.h"
#include "trainer/model_internal.h"

enum {
    TRACED_STEPS = 3,
    EVENTS = 1 << 15, /* per thread, in each build: 1 MiB */
    NAME = 128,
};

typedef struct row {
    char name[NAME], layer[NAME];
    int64_t calls;
    double seconds, flops, nbytes;
    bool beside; /* other operations: its time is no part of a step's */
} row;

typedef struct report {
    ls_model *model;
    const ls__spent *spent;
    row *rows;
    int nrows, room;
    double computing; /* seconds in the backend */
    int threads;
} report;

/* --- names --- */

/* The parameter that the node reads, or whose gradient it computes. */
static const char *param_of(const ls_graph *g, const ls__node *node)
{
    const ls__graph_param *params;
    int n = ls__graph_params(g, &params);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < node->nin; k++)
            if (node->in[k] == params[i].tensor) return params[i].name;
        for (int k = 0; k < node->nout; k++)
            if (node->out[k] == params[i].grad) return params[i].name;
    }
    return "";
}

/* "block0.fc.weight" -> "block0.fc" */
static void layer_of(const ls_graph *g, const ls__node *node, char out[NAME])
{
    const char *name = param_of(g, node), *dot = strrchr(name, '.');
    snprintf(out, NAME, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
}

/* "block0.attention.qkv" -> "block*.attention.qkv", "fc1" stays */
static void join_numbers(char *name)
{
    char *to = name;
    for (const char *from = name; *from;) {
        size_t digits = strspn(from, "0123456789");
        if (digits && from[digits] == '.') {
            *to++ = '*';
            from += digits;
        }
        *to++ = *from++;
    }
    *to = '\0';
}

static void step_name(const ls__node *nodes, const ls__profile_step *s, char out[NAME])
{
    const char *partner = s->partner >= 0 ? nodes[s->partner].op->name : NULL;
    if (s->what)
        snprintf(out, NAME, "%.60s: %.60s", nodes[s->node].op->name, s->what);
    else
        snprintf(out, NAME, "%.60s%s%.60s", nodes[s->node].op->name, partner ? "+" : "",
                 partner ? partner : "");
}

/* --- rows --- */

static row *row_named(report *r, const char *name, const char *layer)
{
    for (int i = 0; i < r->nrows; i++)
        if (strcmp(r->rows[i].name, name) == 0 && strcmp(r->rows[i].layer, layer) == 0)
            return &r->rows[i];
    if (r->nrows == r->room) {
        int room = r->room ? 2 * r->room : 64;
        row *grown = ls__realloc(r->rows, (size_t)room, sizeof *grown);
        if (!grown) return NULL;
        r->rows = grown;
        r->room = room;
    }
    row *made = &r->rows[r->nrows++];
    *made = (row) { 0 };
    snprintf(made->name, NAME, "%s", name);
    snprintf(made->layer, NAME, "%s", layer);
    return made;
}

/* A lookup touches a few rows of a table, however large. */
static double bytes_of(const ls__node *node, const ls__profile_step *s)
{
    const ls_tensor *rows = node->op == &ls__op_embedding        ? node->out[0]
                            : node->op == &ls__op_embedding_grad ? node->in[0]
                                                                 : NULL;
    if (!rows) return s->nbytes;
    ls_array array = { .rank = rows->rank };
    memcpy(array.shape, rows->shape, sizeof array.shape);
    return 2.0 * (double)ls_array_count(&array) * sizeof(float);
}

static ls_status add_step(report *r, const ls__built *b, const ls__profile *p, int step,
                          bool *counted)
{
    const ls__node *nodes;
    const ls__profile_step *s = &p->steps[step];
    char name[NAME], layer[NAME];
    if (ls__graph_nodes(b->graph, &nodes) == 0 || s->calls == 0) return LS_OK;
    step_name(nodes, s, name);
    layer_of(b->graph, &nodes[s->node], layer);
    join_numbers(layer);
    row *to = row_named(r, name, layer);
    if (!to) return LS_ERR_MEMORY;
    to->calls += s->calls;
    to->seconds += s->seconds / p->threads;
    to->beside = s->beside;
    to->nbytes += bytes_of(&nodes[s->node], s) * (double)p->runs;
    if (s->what || counted[s->node]) return LS_OK;
    counted[s->node] = true;
    to->flops += ls__node_flops(&nodes[s->node]) * (double)p->runs;
    if (s->partner >= 0) to->flops += ls__node_flops(&nodes[s->partner]) * (double)p->runs;
    return LS_OK;
}

static ls_status add_build(report *r, const ls__built *b, const ls__profile *p)
{
    const ls__node *nodes;
    int n = ls__graph_nodes(b->graph, &nodes);
    bool *counted = ls__alloc((size_t)n + 1, sizeof *counted);
    ls_status status = counted ? LS_OK : LS_ERR_MEMORY;
    for (int s = 0; status == LS_OK && s < p->nsteps; s++) status = add_step(r, b, p, s, counted);
    ls__free(counted);
    r->computing += p->seconds;
    r->threads = p->threads;
    return status;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const row *)a)->seconds, y = ((const row *)b)->seconds;
    return (x < y) - (x > y);
}

/* --- the document --- */

static json_t *row_json(const report *r, const row *x)
{
    double seconds = x->seconds > 0 ? x->seconds : 1e-9;
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o}", "name", x->name, "layer", x->layer,
                     "calls", (json_int_t)x->calls, "seconds", ls__json_double(x->seconds), "share",
                     ls__json_double(x->seconds / r->spent->total), "gflops",
                     ls__json_double(x->flops / seconds * 1e-9), "gb_per_s",
                     ls__json_double(x->nbytes / seconds * 1e-9));
}

static void add_rest(const report *r, json_t *list, const char *name, double seconds)
{
    if (seconds < 0) seconds = 0;
    json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "name", name, "seconds",
                                          ls__json_double(seconds), "share",
                                          ls__json_double(seconds / r->spent->total)));
}

static json_t *rest_json(const report *r, double operations)
{
    json_t *list = json_array();
    double known = r->computing;
    if (!list) return NULL;
    add_rest(r, list, "between operations", r->computing - operations);
    for (int i = 0; i < LS__SPENT_KINDS; i++) {
        add_rest(r, list, ls__spent_name((ls__spent_kind)i), r->spent->seconds[i]);
        known += r->spent->seconds[i];
    }
    add_rest(r, list, "other", r->spent->total - known);
    for (int i = 0; i < r->nrows; i++) {
        const row *x = &r->rows[i];
        if (x->beside)
            json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "name", x->name, "seconds",
                                                  ls__json_double(x->seconds), "share",
                                                  ls__json_double(0)));
    }
    return list;
}

static json_t *document(report *r, const char *trace)
{
    double seconds = 0, flops = 0;
    json_t *rows = json_array();
    qsort(r->rows, (size_t)r->nrows, sizeof *r->rows, by_seconds);
    for (int i = 0; i < r->nrows; i++) {
        if (r->rows[i].beside) continue;
        json_array_append_new(rows, row_json(r, &r->rows[i]));
        seconds += r->rows[i].seconds;
        flops += r->rows[i].flops;
    }
    return json_pack("{s:s, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:s}", "schema",
                     "lockstep.profile/1", "world_size", ls_world_size(r->model->world), "threads",
                     r->threads, "steps", (json_int_t)r->spent->steps, "seconds",
                     ls__json_double(r->spent->total), "step_gflops",
                     ls__json_double(r->spent->total > 0 ? flops / r->spent->total * 1e-9 : 0),
                     "computing", ls__json_double(seconds), "operations", rows, "rest",
                     rest_json(r, seconds), "trace", trace);
}

/* --- the trace: Chrome's "Trace Event Format", an array of complete events --- */

static void add_event(ls__text *out, const char *name, const char *category, int thread,
                      int64_t begin_ns, int64_t end_ns, int64_t zero)
{
    ls__text_add(out,
                 ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
                 "\"pid\":0,\"tid\":%d}",
                 name, category, (double)(begin_ns - zero) * 1e-3,
                 (double)(end_ns - begin_ns) * 1e-3, thread);
}

/* Names of parameters are the user's: nothing of them may end a JSON text. */
static void plain_text(char *name)
{
    for (; *name; name++)
        if (*name == '"' || *name == '\\' || (unsigned char)*name < 32) *name = '_';
}

static void add_events(ls__text *out, const ls__built *b, const ls__profile *p, int64_t zero)
{
    const ls__node *nodes;
    ls__graph_nodes(b->graph, &nodes);
    for (int64_t i = 0; i < p->nevents; i++) {
        const ls__profile_event *e = &p->events[i];
        const ls__node *node = &nodes[p->steps[e->step].node];
        char name[NAME], layer[NAME], both[2 * NAME];
        step_name(nodes, &p->steps[e->step], name);
        layer_of(b->graph, node, layer);
        snprintf(both, sizeof both, "%s%s%s", name, layer[0] ? " " : "", layer);
        plain_text(both);
        add_event(out, both, node->backward ? "backward" : "forward", e->thread, e->begin_ns,
                  e->end_ns, zero);
    }
}

static int64_t first_moment(const ls__spent *spent, const ls__profile *p)
{
    int64_t zero = spent->nspans ? spent->spans[0].begin_ns : INT64_MAX;
    for (int64_t i = 0; i < p->nevents; i++)
        if (p->events[i].begin_ns < zero) zero = p->events[i].begin_ns;
    return zero;
}

static ls_status write_trace(const report *r, const ls__profile *profiles, const char *path)
{
    ls__text out = { 0 };
    const ls__profile *p = profiles;
    int64_t zero = INT64_MAX;
    for (const ls__built *b = r->model->built; b; b = b->next, p++) {
        int64_t first = first_moment(r->spent, p);
        if (first < zero) zero = first;
    }
    ls__text_add(&out, "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":"
                       "\"rank 0\"}}");
    p = profiles;
    for (const ls__built *b = r->model->built; b; b = b->next) add_events(&out, b, p++, zero);
    for (int i = 0; i < r->spent->nspans; i++) {
        const ls__span_of_time *s = &r->spent->spans[i];
        add_event(&out, ls__spent_name(s->kind), "run", 0, s->begin_ns, s->end_ns, zero);
    }
    ls__text_add(&out, "]\n");
    size_t nbytes = out.used;
    char *text = ls__text_take(&out);
    ls_status status =
        text ? ls__file_write_atomic(&ls__fs_posix, path, text, nbytes) : LS_ERR_MEMORY;
    ls__free(text);
    return status;
}

/* --- begin, step, end --- */

ls_status ls__model_profile(ls_model *model, ls__built *built)
{
    return model->backend->profile_begin(built->executable, EVENTS);
}

ls_status ls__fit_profile_begin(ls_model *model, ls_run *run)
{
    model->profiling = true;
    ls__run_profile_begin(run);
    for (ls__built *b = model->built; b; b = b->next)
        if (b->executable) LS_TRY(ls__model_profile(model, b));
    return LS_OK;
}

ls_status ls__fit_profile_step(ls_model *model, ls_run *run, int64_t steps)
{
    if (steps == 1) LS_TRY(ls__fit_profile_begin(model, run));
    model->tracing = steps >= 1 && steps <= TRACED_STEPS;
    ls__run_profile_trace(run, model->tracing);
    return LS_OK;
}

static int count_builds(const ls_model *model)
{
    int n = 0;
    for (const ls__built *b = model->built; b; b = b->next) n++;
    return n;
}

static bool is_measured(const ls__built *b)
{
    return b->executable && ls__graph_options_of(b->graph)->stage == LS_STAGE_TRAIN;
}

static ls_status write_report(report *r, const ls__profile *profiles, const char *folder)
{
    char path[LS_PATH_MAX], trace[LS_PATH_MAX];
    const ls__profile *p = profiles;
    for (const ls__built *b = r->model->built; b; b = b->next, p++)
        if (p->nsteps) LS_TRY(add_build(r, b, p));
    LS_TRY(ls__path_join(trace, folder, "trace.json"));
    LS_TRY(ls__path_join(path, folder, "profile.json"));
    LS_TRY(write_trace(r, profiles, trace));
    json_t *json = document(r, trace);
    ls_status status = json ? ls__json_write(&ls__fs_posix, path, json)
                            : ls_fail(LS_ERR_MEMORY, "out of memory: the profile");
    json_decref(json);
    return status;
}

ls_status ls__fit_profile_end(ls_model *model, ls_run *run)
{
    report r = { .model = model, .spent = ls__run_profile_end(run), .threads = 1 };
    model->profiling = model->tracing = false;
    if (ls_world_rank(model->world) != 0 || r.spent->steps == 0) return LS_OK;
    ls__profile *profiles = ls__alloc((size_t)count_builds(model) + 1, sizeof *profiles);
    if (!profiles) return LS_ERR_MEMORY;
    ls__profile *p = profiles;
    for (ls__built *b = model->built; b; b = b->next, p++)
        if (is_measured(b)) model->backend->profile_read(b->executable, p);
    ls_status status = write_report(&r, profiles, ls_run_folder(run));
    ls__free(r.rows);
    ls__free(profiles);
    return status;
}
