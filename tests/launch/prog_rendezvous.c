/* How fast launchers meet: a first one in this process, and so many others in a child, each with its own
 * connection, ranks and secret, as on machines of their own. Prints one line of JSON: seconds until
 * every one has its place, seconds from one's failure to everybody's knowing, memory of both
 * processes. prog_rendezvous [NODES [RANKS_PER_NODE]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/hub.h"
#include "launch/spoke.h"

enum { NODES_MAX = 4096 };

static int nnodes = 1000, nranks = 10;
static const char secret[] = "of this measurement";

/* --- the others --- */

static ls__spoke *spokes[NODES_MAX];
static int nplaced, nknowing;

static void on_message(void *user, const ls__node_frame *frame)
{
    (void)user;
    if (frame->type == LS__NODE_PLACE) nplaced++;
    if (frame->type == LS__NODE_VERDICT) nknowing++;
}

static void serve_spokes(int epoll_fd, const int *count, int until)
{
    double look = 0;
    while (*count < until) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll_fd, events, 256, 10);
        for (int i = 0; i < n; i++) ls__spoke_serve(spokes[events[i].data.u32]);
        if (ls__now() < look) continue;
        look = ls__now() + 0.05;
        for (int i = 0; i < nnodes; i++)
            if (ls__spoke_due(spokes[i]) <= look - 0.05) ls__spoke_serve(spokes[i]);
    }
}

static long peak_kb(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return usage.ru_maxrss;
}

static int run_spokes(int port, int report)
{
    int epoll_fd = epoll_create1(0);
    for (int i = 0; i < nnodes; i++) {
        ls__spoke_options options = { .host = "127.0.0.1",
                                      .port = port,
                                      .secret = secret,
                                      .message = on_message,
                                      .join = { .node_rank = -1, .size = nranks, .port = 4000 } };
        snprintf(options.join.host, sizeof options.join.host, "node%04d", i);
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
        if (ls__spoke_create(&options, &spokes[i]) != LS_OK) return 1;
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ls__spoke_fd(spokes[i]), &event);
    }
    serve_spokes(epoll_fd, &nplaced, nnodes);
    double at[2] = { ls__now(), 0 };
    ls__end end = { .kind = LS__END_SIGNAL, .rank = nranks * nnodes / 2, .signal = 11 };
    ls__node_frame frame;
    ls__node_end_frame(LS__NODE_FAILED, &end, "node", 0, &frame);
    double failed = ls__now();
    ls__spoke_send(spokes[nnodes / 2], &frame);
    serve_spokes(epoll_fd, &nknowing, nnodes);
    at[1] = ls__now() - failed;
    if (write(report, at, sizeof at) != sizeof at) return 1;
    for (int i = 0; i < nnodes; i++) ls__spoke_destroy(spokes[i]);
    return 0;
}

/* --- the first one --- */

static ls__hub *hub;

static void take(void *user, int launcher, const ls__node_frame *frame)
{
    (void)user;
    (void)launcher;
    if (frame->type != LS__NODE_FAILED) return;
    ls__end end = { .kind = LS__END_SIGNAL, .signal = 11 };
    ls__node_frame verdict;
    ls__node_end_frame(LS__NODE_VERDICT, &end, "node", 0, &verdict);
    ls__hub_broadcast(hub, &verdict);
}

static void serve_hub(pid_t child)
{
    bool started = false;
    int epoll_fd = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ls__hub_fd(hub), &event);
    while (waitpid(child, NULL, WNOHANG) == 0) {
        epoll_wait(epoll_fd, &event, 1, 20);
        ls__hub_serve(hub);
        if (started || ls__hub_here(hub) < ls__hub_launchers(hub)) continue;
        ls__node_place common = { .run_id = "measured", .role = "default" }, own;
        started = true;
        if (ls__hub_start(hub, &common, &own) != LS_OK) exit(1);
    }
    close(epoll_fd);
}

int main(int argc, char **argv)
{
    int report[2];
    double at[2];
    if (argc > 1) nnodes = atoi(argv[1]);
    if (argc > 2) nranks = atoi(argv[2]);
    if (nnodes < 1 || nnodes > NODES_MAX || nranks < 1) return 2;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    ls__log_set_level(LS__LOG_ERROR);
    ls__hub_options options = {
        .launchers = nnodes, .secret = secret, .loopback = true, .message = take
    };
    if (pipe(report) != 0 || ls__hub_create(&options, &hub) != LS_OK) return 1;
    double begin = ls__now();
    pid_t child = fork();
    if (child == 0) _exit(run_spokes(ls__hub_port(hub), report[1]));
    close(report[1]);
    serve_hub(child);
    if (read(report[0], at, sizeof at) != sizeof at) return 1;
    printf(
        "{\"nodes\": %d, \"ranks\": %d, \"rendezvous_seconds\": %.4f, \"failure_to_all_seconds\": "
        "%.4f, \"first_peak_mib\": %.1f, \"others_peak_mib\": %.1f}\n",
        nnodes, nnodes * nranks, at[0] - begin, at[1], (double)peak_kb(RUSAGE_SELF) / 1024,
        (double)peak_kb(RUSAGE_CHILDREN) / 1024);
    ls__hub_destroy(hub);
    return 0;
}
