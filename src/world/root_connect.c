/* How roots of several machines find rank 0's: at an address that all know, or at one that rank 0's
 * root leaves in torchrun's own store or with the process manager that started the ranks. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "world/agent_store.h"
#include "world/root_state.h"

enum { TRY_MS = 2000, ADDRESSES_MAX = 1024 };

/* A port of ours that the others are told; else it is theirs to name. */
static bool is_told(const ls__place *place)
{
    return place->found == LS__FOUND_AT_AGENT || ls__found_by_manager(place);
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

static double deadline_of(const ls__local_root *root)
{
    int ms = root->launch.timeout_ms;
    return ms < 0 ? ls__now() + 1e9 : ls__now() + ms * 1e-3;
}

/* The port may still be the end of the job before's, or a launcher's that is about to let it go. */
static ls_status open_port(ls__local_root *root, int *fd)
{
    const ls__place *place = &root->place;
    double deadline = deadline_of(root);
    for (;;) {
        root->port = is_told(place) ? 0 : place->port;
        const char *address = is_loopback(place->address) ? "127.0.0.1" : NULL;
        ls_status status = ls__listen_tcp(address, &root->port, fd);
        if (status != LS_ERR_PEER) return status;
        if (ls__now() > deadline)
            return ls_fail(LS_ERR_CONFIG, "%s; choose another one with MASTER_PORT",
                           ls_error_text());
        ls__sleep_ms(20);
    }
}

/* What goes through the process manager is made of the secret that was given, or made here. */
static ls_status settle_secret(ls__place *place)
{
    if (!place->secret[0]) return ls__secret_make(place->secret);
    char derived[LS__SECRET_TEXT];
    ls__secret_derive(place->secret, "process manager", derived);
    memcpy(place->secret, derived, sizeof derived);
    return LS_OK;
}

ls_status ls__root_listen(ls__local_root *root)
{
    ls__place *place = &root->place;
    if (gethostname(root->job.host, sizeof root->job.host - 1) != 0) root->job.host[0] = '?';
    root->last_look = ls__now();
    root->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (root->wake_fd < 0) return ls__fail_errno(LS_ERR_INTERNAL, "eventfd");
    if (place->found == LS__FOUND_NOWHERE)
        return ls_fail(LS_ERR_CONFIG,
                       "%d ranks, of which %d are on this machine: give all of them the address of "
                       "rank 0's, in the variables MASTER_ADDR and MASTER_PORT (mpirun -x "
                       "MASTER_ADDR=HOST -x MASTER_PORT=29500; MPICH: -genv)",
                       place->size, place->local_size);
    if (!ls__root_is_head(root)) return ls__server_relay(root->job.server);
    int fd;
    if (ls__found_by_manager(place)) LS_TRY(settle_secret(place));
    LS_TRY(open_port(root, &fd));
    if (!place->secret[0])
        ls__log(LS__LOG_INFO,
                "the job has no secret (LOCKSTEP_SECRET): port %d trusts whoever names "
                "it and a rank",
                root->port);
    return ls__server_listen(root->job.server, fd,
                             &(ls__greeting) { .job = place->job,
                                               .tcp = true,
                                               .secret = place->secret[0] ? place->secret : NULL,
                                               .root = place->rank,
                                               .nodes = true });
}

/* "port address address": where others may reach this machine. */
static void own_addresses(int port, char out[ADDRESSES_MAX])
{
    struct ifaddrs *all = NULL;
    int used = snprintf(out, ADDRESSES_MAX, "%d", port), found = 0;
    if (getifaddrs(&all) != 0) all = NULL;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        bool usable = i->ifa_addr && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK);
        if (usable && i->ifa_addr->sa_family == AF_INET) {
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, text,
                      sizeof text);
        } else if (usable && i->ifa_addr->sa_family == AF_INET6) {
            const struct in6_addr *a = &((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr;
            if (!IN6_IS_ADDR_LINKLOCAL(a)) inet_ntop(AF_INET6, a, text, sizeof text);
        }
        if (!text[0] || used + (int)strlen(text) + 2 > ADDRESSES_MAX) continue;
        used += snprintf(out + used, ADDRESSES_MAX - (size_t)used, " %s", text);
        found++;
    }
    freeifaddrs(all);
    if (!found) snprintf(out + used, ADDRESSES_MAX - (size_t)used, " 127.0.0.1");
}

static void agent_key(const ls__local_root *root, char out[300])
{
    snprintf(out, 300, "lockstep/%s", root->place.job);
}

