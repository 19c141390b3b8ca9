/* The local root's thread: the part of a supervisor that is possible without being the parent. It
 * cannot start, restart or kill ranks; it sees connections end, poisons the shared memory, counts
 * signals and writes the report. Expected: as many ranks as devices, all within some seconds. */
#include "world/local_root.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/root_state.h"

static const double victim_seconds = 0.3;

static void socket_name(const ls__place *place, char out[64])
{
    snprintf(out, 64, "lockstep-%u-%016llx", (unsigned)geteuid(),
             (unsigned long long)XXH3_64bits(place->meeting, strlen(place->meeting)));
}

static void write_report(ls__local_root *root)
{
    ls__job *job = &root->job;
    ls__report report = { .end = job->end,
                          .size = job->size,
                          .step = job->end.rank >= 0 ? ls__board_step(job->board, job->end.rank)
                                                     : ls__board_last_step(job->board),
                          .checkpoint = job->checkpoint,
                          .seconds = ls__now() - root->launch.started };
    if (job->end.host[0]) report.step = job->end.step_told;
    char where[LS_PATH_MAX], in_folder[LS_PATH_MAX];
    const char *paths[2] = { root->launch.report, "" };
    if (job->folder[0] && ls__path_join(in_folder, job->folder, "report.json") == LS_OK)
        paths[1] = in_folder;
    ls__report_write_both(&report, paths, where);
    if (report.end.kind != LS__END_FINISHED) ls__report_print(&report, where);
}

static void tell(ls__local_root *root, bool *what)
{
    pthread_mutex_lock(&root->lock);
    *what = true;
    pthread_cond_broadcast(&root->changed);
    pthread_mutex_unlock(&root->lock);
}

static void leave(ls__local_root *root, int rank)
{
    root->nleft += !root->job.ranks[rank].gone;
    root->job.ranks[rank].gone = true;
}

static void on_frame(void *user, int rank, const ls__frame *frame)
{
    ls__local_root *root = user;
    if (ls__root_pass_on(root, frame)) return;
    ls__job_frame(&root->job, rank, frame);
    if (frame->type == LS__FRAME_GOODBYE) leave(root, rank);
}

static void on_closed(void *user, int rank)
{
    ls__local_root *root = user;
    ls__job_rank *r = &root->job.ranks[rank];
    leave(root, rank);
    if (r->goodbye || r->failed) return;
    ls__end end = { .kind = LS__END_LOST,
                    .rank = rank,
                    .pid = r->pid,
                    .status = LS_ERR_PEER,
                    .joining = root->job.njoined < root->job.size };
    ls__job_fail(&root->job, &end);
}

static void on_joined(void *user, int rank, int pid)
{
    ls__local_root *root = user;
    root->job.ranks[rank].pid = pid;
    if (!ls__root_several(root)) return;
    ls__server_name_host(root->job.server, rank, root->job.host);
    ls__server_send_up(root->job.server, &(ls__frame) { .type = LS__FRAME_JOINED, .number = rank });
}

static void end_everybody(ls__local_root *root)
{
    int code = ls__report_exit_code(&root->job.end);
    ls__server_broadcast(root->job.server, &(ls__frame) { .type = LS__FRAME_END, .number = code });
}

/* Milliseconds until something is due. */
static int next_wait(const ls__local_root *root)
{
    const ls__job *job = &root->job;
    double at = ls__job_deadline(job), longest = ls__root_several(root) ? LS__BEAT_MS * 1e-3 : 3600;
    if (job->failing && !root->told) at = job->failed_at + victim_seconds;
    if (at < 0 && !ls__root_several(root)) return -1;
    double left = at < 0 ? longest : at - ls__now();
    return left <= 0 ? 0 : left > longest ? (int)(longest * 1000) : (int)(left * 1000) + 1;
}

/* A rank that lost a connection to another machine may be heard before the reason is. */
static bool is_known(const ls__local_root *root)
{
    const ls__job *job = &root->job;
    if (job->stop_now) return true;
    if (!job->failing) return false;
    return !ls__root_several(root) || !ls__job_end_is_victim(job) ||
           ls__now() >= job->failed_at + victim_seconds;
}

