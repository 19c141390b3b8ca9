/* lockstep top RUN: what each rank of a run is doing, once or again and again. Two looks a moment apart
 * make the rates; where they come from is top_looks.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/top_looks.h"

enum { MOMENT_MS = 500, BEHIND_STEPS = 2 };
static const double between_beats = 1, late_seconds = 10, slow_share = 1.5; /* of the median */

typedef struct row {
    const ls__rank_look *now;
    double cpus, step_seconds; /* -1 = unknown */
    const char *mark;          /* "" */
} row;

typedef struct table {
    ls__run_state run;
    ls__gpus *gpus;
    ls_cli_looks before, now;
    row *rows; /* (now.n) */
} table;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Ranks tell their steps now and then, each at moments of its own. */
static bool is_behind(const ls__rank_look *l, int64_t furthest, double step_seconds)
{
    int64_t steps = furthest - l->step;
    bool told_lately = l->beat_at > 0 && l->at - l->beat_at < between_beats;
    return l->step >= 0 && steps >= BEHIND_STEPS &&
           !(told_lately && (double)steps * step_seconds < between_beats);
}

static const char *mark_of(const row *w, int64_t furthest, double median)
{
    const ls__rank_look *l = w->now;
    if (l->state == '?' || l->state == 'Z') return "ended";
    if (l->state == 'T' || l->state == 't') return "stopped";
    if (is_behind(l, furthest, median)) return "behind";
    if (l->beat_at > 0 && l->at - l->beat_at > late_seconds) return "no heartbeat";
    return w->step_seconds > slow_share * median ? "slow" : "";
}

/* Who holds the others up: by heartbeats, since everybody waits for a straggler at the same place. */
static ls_status mark(row *rows, int n)
{
    double *times = ls__alloc((size_t)n + 1, sizeof *times);
    int known = 0;
    int64_t furthest = -1;
    if (!times) return LS_ERR_MEMORY;
    for (int r = 0; r < n; r++) {
        if (rows[r].step_seconds > 0) times[known++] = rows[r].step_seconds;
        if (rows[r].now->step > furthest) furthest = rows[r].now->step;
    }
    if (known > 0) qsort(times, (size_t)known, sizeof *times, by_value);
    double median = known > 0 ? times[known / 2] : 0; /* of two the slower one */
    for (int r = 0; r < n; r++) rows[r].mark = mark_of(&rows[r], furthest, median);
    ls__free(times);
    return LS_OK;
}

/* Ranks are in their order, but some may have been missing. */
static const ls__rank_look *find(const ls_cli_looks *looks, int rank)
{
    for (int i = rank < looks->n ? rank : looks->n - 1; i >= 0; i--)
        if (looks->ranks[i].rank == rank) return &looks->ranks[i];
    return NULL;
}

static ls_status make_rows(table *t)
{
    int n = t->now.n;
    ls__free(t->rows);
    t->rows = ls__alloc((size_t)n + 1, sizeof *t->rows);
    if (!t->rows) return LS_ERR_MEMORY;
    for (int r = 0; r < n; r++) {
        const ls__rank_look *b = &t->now.ranks[r], *a = find(&t->before, b->rank);
        double seconds = a ? b->at - a->at : 0;
        bool same = a && a->pid == b->pid && seconds > 0;
        bool steps = same && a->step >= 0 && b->step > a->step && b->beat_at > a->beat_at;
        t->rows[r] = (row) {
            .now = b,
            .cpus = same ? (b->cpu_seconds - a->cpu_seconds) / seconds : -1,
            .step_seconds = steps ? (b->beat_at - a->beat_at) / (double)(b->step - a->step) : -1,
        };
    }
    return mark(t->rows, n);
}

static json_t *number(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

static json_t *row_json(const table *t, const row *w)
{
    const ls__rank_look *l = w->now;
    char state[2] = { l->state, '\0' };
    return json_pack("{s:i,s:s,s:i,s:s,s:o,s:I,s:o,s:o,s:o,s:o,s:s}", "rank", l->rank, "host",
                     t->now.hosts[l->node], "pid", l->pid, "state", state, "cpus",
                     number(w->cpus >= 0, w->cpus), "memory", (json_int_t)l->memory, "gpu_percent",
                     number(l->gpu >= 0, l->gpu), "heartbeat_age",
                     number(l->beat_at > 0, l->at - l->beat_at), "step",
                     l->step >= 0 ? json_integer(l->step) : json_null(), "step_seconds",
                     number(w->step_seconds > 0, w->step_seconds), "mark", w->mark);
}

static json_t *table_json(const table *t)
{
    json_t *ranks = json_array();
    for (int r = 0; r < t->now.n; r++) json_array_append_new(ranks, row_json(t, &t->rows[r]));
    return json_pack("{s:s,s:s,s:s,s:i,s:o}", "schema", "lockstep.top/1", "run", t->run.name,
                     "status", t->run.status, "missing", t->now.missing, "ranks", ranks);
}

static void print_number(const char *format, int width, bool known, double value)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    printf("  %*s", width, known ? text : "-");
}

