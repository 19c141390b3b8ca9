/* From flags to this launcher's part among several. torchrun's static rendezvous is taken as it is: the
 * same command on each node, with --node-rank or without where the first node's address tells which it
 * is. A secret that nobody gave is made here and told in the line that the other nodes need. */
#include "launch/nodes_plan.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mac.h"
#include "base/memory.h"
#include "launch/agents.h"
#include "launch/first_node.h"

enum { TORCHRUN_PORT = 29500 };

static const char ssh[] = "ssh -o BatchMode=yes -o ConnectTimeout=15";

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static ls_status take_secret(ls__nodes_plan *nodes)
{
    const char *secret = getenv("LOCKSTEP_SECRET");
    if (!secret || !secret[0]) return LS_OK;
    if (strlen(secret) > 255) return ls_fail(LS_ERR_CONFIG, "LOCKSTEP_SECRET: at most 255 bytes");
    snprintf(nodes->secret, sizeof nodes->secret, "%s", secret);
    return LS_OK;
}

static ls_status make_secret(ls__nodes_plan *nodes)
{
    char text[LS__SECRET_TEXT];
    if (nodes->secret[0]) return LS_OK;
    LS_TRY(ls__secret_make(text));
    snprintf(nodes->secret, sizeof nodes->secret, "%s", text);
    nodes->made = nodes->own_secret = true;
    return LS_OK;
}

/* --- --join --- */

static ls_status plan_join(const ls__launcher_flags *flags, ls__nodes_plan *nodes)
{
    if (flags->nnodes || flags->master_addr || flags->hosts || flags->hostfile)
        return ls_fail(LS_ERR_CONFIG, "--join says where the first node is: leave --nnodes, "
                                      "--master-addr, --hosts and --hostfile out");
    LS_TRY(ls__join_parse(flags->join, nodes->host, &nodes->port, nodes->secret));
    nodes->by_agent = strcmp(nodes->secret, "-") == 0;
    if (nodes->by_agent) LS_TRY(ls__agents_read_input(nodes->secret));
    nodes->role = LS__NODES_OTHER;
    nodes->node_rank = -1;
    snprintf(nodes->found, sizeof nodes->found, "--join");
    if (!flags->node_rank) return LS_OK;
    return ls__launcher_number("node-rank", flags->node_rank, 0, LS__NODES_MAX - 1,
                               &nodes->node_rank);
}

/* --- --hosts --- */

static ls_status read_hosts(const ls__launcher_flags *flags, ls__hosts *hosts)
{
    char *text = NULL;
    size_t nbytes = 0;
    if (flags->hosts && flags->hostfile)
        return ls_fail(LS_ERR_CONFIG, "--hosts and --hostfile: leave one out");
    if (flags->hosts) return ls__hosts_parse("--hosts", flags->hosts, hosts);
    LS_TRY(ls__file_read(flags->hostfile, LS__HOSTFILE_MAX, &text, &nbytes));
    ls_status status = ls__hostfile_parse(flags->hostfile, text, nbytes, hosts);
    ls__free(text);
    return status;
}

static ls_status plan_hosts(const ls__launcher_flags *flags, ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    ls__hosts *hosts = ls__alloc(1, sizeof *hosts);
    if (!hosts) return LS_ERR_MEMORY;
    nodes->hosts = hosts;
    if (flags->nnodes || flags->node_rank)
        return ls_fail(LS_ERR_CONFIG, "the hosts are listed: leave --nnodes and --node-rank out");
    LS_TRY(read_hosts(flags, hosts));
    nodes->role = LS__NODES_FIRST;
    nodes->launchers = hosts->count;
    /* The first host does its part here if it is this one; else this launcher only watches. */
    bool here =
        strcmp(hosts->hosts[0].name, plan->host) == 0 || ls__address_is_here(hosts->hosts[0].name);
    nodes->node_rank = here ? 0 : -1;
    snprintf(nodes->agent, sizeof nodes->agent, "%.1000s",
             flags->agent && flags->agent[0] ? flags->agent : ssh);
    snprintf(nodes->found, sizeof nodes->found, flags->hosts ? "--hosts" : "--hostfile");
    if (flags->master_addr) snprintf(nodes->host, sizeof nodes->host, "%.255s", flags->master_addr);
    if (flags->master_port)
        LS_TRY(ls__launcher_number("master-port", flags->master_port, 0, 65535, &nodes->port));
    LS_TRY(make_secret(nodes));
    nodes->made = false; /* agents bring it */
    return LS_OK;
}