static ls_status publish(ls__local_root *root)
{
    char key[300], value[ADDRESSES_MAX];
    agent_key(root, key);
    if (is_loopback(root->place.address)) /* so is every rank, and the port is open there alone */
        snprintf(value, sizeof value, "%d 127.0.0.1", root->port);
    else
        own_addresses(root->port, value);
    return ls__agent_set(root->place.address, root->place.port, key, value,
                         root->launch.timeout_ms);
}

static ls_status join_at(const ls__local_root *root, const char *host, int port, int timeout_ms,
                         ls__welcome *out)
{
    const ls__place *place = &root->place;
    char who[300];
    snprintf(who, sizeof who, "%d %s", (int)getpid(), root->job.host);
    ls__greeting greeting = { .job = place->job,
                              .tcp = true,
                              .secret = place->secret[0] ? place->secret : NULL,
                              .who = who };
    return ls__server_join(&(ls__address) { .host = host, .port = port }, place->rank, place->size,
                           &greeting, timeout_ms, out);
}

/* One of the addresses reaches it from here; which one is found by trying. */
static ls_status join_one_of(ls__local_root *root, const char *addresses, int port,
                             ls__welcome *out)
{
    double deadline = deadline_of(root);
    ls_status status = ls_fail(LS_ERR_DATA, "rank 0 has no address");
    do {
        char list[ADDRESSES_MAX], *rest, *word;
        snprintf(list, sizeof list, "%s", addresses);
        for (word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
            status = join_at(root, word, port, TRY_MS, out);
            if (status == LS_OK) snprintf(root->way, sizeof root->way, "%s", word);
            if (status != LS_ERR_TIMEOUT && status != LS_ERR_PEER) return status;
        }
    } while (ls__now() < deadline);
    return status;
}

static ls_status join_by_agent(ls__local_root *root, ls__welcome *out)
{
    char key[300], value[ADDRESSES_MAX];
    int port = 0, used = 0;
    agent_key(root, key);
    LS_TRY(ls__agent_get(root->place.address, root->place.port, key, root->launch.timeout_ms, value,
                         sizeof value));
    if (sscanf(value, "%d %n", &port, &used) != 1 || port < 1 || port > 65535)
        return ls_fail(LS_ERR_DATA, "torchrun's store has no address of rank 0");
    return join_one_of(root, value + used, port, out);
}

static ls_status join_by_manager(ls__local_root *root, const char *text, ls__welcome *out)
{
    ls__where where;
    LS_TRY(ls__where_read(text, &where));
    if (root->place.secret[0])
        LS_TRY(settle_secret(&root->place));
    else
        memcpy(root->place.secret, where.secret, sizeof where.secret);
    return join_one_of(root, where.addresses, where.port, out);
}

ls_status ls__local_root_where(const ls__local_root *root, char text[LS__WHERE_TEXT])
{
    char list[ADDRESSES_MAX];
    ls__where where = { .port = root->port };
    own_addresses(root->port, list);
    memcpy(where.secret, root->place.secret, sizeof where.secret - 1); /* 32 digits: settled */
    snprintf(where.addresses, sizeof where.addresses, "%s", strchr(list, ' ') + 1);
    ls__where_write(&where, text);
    return LS_OK;
}

const char *ls__local_root_address(const ls__local_root *root)
{
    return root->way;
}

/* Of the thread that owns the root; its own takes over the connection. */
ls_status ls__local_root_connect(ls__local_root *root, const char *where)
{
    const ls__place *place = &root->place;
    bool agent = place->found == LS__FOUND_AT_AGENT;
    ls__welcome welcome;
    ls_status status;
    if (!ls__root_several(root)) return LS_OK;
    if (ls__root_is_head(root)) return agent ? publish(root) : LS_OK;
    if (agent)
        status = join_by_agent(root, &welcome);
    else if (ls__found_by_manager(place))
        status = join_by_manager(root, where, &welcome);
    else
        status = join_at(root, place->address, place->port, root->launch.timeout_ms, &welcome);
    if (status != LS_OK && ls__found_by_manager(place))
        return ls_fail(status, "rank 0's machine: %s", ls_error_text());
    if (status != LS_OK)
        return ls_fail(status, "rank 0's machine (MASTER_ADDR %s port %d): %s", place->address,
                       place->port, ls_error_text());
    pthread_mutex_lock(&root->lock);
    root->uplink_fd = welcome.fd;
    pthread_mutex_unlock(&root->lock);
    uint64_t one = 1;
    if (write(root->wake_fd, &one, sizeof one) != sizeof one)
        return ls__fail_errno(LS_ERR_INTERNAL, "eventfd");
    return LS_OK;
}