static void look_at_end(ls__local_root *root)
{
    ls__job *job = &root->job;
    if (root->told || !is_known(root)) return;
    root->told = true;
    write_report(root);
    tell(root, &root->reported);
    if (job->stop_now) end_everybody(root);
}

/* Until every rank of this machine has left, one way or the other, and other machines need it no more.
 */
static void *serve(void *user)
{
    ls__local_root *root = user;
    ls__job *job = &root->job;
    while (root->nleft < root->place.local_size || ls__root_nodes_pending(root)) {
        struct pollfd fds[2] = { { .fd = ls__server_fd(job->server), .events = POLLIN },
                                 { .fd = root->wake_fd, .events = POLLIN } };
        if (poll(fds, 2, next_wait(root)) < 0 && errno != EINTR) break;
        pthread_mutex_lock(&root->lock);
        if (root->complete) job->njoined = job->size;
        pthread_mutex_unlock(&root->lock);
        ls__server_serve(job->server);
        ls__job_tick(job);
        ls__root_nodes_round(root);
        look_at_end(root);
        /* Ranks that never came cannot leave: such a job is over when its root gives up. */
        const ls__job_rank *own = &job->ranks[root->place.rank];
        if (job->failing && root->told && job->njoined < job->size && (own->failed || own->gone))
            break;
    }
    ls__job_conclude(job);
    if (!root->told) write_report(root);
    pthread_mutex_lock(&root->lock);
    root->well = !job->failing && !job->stop_now;
    root->over = root->reported = true;
    pthread_cond_broadcast(&root->changed);
    pthread_mutex_unlock(&root->lock);
    return NULL;
}

static ls_status listen_at(const char *name, int *fd)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t n = strlen(name);
    memcpy(address.sun_path + 1, name, n); /* abstract: nothing in the file system */
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 && bind(*fd, (struct sockaddr *)&address, size) == 0 && listen(*fd, 128) == 0)
        return LS_OK;
    int error = errno;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    errno = error;
    if (error == EADDRINUSE) return LS_ERR_CONFIG;
    return ls__fail_errno(LS_ERR_INTERNAL, "cannot listen at %s", name);
}

/* The name is taken: by a twin of this rank, which will refuse us and say so, or by the end of the
 * job before, which will be gone in a moment. */
static ls_status challenge(const ls__place *place, const ls__launch *launch, const char *name)
{
    ls__welcome welcome;
    ls__greeting greeting = { .job = place->job, .nfds = 2 };
    ls_status status = ls__server_join(&(ls__address) { .name = name }, place->rank, place->size,
                                       &greeting, launch->timeout_ms, &welcome);
    if (status == LS_OK) { /* another local rank 0 with a rank of its own */
        close(welcome.fd);
        close(welcome.fds[0]);
        close(welcome.fds[1]);
        return ls_fail(LS_ERR_CONFIG,
                       "two processes have LOCAL_RANK=0; this one has RANK=%d: give each rank of "
                       "a machine its own LOCAL_RANK",
                       place->rank);
    }
    return status;
}

static ls_status bind_name(const ls__place *place, const ls__launch *launch, const char *name,
                           int *fd)
{
    for (;;) {
        ls_status status = listen_at(name, fd);
        if (status == LS_OK || status != LS_ERR_CONFIG) return status;
        status = challenge(place, launch, name);
        if (status != LS_ERR_PEER) return status;
    }
}

static ls_status start_root(ls__local_root *root, const ls__place *place, int listen_fd,
                            int *socket_fd)
{
    ls__server_hooks hooks = {
        .user = root,
        .frame = on_frame,
        .closed = on_closed,
        .joined = on_joined,
        .node_joined = ls__root_node_joined,
        .node_frame = ls__root_node_frame,
        .node_closed = ls__root_node_closed,
    };
    /* Signals are counted where the store is. */
    double grace = ls__root_several(root) && !ls__root_is_head(root) ? -1 : root->launch.grace;
    ls_status status = ls__job_begin(&root->job, place->size, place->local_size, grace, &hooks);
    if (status != LS_OK) {
        close(listen_fd);
        return status;
    }
    ls__greeting greeting = { .job = root->place.job,
                              .root = place->rank,
                              .fds = { ls__shm_fd(root->job.shm), ls__board_fd(root->job.board) },
                              .nfds = 2 };
    LS_TRY(ls__server_listen(root->job.server, listen_fd, &greeting));
    if (ls__root_several(root)) LS_TRY(ls__root_listen(root));
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return ls__fail_errno(LS_ERR_INTERNAL, "socketpair");
    *socket_fd = pair[1];
    LS_TRY(ls__server_add(root->job.server, pair[0], place->rank));
    on_joined(root, place->rank, (int)getpid());
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&root->thread, NULL, serve, root);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return error ? ls__fail_errno(LS_ERR_MEMORY, "cannot start the local root's thread") : LS_OK;
}

