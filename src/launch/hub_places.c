/* Numbers: launchers are in the order of their ranks; those of one machine are one node, whose ranks need
 * not follow each other (srun may deal tasks around the machines). One pass with the nodes found so
 * far looked up by name: nodes are few where launchers share one, and none share one elsewhere. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "launch/hub_parts.h"

/* An earlier launcher of the same machine; -1 = none. */
static int earlier(const ls__hub *hub, int launcher)
{
    const ls__slot *s = &hub->slots[launcher];
    if (!s->join.machine[0]) return -1;
    for (int i = launcher - 1; i >= 0; i--)
        if (strcmp(hub->slots[i].join.machine, s->join.machine) == 0) return i;
    return -1;
}

ls_status ls__hub_number(ls__hub *hub)
{
    int n = hub->options.launchers;
    int *sizes = ls__alloc((size_t)n, sizeof *sizes); /* (nodes) */
    if (!sizes) return LS_ERR_MEMORY;
    hub->nodes = hub->world_size = 0;
    for (int i = 0; i < n; i++) {
        ls__slot *s = &hub->slots[i];
        int before = earlier(hub, i);
        s->node = before >= 0 ? hub->slots[before].node : hub->nodes++;
        s->first_rank = hub->world_size;
        s->local_rank = sizes[s->node];
        sizes[s->node] += s->join.size;
        hub->world_size += s->join.size;
    }
    for (int i = 0; i < n; i++) hub->slots[i].local_size = sizes[hub->slots[i].node];
    ls__free(sizes);
    if (hub->world_size <= LS__WORLD_MAX) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "%d ranks are more than %d", hub->world_size, LS__WORLD_MAX);
}

/* The first launcher's address as the hub itself sees it, or as another one sees the hub's. */
static void seen_address(const ls__hub *hub, char out[LS__NODE_NAME_MAX + 1])
{
    const ls__slot *first = &hub->slots[0];
    char text[LS__ADDRESS_TEXT] = "127.0.0.1";
    if (first->visitor) {
        ls__address_text((const struct sockaddr *)&first->visitor->peer, text);
    } else {
        for (int i = 1; i < hub->options.launchers; i++) {
            if (!hub->slots[i].visitor) continue;
            ls__address_text((const struct sockaddr *)&hub->slots[i].visitor->local, text);
            break;
        }
    }
    snprintf(out, LS__NODE_NAME_MAX + 1, "%s", text);
}

static void fill(const ls__hub *hub, int launcher, ls__node_place *p)
{
    const ls__slot *s = &hub->slots[launcher];
    p->launcher = launcher;
    p->node = s->node;
    p->first_rank = s->first_rank;
    p->local_rank = s->local_rank;
    p->local_size = s->local_size;
}

ls_status ls__hub_start(ls__hub *hub, const ls__node_place *common, ls__node_place *own)
{
    ls__node_frame frame;
    LS_ASSERT(hub->here == hub->options.launchers);
    LS_TRY(ls__hub_number(hub));
    *own = *common;
    own->launchers = hub->options.launchers;
    own->nodes = hub->nodes;
    own->world_size = hub->world_size;
    own->port = hub->slots[0].join.port;
    if (!own->master_addr[0] && hub->slots[0].join.address[0])
        snprintf(own->master_addr, sizeof own->master_addr, "%s", hub->slots[0].join.address);
    if (!own->master_addr[0]) seen_address(hub, own->master_addr);
    hub->started = hub->known = true;
    for (int i = 0; i < hub->options.launchers; i++) {
        ls__node_place place = *own;
        if (!hub->slots[i].visitor) continue;
        fill(hub, i, &place);
        ls__node_place_frame(&place, &frame);
        ls__node_link_send(&hub->slots[i].visitor->link, &frame);
    }
    if (hub->own >= 0) fill(hub, hub->own, own);
    return LS_OK;
}

int ls__hub_launcher_of(const ls__hub *hub, int rank)
{
    int low = 0, high = hub->options.launchers - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (hub->slots[middle].first_rank <= rank)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int ls__hub_first_rank(const ls__hub *hub, int launcher)
{
    return hub->slots[launcher].first_rank;
}

int ls__hub_local_rank(const ls__hub *hub, int launcher)
{
    return hub->slots[launcher].local_rank;
}

void ls__hub_missing_text(const ls__hub *hub, char *out, size_t size)
{
    bool one = ls__hub_launchers(hub) - ls__hub_here(hub) == 1;
    size_t used = (size_t)snprintf(out, size, "node%s", one ? "" : "s"), begin = used;
    for (int i = 0; i < hub->options.launchers && used + 24 < size; i++) {
        if (hub->slots[i].here) continue;
        used += (size_t)snprintf(out + used, size - used, "%s %d", used > begin ? "," : "", i);
    }
    if (used + 24 >= size) snprintf(out + used, size - used, ", ...");
}
