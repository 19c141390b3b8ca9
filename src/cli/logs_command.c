/* lockstep logs RUN: what the ranks of a run have printed, and with --follow what they print. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "device/device.h"
#include "launch/launch_state.h"

enum { READ_BYTES = 1 << 16, LOOK_MS = 500 };

typedef struct follower {
    int rank, fd; /* fd -1: not there yet */
    ino_t inode;
    bool prefixed, inside; /* in the middle of a line */
} follower;

static ls_status write_bytes(const char *data, size_t nbytes)
{
    if (fwrite(data, 1, nbytes, stdout) != nbytes)
        return ls__fail_errno(LS_ERR_IO, "cannot write to standard output");
    return LS_OK;
}

/* Lines behind "[1] " when several ranks are shown. */
static ls_status show(follower *f, const char *data, size_t nbytes)
{
    char prefix[16];
    if (!f->prefixed) return write_bytes(data, nbytes);
    int n = snprintf(prefix, sizeof prefix, "[%d] ", f->rank);
    while (nbytes > 0) {
        const char *newline = memchr(data, '\n', nbytes);
        size_t piece = newline ? (size_t)(newline - data) + 1 : nbytes;
        if (!f->inside) LS_TRY(write_bytes(prefix, (size_t)n));
        LS_TRY(write_bytes(data, piece));
        f->inside = !newline;
        data += piece;
        nbytes -= piece;
    }
    return LS_OK;
}

static ls_status read_rest(follower *f)
{
    static char data[READ_BYTES];
    ssize_t n;
    while (f->fd >= 0 && (n = read(f->fd, data, sizeof data)) > 0) LS_TRY(show(f, data, (size_t)n));
    return LS_OK;
}

/* Opens the file once it is there, and the new one after a rotation. */
static ls_status catch_up(follower *f, const char *logs)
{
    char path[LS_PATH_MAX];
    struct stat info;
    snprintf(path, sizeof path, "%.4000s/rank-%d.log", logs, f->rank);
    LS_TRY(read_rest(f));
    if (stat(path, &info) != 0 || (f->fd >= 0 && info.st_ino == f->inode)) return LS_OK;
    if (f->fd >= 0) close(f->fd);
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    f->inode = info.st_ino;
    return read_rest(f);
}

static ls_status catch_up_all(follower *followers, int count, const char *logs)
{
    for (int i = 0; i < count; i++) LS_TRY(catch_up(&followers[i], logs));
    return ls_cli_flush();
}

/* Until nobody works on the run any more. */
static ls_status follow(const char *runs_dir, const char *name, follower *followers, int count,
                        const char *logs)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0) inotify_add_watch(fd, logs, IN_MODIFY | IN_CREATE | IN_MOVED_TO);
    ls_status status = LS_OK;
    for (bool live = true; live && status == LS_OK;) {
        ls__run_state run;
        char events[4096];
        status = ls__run_state_read(runs_dir, name, &run);
        if (status != LS_OK) break;
        live = run.live;
        ls__run_state_free(&run);
        status = catch_up_all(followers, count, logs);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (live) poll(&p, 1, LOOK_MS);
        while (fd >= 0 && read(fd, events, sizeof events) > 0) {}
    }
    if (fd >= 0) close(fd);
    return status;
}

static bool has_log(const char *logs, int rank)
{
    char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/rank-%d.log", logs, rank);
    return ls__path_exists(path);
}

/* Ranks without a number: those that have logs. */
static int count_ranks(const ls__run_state *run)
{
    int n = run->world_size;
    while (n < LS__DEVICES_MAX && has_log(run->logs, n)) n++;
    return n > LS__DEVICES_MAX ? LS__DEVICES_MAX : n;
}

static ls_status logs(const char *runs_dir, const char *name, int64_t rank, bool following)
{
    ls__run_state run;
    LS_TRY(ls_cli_run_state(runs_dir, name, &run));
    int ranks = count_ranks(&run), count = rank >= 0 ? 1 : ranks;
    ls_status status = LS_OK;
    if (rank >= ranks)
        status = ls_fail(LS_ERR_CONFIG, "--rank %lld: run \"%s\" has %d ranks", (long long)rank,
                         run.name, ranks);
    if (status == LS_OK && !following && !ls__path_exists(run.logs))
        status = ls_fail(LS_ERR_CONFIG, "run \"%s\" has kept no logs", run.name);
    follower *followers = ls__alloc((size_t)(count > 0 ? count : 1), sizeof *followers);
    if (!followers) status = LS_ERR_MEMORY;
    for (int i = 0; followers && i < count; i++)
        followers[i] =
            (follower) { .rank = rank >= 0 ? (int)rank : i, .fd = -1, .prefixed = count > 1 };
    if (status == LS_OK)
        status = following ? follow(runs_dir, name, followers, count, run.logs)
                           : catch_up_all(followers, count, run.logs);
    for (int i = 0; followers && i < count; i++)
        if (followers[i].fd >= 0) close(followers[i].fd);
    ls__free(followers);
    ls__run_state_free(&run);
    return status;
}

int ls_cli_logs(int argc, char **argv)
{
    static const char *const only[] = { "runs-dir", "log-level", "json", "help", "version", NULL };
    static char long_rank[] = "--rank", long_follow[] = "--follow";
    bool following = false;
    int64_t rank = LS_NONE;
    const ls_flag flags[] = {
        { "rank", 'i', &rank, "only this rank (-r); otherwise all, each line behind its rank" },
        { "follow", 'b', &following, "go on with what is printed until the run ends (-f)" },
        { 0 },
    };
    const ls_world_options program = {
        .summary = "Shows what the ranks of a run have printed.",
        .arguments = "RUN",
        .flags = flags,
    };
    const char *runs_dir = "runs";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-r") == 0) argv[i] = long_rank;
        if (strcmp(argv[i], "-f") == 0) argv[i] = long_follow;
    }
    ls__options *o = ls_cli_options(&argc, &argv, &program, only);
    ls__options_string(o, "runs-dir", &runs_dir);
    ls_status status = argc != 2        ? ls_fail(LS_ERR_CONFIG, "which run? lockstep logs RUN")
                       : rank < LS_NONE ? ls_fail(LS_ERR_CONFIG, "--rank %lld: ranks count from 0",
                                                  (long long)rank)
                                        : logs(runs_dir, argv[1], rank, following);
    return ls_cli_end(o, status);
}
