/* torchrun's variables, which shell scripts and other launchers set, too. LOCAL_WORLD_SIZE is
 * optional: without it all ranks are on one machine. */
#include "world/environment_sets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum { RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, NVARIABLES };
static const char *const names[NVARIABLES] = { "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR",
                                               "MASTER_PORT" };

static void append(char *list, size_t limit, const char *format, const char *name,
                   const char *value)
{
    size_t used = strlen(list);
    snprintf(list + used, limit - used, format, used > 0 ? ", " : "", name, value);
}

static void report_incomplete(const char *const values[NVARIABLES])
{
    char there[400] = "", missing[200] = "";
    for (int i = 0; i < NVARIABLES; i++) {
        if (values[i])
            append(there, sizeof there, "%s%s=%.60s", names[i], values[i]);
        else
            append(missing, sizeof missing, "%s%s%s", names[i], "");
    }
    ls__log(LS__LOG_INFO, "ignored from the environment: %s; not set: %s", there, missing);
}

static ls_status read_node(ls__place *p, int *node)
{
    *node = 0;
    if (ls__variable_get("GROUP_WORLD_SIZE"))
        LS_TRY(ls__variable_number("GROUP_WORLD_SIZE", 1, p->size, &p->nodes));
    if (!ls__variable_get("GROUP_RANK")) return LS_OK;
    LS_TRY(ls__variable_number("GROUP_RANK", 0, LS__RANKS_MAX, node));
    if (p->nodes > 0 && *node >= p->nodes)
        return ls_fail(LS_ERR_CONFIG,
                       "the environment contradicts itself: GROUP_RANK=%d must be below "
                       "GROUP_WORLD_SIZE=%d",
                       *node, p->nodes);
    return LS_OK;
}

static ls_status read_place(const char *const values[NVARIABLES], ls__place *p)
{
    int port = 0, node;
    LS_TRY(ls__variable_number("WORLD_SIZE", 1, LS__RANKS_MAX, &p->size));
    LS_TRY(ls__variable_number("RANK", 0, INT_MAX, &p->rank));
    LS_TRY(ls__variable_number("LOCAL_RANK", 0, INT_MAX, &p->local_rank));
    LS_TRY(ls__variable_number("MASTER_PORT", 0, 65535, &port));
    p->local_size = p->size;
    bool told = ls__variable_get("LOCAL_WORLD_SIZE") != NULL;
    if (told) LS_TRY(ls__variable_number("LOCAL_WORLD_SIZE", 1, INT_MAX, &p->local_size));
    if (!told && p->local_rank < p->size && p->rank < p->size) {
        /* as ever: on one machine ranks may be numbered as one likes */
    } else {
        LS_TRY(ls__place_check(
            p, &(ls__place_names) { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" }));
    }
    LS_TRY(read_node(p, &node));
    const char *run_id = ls__variable_get("TORCHELASTIC_RUN_ID");
    if (ls__variable_get("TORCHELASTIC_RESTART_COUNT"))
        LS_TRY(ls__variable_number("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, &p->restarts));
    /* The address may be written in another way on each machine. */
    snprintf(p->job, sizeof p->job, "%d %.80s %d", port, run_id ? run_id : "-", p->restarts);
    snprintf(p->meeting, sizeof p->meeting, "%.80s %s", values[MASTER_ADDR], p->job);
    LS_TRY(ls__place_master(p));
    if (p->found != LS__FOUND_HERE) {
        size_t used = strlen(p->meeting);
        snprintf(p->meeting + used, sizeof p->meeting - used, " node %d", node);
    }
    const char *agent = ls__variable_get("TORCHELASTIC_USE_AGENT_STORE");
    if (p->found == LS__FOUND_AT_ADDRESS && agent && strcmp(agent, "True") == 0)
        p->found = LS__FOUND_AT_AGENT;
    p->size_name = "WORLD_SIZE";
    p->local_size_name = told ? "LOCAL_WORLD_SIZE" : "WORLD_SIZE";
    p->world_of_one = p->size == 1;
    p->by = p->world_of_one ? LS__STARTED_ALONE : LS__STARTED_BY_OTHERS;
    return LS_OK;
}

ls_status ls__environment_torch(bool explained, ls__place *out)
{
    const char *values[NVARIABLES];
    int nset = 0;
    for (int i = 0; i < NVARIABLES; i++) {
        values[i] = ls__variable_get(names[i]);
        nset += values[i] != NULL;
    }
    if (nset == NVARIABLES) return read_place(values, out);
    if (nset > 0 && !explained) report_incomplete(values);
    return LS_OK;
}
