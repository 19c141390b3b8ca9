/* Looks at the ranks of a run, whoever has started them: lockstep run says in launch.json which processes
 * they are, a training of ours in its board, and the launchers of several machines tell each other
 * while somebody looks. */
#include "cli/top_looks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

enum { RANKS_MAX = 1 << 20, PAUSE_MS = 50 };

static const double answer_seconds = 4; /* in which other machines should have answered */

static ls_status make_room(ls_cli_looks *out, int n, int nnodes)
{
    out->ranks = ls__alloc((size_t)n + 1, sizeof *out->ranks);
    out->hosts = ls__alloc((size_t)nnodes + 1, sizeof *out->hosts);
    return out->ranks && out->hosts ? LS_OK : LS_ERR_MEMORY;
}

void ls_cli_looks_free(ls_cli_looks *looks)
{
    ls__free(looks->ranks);
    ls__free(looks->hosts);
    *looks = (ls_cli_looks) { 0 };
}

/* --- lockstep run, on this machine --- */

static ls_status look_at_launched(const json_t *state, const ls__gpus *gpus, ls_cli_looks *out)
{
    const char *folder = json_string_value(json_object_get(state, "job_folder"));
    const char *host = json_string_value(json_object_get(state, "host"));
    const json_t *pids = json_object_get(state, "ranks");
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    if (host && here[0] && strcmp(host, here) != 0)
        return ls_fail(LS_ERR_CONFIG, "the run's ranks are on host %s; look there", host);
    int n = (int)json_array_size(pids);
    LS_TRY(make_room(out, n, 1));
    out->n = n;
    out->nnodes = 1;
    snprintf(out->hosts[0], sizeof out->hosts[0], "%s", here);
    for (int r = 0; r < n; r++) {
        out->ranks[r].rank = r;
        out->ranks[r].pid = (int)json_integer_value(json_array_get(pids, (size_t)r));
    }
    ls__rank_look_at(out->ranks, n, gpus);
    for (int r = 0; r < n; r++) ls__rank_look_beat(&out->ranks[r], folder ? folder : "", r);
    return LS_OK;
}

/* --- a training of ours, on this machine --- */

static ls_status look_at_board(const char *folder, const ls__gpus *gpus, ls_cli_looks *out)
{
    ls__board *board;
    LS_TRY(ls__board_find(folder, &board));
    int size = ls__board_size(board);
    ls_status status = make_room(out, size, 1);
    for (int r = 0; status == LS_OK && r < size; r++) {
        int pid = (int)ls__board_process(board, r);
        out->missing += pid == 0;
        if (pid != 0) out->ranks[out->n++] = (ls__rank_look) { .rank = r, .pid = pid };
    }
    if (status == LS_OK) {
        out->nnodes = 1;
        gethostname(out->hosts[0], sizeof out->hosts[0] - 1);
        ls__rank_look_at(out->ranks, out->n, gpus);
        for (int i = 0; i < out->n; i++) ls__rank_look_board(&out->ranks[i], board);
    }
    ls__board_destroy(board);
    return status;
}

/* --- lockstep run, on several machines --- */

static int by_rank(const void *a, const void *b)
{
    return ((const ls__rank_look *)a)->rank - ((const ls__rank_look *)b)->rank;
}

static ls_status read_figures(const json_t *document, int size, ls_cli_looks *out)
{
    const json_t *launchers = json_object_get(document, "launchers");
    LS_TRY(make_room(out, size, (int)json_array_size(launchers)));
    for (size_t i = 0; i < json_array_size(launchers); i++) {
        const json_t *launcher = json_array_get(launchers, i);
        const char *host = json_string_value(json_object_get(launcher, "host"));
        if (!host) continue;
        snprintf(out->hosts[out->nnodes], sizeof out->hosts[0], "%s", host);
        out->n += ls__rank_looks_read(launcher, out->nnodes, out->ranks + out->n, size - out->n);
        out->nnodes++;
    }
    out->missing = size - out->n;
    if (out->n > 0) qsort(out->ranks, (size_t)out->n, sizeof *out->ranks, by_rank);
    return LS_OK;
}

/* Asks, and waits until what the launchers tell is newer: of ranks that go on twice, since answers are
 * written with the next question. */
static ls_status look_at_machines(const ls__run_state *run, ls_cli_looks *out)
{
    double until = ls__now() + answer_seconds;
    int64_t asked;
    bool complete = false;
    LS_TRY(ls__figures_ask(run->folder));
    asked = ls__figures_asked(run->folder);
    while (!complete) {
        ls__sleep_ms(PAUSE_MS);
        json_t *document = ls__figures_read(run->folder);
        ls_cli_looks_free(out);
        ls_status status = document ? read_figures(document, run->world_size, out) : LS_OK;
        json_decref(document);
        LS_TRY(status);
        bool fresh = ls__figures_written(run->folder) >= asked;
        complete = fresh && out->n == run->world_size;
        if (complete || ls__now() < until) continue;
        if (fresh && out->n > 0) return LS_OK; /* a machine that does not answer */
        return ls_fail(LS_ERR_CONFIG,
                       "the first launcher (host %s) has not answered within %g s; does its run's "
                       "folder lie here?",
                       run->host, answer_seconds);
    }
    return LS_OK;
}

/* --- whichever it is --- */

ls_status ls_cli_look(const ls__run_state *run, ls__gpus *gpus, ls_cli_looks *out)
{
    *out = (ls_cli_looks) { 0 };
    json_t *state = run->launched ? ls__launch_state_read(run->folder) : NULL;
    int here = (int)json_array_size(json_object_get(state, "ranks"));
    ls_status status;
    bool several = state && run->world_size > here && run->world_size <= RANKS_MAX;
    if (!several) ls__gpus_discover(NULL, gpus);
    if (several)
        status = look_at_machines(run, out);
    else if (state)
        status = look_at_launched(state, gpus, out);
    else
        status = look_at_board(run->folder, gpus, out);
    json_decref(state);
    if (status != LS_OK) ls_cli_looks_free(out);
    return status;
}
