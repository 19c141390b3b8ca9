/* --dry-run: the whole plan, for people and as lockstep.launch/1. Nothing is started and no port is
 * taken, so a port that would be chosen is shown as 0. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "launch/launcher.h"
#include "launch/node_names.h"

static void rank_cpus(const ls__launcher_plan *plan, int rank, char out[LS__CPU_SET_TEXT])
{
    ls__cpu_set_text(&plan->places[rank].cpus, out);
}

/* "any", "0,1", "0,1 first" */
static void rank_memory(const ls__launcher_plan *plan, int rank, char out[LS__CPU_SET_TEXT])
{
    const ls__rank_place *place = &plan->places[rank];
    cpu_set_t nodes;
    CPU_ZERO(&nodes);
    for (int i = 0; i < 64; i++)
        if (place->memory_nodes >> i & 1) CPU_SET(i, &nodes);
    snprintf(out, LS__CPU_SET_TEXT, "any");
    if (!place->memory_nodes) return;
    ls__cpu_set_text(&nodes, out);
    if (!place->memory_bound) strncat(out, " first", LS__CPU_SET_TEXT - 1 - strlen(out));
}

/* Where rank 0 listens, as far as it is known. */
static const char *address_of(const ls__launcher_plan *plan)
{
    return plan->nodes.role == LS__NODES_NONE ? plan->master_addr
           : plan->nodes.host[0]              ? plan->nodes.host
                                              : "(the first node)";
}

static const char *shown_text(int streams)
{
    static const char *const texts[] = { "nothing", "stdout", "stderr", "stdout and stderr" };
    return texts[streams & 3];
}

static ls_status variables_of(const ls__launcher_plan *plan, int rank, ls__rank_variables *out)
{
    ls__launcher_start start = { .port = plan->master_port };
    return ls__rank_variables_make(plan, &start, rank, out);
}

/* Variables whose value differs between the first ranks are shown for each of them. */
static bool differs(const ls__rank_variables *a, const ls__rank_variables *b, int i)
{
    return i < a->nset && i < b->nset && strcmp(a->set[i], b->set[i]) != 0;
}

static void print_variables(const ls__launcher_plan *plan, const ls__rank_variables *first,
                            const ls__rank_variables *second)
{
    puts("\nvariables of every rank");
    for (int i = 0; i < first->nset; i++)
        if (!second || !differs(first, second, i)) printf("  %s\n", first->set[i]);
    if (second) {
        puts("variables of rank 0, and so on");
        for (int i = 0; i < first->nset; i++)
            if (differs(first, second, i)) printf("  %s\n", first->set[i]);
    }
    if (plan->own_threads) puts("OMP_NUM_THREADS stays as it is set");
    bool any = false;
    for (char **entry = environ; *entry; entry++) {
        if (!ls__launcher_scrubs(*entry)) continue;
        printf("%s%.*s", any ? ", " : "taken out: ", (int)strcspn(*entry, "="), *entry);
        any = true;
    }
    if (any) puts("");
}

/* Of several machines what is known before they meet; their ranks are taken to be as many as here. */
static void print_nodes(const ls__launcher_plan *plan)
{
    const ls__nodes_plan *nodes = &plan->nodes;
    static const char *const roles[] = { "", "the first", "another" };
    if (nodes->role == LS__NODES_NONE) {
        printf("\nhost     %s (1 node)\nranks    %d: %s\n", plan->host, plan->size,
               plan->devices.text);
        return;
    }
    printf("\nhost     %s: %s of %d nodes (%s)\n", plan->host, roles[nodes->role],
           plan->place.launchers, nodes->found);
    if (nodes->role == LS__NODES_FIRST && nodes->port == 0)
        printf("meets    at a free port, %s\n",
               nodes->made ? "told in the line for the others" : "told to the agents");
    else
        printf("meets    at %s:%d, within %g s\n", nodes->host[0] ? nodes->host : plan->host,
               nodes->port, nodes->timeout);
    printf("secret   %s\n", nodes->made         ? "made when the job starts"
                            : nodes->secret[0]  ? "known to all nodes"
                            : nodes->pattern[0] ? "none: addresses of the job's nodes are let in"
                                                : "none: addresses of near networks are let in");
    for (int i = 0; nodes->hosts && i < nodes->hosts->count; i++) {
        const ls__host *host = &nodes->hosts->hosts[i];
        if (host->slots > 0)
            printf("node %-3d %s, %d ranks\n", i, host->name, host->slots);
        else
            printf("node %-3d %s, a rank per device\n", i, host->name);
    }
    printf("ranks    %d here: %s; of %d if all nodes are like this one\n", plan->size,
           plan->devices.text, plan->place.world_size);
}

