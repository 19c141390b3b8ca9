/* What lockstep top shows of several machines. Somebody looks: the first launcher finds a fresh file in
 * the run's folder and asks the others, over the connections that they have; each looks at its ranks
 * once and answers, and what has come is written beside that file. So it works without a folder that
 * all share, and costs nothing while nobody looks. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_nodes_parts.h"
#include "launch/rank_look.h"

static const double ask_seconds = 0.5;
static const double look_seconds = 5.0; /* so long after somebody has looked */

/* The ranks of this launcher; NULL: none. */
static json_t *own_figures(ls__launcher_job *j)
{
    int n = j->plan->size;
    ls__gpus *gpus = ls__alloc(1, sizeof *gpus);
    ls__rank_look *looks = ls__alloc((size_t)n + 1, sizeof *looks);
    json_t *document = NULL;
    if (gpus && looks && n > 0) {
        ls__gpus_discover(NULL, gpus);
        for (int r = 0; r < n; r++) {
            const ls__child *child = &j->crew.children[r];
            looks[r].rank = ls__job_rank(j, r);
            looks[r].pid = child->ended ? 0 : (int)child->pid;
        }
        ls__rank_look_at(looks, n, gpus);
        for (int r = 0; r < n; r++) ls__rank_look_beat(&looks[r], j->folder, r);
        document = ls__rank_looks_json(j->plan->host, looks, n);
    }
    ls__free(looks);
    ls__free(gpus);
    return document;
}

/* --- another launcher --- */

void ls__other_tell_figures(ls__launcher_job *j)
{
    json_t *document = own_figures(j);
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    size_t nbytes = text ? strlen(text) : 0;
    if (text && nbytes <= LS__NODE_LINE_MAX)
        ls__spoke_send(j->nodes->spoke, &(ls__node_frame) { .type = LS__NODE_FIGURES,
                                                            .texts = { { text, nbytes } } });
    free(text);
    json_decref(document);
}

/* --- the first one --- */

void ls__first_take_figures(ls__launcher_job *j, int launcher, const ls__node_frame *frame)
{
    ls__remote *r = &j->nodes->remotes[launcher];
    json_t *document = json_loadb(frame->texts[0].data, frame->texts[0].nbytes, 0, NULL);
    if (!json_is_object(document)) {
        json_decref(document);
        return;
    }
    /* Its name is as it has joined. */
    json_object_set_new(document, "host",
                        json_string(ls__hub_join_of(j->nodes->hub, launcher)->host));
    json_decref(r->figures);
    r->figures = document;
}

static void write_figures(ls__launcher_job *j, const char *folder)
{
    ls__nodes_job *n = j->nodes;
    json_t *launchers = json_array();
    for (int i = 0; launchers && i < ls__hub_launchers(n->hub); i++) {
        bool own = j->plan->size > 0 && i == j->plan->nodes.node_rank;
        json_t *figures = own ? own_figures(j) : json_incref(n->remotes[i].figures);
        json_array_append_new(launchers, figures ? figures : json_null());
    }
    if (ls__figures_write(folder, launchers) != LS_OK)
        ls__log(LS__LOG_DEBUG, "%s", ls_error_text());
}

static bool is_watched(ls__nodes_job *n, const char *folder, double now)
{
    int64_t asked = ls__figures_asked(folder);
    if (asked != n->looked_ns) n->looked_until = now + look_seconds;
    n->looked_ns = asked;
    return asked != 0 && now < n->looked_until;
}

void ls__first_check_figures(ls__launcher_job *j)
{
    ls__nodes_job *n = j->nodes;
    char folder[LS_PATH_MAX];
    double now = ls__now();
    if (!n->started || now < n->figures_at || !j->plan->name[0]) return;
    n->figures_at = now + ask_seconds;
    if (ls__path_join(folder, j->plan->runs_dir, j->plan->name) != LS_OK) return;
    if (!is_watched(n, folder, now)) return;
    write_figures(j, folder); /* what came since they were asked */
    ls__hub_broadcast(n->hub, &(ls__node_frame) { .type = LS__NODE_LOOK });
}

double ls__first_figures_due(const ls__nodes_job *n)
{
    return n->started && ls__now() < n->looked_until ? n->figures_at : -1;
}

void ls__first_free_figures(ls__nodes_job *n)
{
    for (int i = 0; n->remotes && i < ls__hub_launchers(n->hub); i++)
        json_decref(n->remotes[i].figures);
}