/* --- --nnodes --- */

static ls_status plan_static(const ls__launcher_flags *flags, ls__nodes_plan *nodes)
{
    bool first = nodes->node_rank == 0;
    if (!ls__host_is_good(flags->master_addr, strlen(flags->master_addr)))
        return ls_fail(LS_ERR_CONFIG, "--master-addr %.64s: no name or address of a host",
                       flags->master_addr);
    snprintf(nodes->host, sizeof nodes->host, "%s", flags->master_addr);
    nodes->port = TORCHRUN_PORT;
    if (flags->master_port)
        LS_TRY(ls__launcher_number("master-port", flags->master_port, 1, 65535, &nodes->port));
    if (!flags->node_rank) {
        first = ls__address_is_here(nodes->host);
        nodes->node_rank = first ? 0 : -1;
    }
    nodes->role = first ? LS__NODES_FIRST : LS__NODES_OTHER;
    nodes->loopback = is_loopback(nodes->host) && first && !getenv("KUBERNETES_SERVICE_HOST");
    if (nodes->secret[0]) return LS_OK;
    nodes->near = true;
    ls__nodes_pattern(nodes->host, nodes);
    return LS_OK;
}

static ls_status plan_nnodes(const ls__launcher_flags *flags, ls__nodes_plan *nodes)
{
    nodes->node_rank = -1;
    if (flags->node_rank)
        LS_TRY(ls__launcher_number("node-rank", flags->node_rank, 0, nodes->launchers - 1,
                                   &nodes->node_rank));
    snprintf(nodes->found, sizeof nodes->found, "--nnodes %d", nodes->launchers);
    if (flags->master_addr && flags->master_addr[0]) return plan_static(flags, nodes);
    if (nodes->node_rank > 0)
        return ls_fail(LS_ERR_CONFIG,
                       "--node-rank %d: where is the first node? Use the line that it has printed "
                       "(--join HOST:PORT/SECRET), or --master-addr",
                       nodes->node_rank);
    nodes->role = LS__NODES_FIRST;
    nodes->node_rank = 0;
    if (flags->master_port)
        LS_TRY(ls__launcher_number("master-port", flags->master_port, 0, 65535, &nodes->port));
    return make_secret(nodes);
}

/* A number of nodes, or torchrun's range of one; *count 0 = not given. */
static ls_status read_nnodes(const ls__launcher_flags *flags, int *count)
{
    const char *text = flags->nnodes, *colon = text ? strchr(text, ':') : NULL;
    char low[16];
    *count = 0;
    if (!text) return LS_OK;
    if (!colon) return ls__launcher_number("nnodes", text, 1, LS__NODES_MAX, count);
    snprintf(low, sizeof low, "%.*s", (int)(colon - text < 15 ? colon - text : 15), text);
    if (strcmp(low, colon + 1) != 0)
        return ls_fail(LS_ERR_CONFIG,
                       "--nnodes %.64s: the number of processes does not change while a job runs; "
                       "give one number",
                       text);
    return ls__launcher_number("nnodes", low, 1, LS__NODES_MAX, count);
}

static ls_status check_one_node(const ls__launcher_flags *flags)
{
    int node = 0;
    if (flags->agent)
        return ls_fail(LS_ERR_CONFIG, "--agent starts launchers on --hosts or --hostfile; there "
                                      "are none");
    if (flags->node_rank)
        LS_TRY(ls__launcher_number("node-rank", flags->node_rank, 0, LS__NODES_MAX, &node));
    if (node == 0) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "--node-rank %d of one machine: --nnodes says how many there are",
                   node);
}