ls_status ls__launcher_show(const ls__launcher_plan *plan)
{
    char cpus[LS__CPU_SET_TEXT], memory[LS__CPU_SET_TEXT];
    ls__rank_variables first = { 0 }, second = { 0 };
    ls_status status = plan->size > 0 ? variables_of(plan, 0, &first) : LS_OK;
    if (status == LS_OK && plan->size > 1) status = variables_of(plan, 1, &second);
    if (status == LS_OK) {
        printf("program  %s\nwords   ", plan->path);
        for (char **word = plan->argv; *word; word++) printf(" %s", *word);
        print_nodes(plan);
        printf("port     %s:%d%s\n", address_of(plan), plan->master_port,
               plan->master_port ? "" : " (a free one, held from the start)");
        printf("logs     %s\nrestarts %d\n\n",
               plan->no_logs      ? "none"
               : plan->log_dir[0] ? plan->log_dir
                                  : "in the run's folder",
               plan->max_restarts);
        printf("%4s  %-16s  %-16s  %s\n", "rank",
               plan->places[0].bound ? "bound to CPUs" : "on CPUs", "memory of nodes", "shown");
        for (int r = 0; r < plan->size; r++) {
            rank_cpus(plan, r, cpus);
            rank_memory(plan, r, memory);
            printf("%4d  %-16s  %-16s  %s\n", plan->place.first_rank + r, cpus, memory,
                   shown_text(plan->shown[r]));
        }
        if (plan->size > 0) print_variables(plan, &first, plan->size > 1 ? &second : NULL);
    }
    ls__rank_variables_free(&first);
    ls__rank_variables_free(&second);
    return status;
}

/* --- JSON --- */

static json_t *rank_json(const ls__launcher_plan *plan, int rank)
{
    ls__rank_variables v;
    char cpus[LS__CPU_SET_TEXT], memory[LS__CPU_SET_TEXT];
    if (variables_of(plan, rank, &v) != LS_OK) return NULL;
    json_t *set = json_object();
    for (int i = 0; i < v.nset; i++) {
        size_t length = strcspn(v.set[i], "=");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, v.set[i]);
        json_object_set_new(set, name, json_string(v.set[i] + length + 1));
    }
    ls__rank_variables_free(&v);
    rank_cpus(plan, rank, cpus);
    rank_memory(plan, rank, memory);
    return json_pack("{s:i,s:s,s:i,s:s,s:b,s:s,s:b,s:b,s:o}", "rank", plan->place.first_rank + rank,
                     "host", plan->host, "local_rank", plan->place.local_rank + rank, "cpus", cpus,
                     "bound", (int)plan->places[rank].bound, "memory_nodes", memory, "shows_stdout",
                     (plan->shown[rank] & LS__SHOW_STDOUT) != 0, "shows_stderr",
                     (plan->shown[rank] & LS__SHOW_STDERR) != 0, "variables", set);
}

json_t *ls__launcher_json(const ls__launcher_plan *plan)
{
    json_t *words = json_array(), *ranks = json_array(), *removed = json_array();
    bool ok = true;
    for (char **word = plan->argv; *word; word++)
        ok = json_array_append_new(words, json_string(*word)) == 0 && ok;
    for (int r = 0; r < plan->size; r++)
        ok = json_array_append_new(ranks, rank_json(plan, r)) == 0 && ok;
    for (char **entry = environ; *entry; entry++)
        if (ls__launcher_scrubs(*entry))
            json_array_append_new(removed, json_stringn(*entry, strcspn(*entry, "=")));
    json_t *document = json_pack(
        "{s:s,s:s,s:o,s:i,s:i,s:s,s:i,s:i,s:o,s:o}", "schema", "lockstep.launch/1", "program",
        plan->path, "argv", words, "nodes", plan->place.nodes, "world_size", plan->place.world_size,
        "master_addr", address_of(plan), "master_port", plan->master_port, "max_restarts",
        plan->max_restarts, "ranks", ranks, "removed_variables", removed);
    if (ok) return document;
    json_decref(document);
    return NULL;
}