static void print_row(const table *t, const row *w, int width)
{
    const ls__rank_look *l = w->now;
    char memory[32];
    ls_cli_bytes(l->memory, memory);
    printf("%4d  ", l->rank);
    if (width > 0) printf("%-*s  ", width, t->now.hosts[l->node]);
    printf("%8d  %5c", l->pid, l->state);
    print_number("%.0f %%", 6, w->cpus >= 0, w->cpus * 100);
    printf("  %10s", memory);
    print_number("%.0f %%", 5, l->gpu >= 0, l->gpu);
    print_number("%.1f s", 9, l->beat_at > 0, l->at - l->beat_at);
    print_number("%.0f", 8, l->step >= 0, (double)l->step);
    print_number("%.3f s", 9, w->step_seconds > 0, w->step_seconds);
    printf("%s%s\n", w->mark[0] ? "  " : "", w->mark);
}

static void print_table(const table *t)
{
    int n = t->now.n + t->now.missing, width = 0; /* of hosts; 0 = one machine */
    for (int i = 0; t->now.nnodes > 1 && i < t->now.nnodes; i++)
        if ((int)strlen(t->now.hosts[i]) > width) width = (int)strlen(t->now.hosts[i]);
    if (width > 0 && width < 4) width = 4;
    printf("%s: %s, %d rank%s", t->run.name, t->run.status, n, n == 1 ? "" : "s");
    if (t->now.missing > 0) printf(", %d of them on machines that say nothing", t->now.missing);
    printf("\n%4s  ", "rank");
    if (width > 0) printf("%-*s  ", width, "host");
    printf("%8s  %5s  %6s  %10s  %5s  %9s  %8s  %9s\n", "process", "state", "CPU", "memory", "GPU",
           "heartbeat", "step", "step time");
    for (int r = 0; r < t->now.n; r++) print_row(t, &t->rows[r], width);
}

/* The look before, unless there is one, and the one now. */
static ls_status look_twice(table *t)
{
    ls_cli_looks_free(&t->before);
    t->before = t->now;
    t->now = (ls_cli_looks) { 0 };
    if (t->before.n == 0) LS_TRY(ls_cli_look(&t->run, t->gpus, &t->before));
    ls__sleep_ms(MOMENT_MS);
    LS_TRY(ls_cli_look(&t->run, t->gpus, &t->now));
    return make_rows(t);
}

/* One table; *live: whether the run goes on. */
static ls_status show(table *t, const char *runs_dir, const char *name, bool json, bool redraw,
                      bool *live)
{
    ls__run_state_free(&t->run);
    LS_TRY(ls_cli_run_state(runs_dir, name, &t->run));
    *live = t->run.live;
    if (!*live)
        return ls_fail(LS_ERR_CONFIG, "run \"%s\" is not running (%s)", t->run.name, t->run.status);
    ls_status status = look_twice(t);
    if (status != LS_OK) {
        ls__run_state state;
        *live = ls__run_state_read(runs_dir, name, &state) == LS_OK && state.live;
        ls__run_state_free(&state);
        return status;
    }
    if (redraw) fputs("\033[H\033[J", stdout);
    if (json) return ls_cli_print_json(table_json(t));
    print_table(t);
    return ls_cli_flush();
}

static ls_status top(const char *runs_dir, const char *name, bool json, bool once)
{
    bool redraw = !json && !once && isatty(STDOUT_FILENO), live = true, shown = false;
    table t = { .gpus = ls__alloc(1, sizeof *t.gpus) };
    ls_status status = t.gpus ? LS_OK : LS_ERR_MEMORY;
    do {
        if (status == LS_OK) status = show(&t, runs_dir, name, json, redraw, &live);
        if (status != LS_OK && shown && !live) status = LS_OK; /* it has ended while we looked */
        shown = true;
    } while (status == LS_OK && redraw && live);
    ls_cli_looks_free(&t.before);
    ls_cli_looks_free(&t.now);
    ls__run_state_free(&t.run);
    ls__free(t.rows);
    ls__free(t.gpus);
    return status;
}

int ls_cli_top(int argc, char **argv)
{
    static const char *const only[] = { "runs-dir", "log-level", "json", "help", "version", NULL };
    bool once = false;
    const ls_flag flags[] = {
        { "once", 'b', &once, "one table, also on a terminal" },
        { 0 },
    };
    const ls_world_options program = {
        .summary = "Shows what each rank of a run is doing: state, CPUs, memory, GPU, heartbeat, "
                   "step. On a terminal again and again.",
        .arguments = "RUN",
        .flags = flags,
    };
    const char *runs_dir = "runs";
    ls__options *o = ls_cli_options(&argc, &argv, &program, only);
    ls__options_string(o, "runs-dir", &runs_dir);
    ls_status status = argc == 2 ? top(runs_dir, argv[1], ls__options_wants(o, "json"), once)
                                 : ls_fail(LS_ERR_CONFIG, "which run? lockstep top RUN");
    return ls_cli_end(o, status);
}