static void root_free(ls__local_root *root)
{
    ls__job_end(&root->job);
    ls__root_nodes_free(root);
    pthread_cond_destroy(&root->changed);
    pthread_mutex_destroy(&root->lock);
    ls__free(root);
}

static ls_status become_root(const ls__place *place, const ls__launch *launch, const char *name,
                             ls__meeting *out, int fds[2])
{
    int listen_fd;
    LS_TRY(bind_name(place, launch, name, &listen_fd));
    ls__local_root *root = ls__alloc(1, sizeof *root);
    if (!root) {
        close(listen_fd);
        return LS_ERR_MEMORY;
    }
    root->launch = *launch;
    root->place = *place;
    root->wake_fd = root->uplink_fd = -1;
    pthread_mutex_init(&root->lock, NULL);
    pthread_cond_init(&root->changed, NULL);
    ls_status status = start_root(root, place, listen_fd, &out->socket_fd);
    if (status != LS_OK) {
        root_free(root);
        return status;
    }
    out->root = root;
    /* Copies, as the others get: the root's own are the thread's. */
    fds[0] = fcntl(ls__shm_fd(root->job.shm), F_DUPFD_CLOEXEC, 3);
    fds[1] = fcntl(ls__board_fd(root->job.board), F_DUPFD_CLOEXEC, 3);
    return fds[0] >= 0 && fds[1] >= 0 ? LS_OK : ls__fail_errno(LS_ERR_INTERNAL, "fcntl");
}

static ls_status join_root(const ls__place *place, const ls__launch *launch, const char *name,
                           ls__meeting *out, int fds[2])
{
    ls__greeting greeting = { .job = place->job, .nfds = 2 };
    ls__welcome welcome;
    ls_status status = ls__server_join(&(ls__address) { .name = name }, place->rank, place->size,
                                       &greeting, launch->timeout_ms, &welcome);
    out->socket_fd = welcome.fd;
    out->root_rank = welcome.root;
    fds[0] = welcome.fds[0];
    fds[1] = welcome.fds[1];
    if (status == LS_ERR_TIMEOUT)
        return ls_fail(
            status,
            "rank %d waited %g s for the rank with LOCAL_RANK=0 on this machine; if it is "
            "on another one, set LOCAL_WORLD_SIZE to the number of ranks on each",
            place->rank, launch->timeout_ms * 1e-3);
    return status;
}

ls_status ls__local_meet(const ls__place *place, const ls__launch *launch, ls__meeting *out)
{
    char name[64];
    int fds[2] = { -1, -1 };
    socket_name(place, name);
    *out = (ls__meeting) { .socket_fd = -1, .root_rank = place->rank };
    ls_status status = place->local_rank == 0 ? become_root(place, launch, name, out, fds)
                                              : join_root(place, launch, name, out, fds);
    if (status != LS_OK) return status;
    LS_TRY(ls__shm_attach(fds[0], place->local_size, &out->shm));
    return ls__board_attach(fds[1], place->size, &out->board);
}

void ls__local_root_complete(ls__local_root *root)
{
    tell(root, &root->complete);
}

void ls__local_root_reported(ls__local_root *root)
{
    pthread_mutex_lock(&root->lock);
    while (!root->reported) pthread_cond_wait(&root->changed, &root->lock);
    pthread_mutex_unlock(&root->lock);
}

bool ls__local_root_finish(ls__local_root *root)
{
    pthread_join(root->thread, NULL);
    bool well = root->well;
    root_free(root);
    return well;
}