ls_status ls__nodes_plan_make(const ls__launcher_flags *flags, const ls__options *options,
                              ls__launcher_plan *plan)
{
    ls__nodes_plan *nodes = &plan->nodes;
    int count;
    nodes->local_launchers = 1;
    nodes->timeout = 300;
    ls__options_double(options, "timeout", &nodes->timeout);
    LS_TRY(take_secret(nodes));
    if (flags->join) return plan_join(flags, nodes);
    if (flags->hosts || flags->hostfile) return plan_hosts(flags, plan);
    LS_TRY(read_nnodes(flags, &count));
    nodes->launchers = count;
    if (count > 1 && flags->standalone)
        return ls_fail(LS_ERR_CONFIG, "--standalone is one machine, --nnodes %d are more", count);
    if (count > 1) return plan_nnodes(flags, nodes);
    LS_TRY(check_one_node(flags));
    return count == 1 || flags->standalone ? LS_OK : ls__nodes_from_environment(plan);
}

void ls__nodes_plan_free(ls__launcher_plan *plan)
{
    if (plan->nodes.before) ls__first_before_free(plan->nodes.before);
    ls__free(plan->nodes.before);
    plan->nodes.before = NULL;
    ls__hosts *hosts = (ls__hosts *)(uintptr_t)plan->nodes.hosts;
    if (!hosts) return;
    ls__hosts_free(hosts);
    ls__free(hosts);
    plan->nodes.hosts = NULL;
}

/* --- who is let in without a secret --- */

static bool is_name_of(const char *name, const struct sockaddr *peer)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    bool same = false;
    if (ls__address_find(name, NULL, &hints, &list) != 0) return false;
    for (const struct addrinfo *a = list; a && !same; a = a->ai_next)
        same = ls__address_equal(a->ai_addr, peer);
    freeaddrinfo(list);
    return same;
}

bool ls__nodes_names(const ls__nodes_plan *nodes, const struct sockaddr *peer)
{
    char name[LS__NODE_NAME_MAX + 17];
    if (!nodes->pattern[0]) return ls__address_is_near(peer);
    const char *hash = strchr(nodes->pattern, '#');
    for (int i = 1; i < nodes->launchers; i++) {
        snprintf(name, sizeof name, "%.*s%d%s", (int)(hash - nodes->pattern), nodes->pattern,
                 nodes->pattern_first + i - 1, hash + 1);
        if (is_name_of(name, peer)) return true;
    }
    return false;
}

void ls__nodes_pattern(const char *first, ls__nodes_plan *nodes)
{
    const char *master = strstr(first, "-master-0"), *node = strstr(first, "-node-0-0");
    if (!getenv("KUBERNETES_SERVICE_HOST")) return;
    if (master) { /* PyTorchJob: job-master-0, job-worker-0, job-worker-1, ... */
        snprintf(nodes->pattern, sizeof nodes->pattern, "%.*s-worker-#%s", (int)(master - first),
                 first, master + strlen("-master-0"));
        nodes->pattern_first = 0;
    } else if (node) { /* TrainJob: job-node-0-0.job, job-node-0-1.job, ... */
        snprintf(nodes->pattern, sizeof nodes->pattern, "%.*s-node-0-#%s", (int)(node - first),
                 first, node + strlen("-node-0-0"));
        nodes->pattern_first = 1;
    }
}

/* --- the line for the others --- */

void ls__nodes_tell_line_to_join(const ls__launcher_plan *plan, int port)
{
    const ls__nodes_plan *nodes = &plan->nodes;
    char address[LS__ADDRESS_TEXT];
    ls__text words = { 0 };
    if (!nodes->secret[0])
        ls__log(LS__LOG_WARN,
                "nodes are let in without a secret, by their address (%s): give all nodes the same "
                "LOCKSTEP_SECRET",
                nodes->pattern[0] ? nodes->pattern : "networks of this machine");
    if (!nodes->made) return;
    ls__address_guess(address);
    const char *name = nodes->host[0] ? nodes->host : nodes->loopback ? "127.0.0.1" : address;
    static const char *const first[] = { LS__FLAGS_OF_NODES, "name", "report", "events", NULL };
    ls__launcher_words_again(plan->words, first, &words);
    char *text = ls__text_take(&words);
    ls__log(LS__LOG_INFO,
            "1 of %d nodes is here; on each of the others: lockstep run --join %s%s%s:%d/%s %s",
            nodes->launchers, strchr(name, ':') ? "[" : "", name, strchr(name, ':') ? "]" : "",
            port, nodes->secret, text ? text : "PROGRAM ...");
    ls__free(text);
}
