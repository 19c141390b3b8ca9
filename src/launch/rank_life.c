/* Signs of life. A program that hangs says nothing, so what it does not say is looked for: lines, a
 * heartbeat if the program keeps one, and CPU time. Silence alone only warns, because training may
 * be silent for hours; ending a job for it needs --hang-timeout. Looked at a few times per limit:
 * cheap, and a hang is no matter of milliseconds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launcher_job.h"

static const double early_seconds = 5.0; /* a rank that ended well while others run is told of */
static const double idle_share = 0.05;   /* of one CPU, by all ranks: less is idle */
static const double longest_interval = 10.0, shortest_interval = 0.05;

void ls__rank_heartbeat_path(const char *folder, int rank, char out[LS_PATH_MAX])
{
    snprintf(out, LS_PATH_MAX, "%.4000s/heartbeat-%d", folder, rank);
}

ls_status ls__lives_begin(ls__launcher_job *j)
{
    char path[LS_PATH_MAX];
    j->started = ls__now();
    ls__rank_stacks_free(j);
    for (int r = 0; r < j->plan->size; r++) {
        j->ranks[r] = (ls__rank_life) { .step = -1 };
        ls__rank_heartbeat_path(j->folder, r, path);
        unlink(path); /* the program makes it: a file that is there has been written by it */
    }
    j->warned_at = j->idle_cpu_at = j->started;
    j->idle_cpu_seconds = 0;
    j->told_early = false;
    j->mpi_look = 0;
    j->check_at = j->started;
    return LS_OK;
}

void ls__lives_line(ls__launcher_job *j, int rank, const char *text, size_t nbytes)
{
    static const char traceback[] = "Traceback (most recent call last)";
    ls__rank_life *life = &j->ranks[rank];
    life->output_at = ls__now();
    if (life->traceback_at == 0 && nbytes >= sizeof traceback - 1 &&
        memcmp(text, traceback, sizeof traceback - 1) == 0) {
        life->traceback_at = life->output_at;
        ls__nodes_tell_traceback(j, ls__job_rank(j, rank), life->traceback_at);
    }
}

/* --- heartbeats --- */

/* The first number of the file's last line; -1 = none. */
int64_t ls__rank_beat_step(const char *path)
{
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = size > (off_t)sizeof text - 1 ? size - (off_t)sizeof text + 1 : 0;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    close(fd);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) n--;
    if (n <= 0) return -1;
    text[n] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    char *end;
    long long step = strtoll(line, &end, 10);
    return end > line && step >= 0 ? step : -1;
}

static void read_beat(ls__launcher_job *j, int rank)
{
    ls__rank_life *life = &j->ranks[rank];
    char path[LS_PATH_MAX];
    struct stat info;
    ls__rank_heartbeat_path(j->folder, rank, path);
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return;
    int64_t ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    if (ns == life->beat_ns) return;
    life->beat_ns = ns;
    life->beat_at = ls__now();
    int64_t step = ls__rank_beat_step(path);
    if (step >= 0) life->step = step;
    if (step > j->best_step) j->best_step = step;
}

void ls__lives_read_beats(ls__launcher_job *j)
{
    for (int r = 0; r < j->plan->size; r++) read_beat(j, r);
}

/* --- what a process does --- */

static const char *state_text(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "waiting for a device";
    case 'T':
    case 't':
        return "stopped by a signal";
    default:
        return "ended";
    }
}

/* "3 s ago", "never" */
static const char *ago(double at, double now, char out[32])
{
    if (at <= 0)
        snprintf(out, 32, "never");
    else
        snprintf(out, 32, "%.0f s ago", now - at);
    return out;
}

/* What each rank is doing, for somebody who wonders why nothing happens. */
static void tell_ranks(ls__launcher_job *j)
{
    double now = ls__now();
    for (int r = 0; r < j->plan->size; r++) {
        const ls__rank_life *life = &j->ranks[r];
        const ls__child *child = &j->crew.children[r];
        char line[32], beat[32], in[80] = "";
        if (child->ended) {
            ls__log(LS__LOG_WARN, "    rank %d ended %s", ls__job_rank(j, r),
                    ago(life->ended_at, now, line));
            continue;
        }
        ls__activity a = ls__activity_of(child->pid);
        if (a.waits_in[0] && strcmp(a.waits_in, "0") != 0)
            snprintf(in, sizeof in, " in %s", a.waits_in);
        ls__log(
            LS__LOG_WARN,
            "    rank %d (process %d): %s%s, %.1f s of CPU time, last line %s, last heartbeat %s",
            ls__job_rank(j, r), (int)child->pid, state_text(a.state), in, a.cpu_seconds,
            ago(life->output_at, now, line), ago(life->beat_at, now, beat));
    }
}

/* --- the verdict --- */

static double last_sign(const ls__launcher_job *j, int rank)
{
    const ls__rank_life *life = &j->ranks[rank];
    double at = life->output_at > life->beat_at ? life->output_at : life->beat_at;
    return at > j->started ? at : j->started;
}

double ls__lives_last_sign(const ls__launcher_job *j)
{
    double at = j->started;
    for (int r = 0; r < j->plan->size; r++)
        if (last_sign(j, r) > at) at = last_sign(j, r);
    return at;
}

static double last_sign_of_all(const ls__launcher_job *j)
{
    double here = ls__lives_last_sign(j), elsewhere = ls__nodes_last_sign(j);
    return here > elsewhere ? here : elsewhere;
}

/* A rank that keeps a heartbeat is judged by it, so one of many that hangs is found; of those that keep
 * none only the silence of all says something, as often only one of them prints. */
static int find_hung(const ls__launcher_job *j, double now, bool *all)
{
    double limit = j->plan->hang_timeout;
    for (int r = 0; r < j->plan->size; r++) {
        const ls__rank_life *life = &j->ranks[r];
        if (!j->crew.children[r].ended && life->beat_ns != 0 && now - life->beat_at > limit)
            return r;
    }
    *all = ls__nodes_decides(j) && now - last_sign_of_all(j) > limit;
    return -1;
}

static void end_hung(ls__launcher_job *j, int rank)
{
    ls__end end = { .kind = LS__END_HUNG,
                    .rank = ls__job_rank(j, rank),
                    .grace = j->plan->hang_timeout,
                    .foreign = true };
    if (rank >= 0) end.pid = (int)j->crew.children[rank].pid;
    ls__log(LS__LOG_WARN, "no sign of life for %g s (--hang-timeout):", j->plan->hang_timeout);
    tell_ranks(j);
    ls__rank_stacks_take(j);
    ls__rank_stacks_tell(j);
    ls__events_write(j, "hang", json_pack("{s:i,s:f}", "rank", end.rank, "seconds", end.grace));
    ls__job_ended_by(j, &end);
    ls__job_kill(j);
}

static double cpu_seconds_of_all(ls__launcher_job *j)
{
    double sum = 0;
    for (int r = 0; r < j->plan->size; r++)
        if (!j->crew.children[r].ended) sum += ls__activity_of(j->crew.children[r].pid).cpu_seconds;
    return sum;
}

/* Nobody prints, and nobody computes. */
static void check_silence(ls__launcher_job *j, double now)
{
    double limit = j->plan->silence_warning, since = last_sign_of_all(j);
    if (!ls__nodes_decides(j) || limit <= 0 || now - since < limit || now - j->warned_at < limit)
        return;
    double used = cpu_seconds_of_all(j);
    bool idle = used - j->idle_cpu_seconds < idle_share * (now - j->idle_cpu_at);
    j->idle_cpu_seconds = used;
    j->idle_cpu_at = j->warned_at = now;
    if (!idle) return;
    ls__log(LS__LOG_WARN, "nothing was printed for %.0f s, and the CPUs are idle:", now - since);
    tell_ranks(j);
    ls__rank_stacks_take(j);
    ls__rank_stacks_tell(j);
    ls__events_write(j, "silence", json_pack("{s:f}", "seconds", now - since));
}

/* A rank that has ended well while the others go on may be what they wait for. */
static void check_early(ls__launcher_job *j, double now)
{
    if (j->told_early) return;
    for (int r = 0; r < j->plan->size; r++) {
        const ls__rank_life *life = &j->ranks[r];
        if (life->ended_at <= 0 || now - life->ended_at < early_seconds) continue;
        j->told_early = true;
        ls__log(LS__LOG_WARN,
                "rank %d ended with code 0, %.0f s ago; %d of %d still run: do they wait for it?",
                ls__job_rank(j, r), now - life->ended_at, ls__nodes_alive(j),
                j->plan->place.world_size);
        ls__events_write(
            j, "early-exit",
            json_pack("{s:i,s:i}", "rank", ls__job_rank(j, r), "alive", ls__nodes_alive(j)));
        return;
    }
}

void ls__lives_ended_well(ls__launcher_job *j)
{
    for (int r = 0; r < j->plan->size && !j->told_early; r++) {
        double at = j->ranks[r].ended_at + early_seconds;
        if (j->ranks[r].ended_at > 0 && at < j->check_at) j->check_at = at;
    }
}

double ls__lives_due(const ls__launcher_job *j)
{
    return j->check_at;
}

/* A rank is over, but the event that says so is yet to be handled: it neither hangs nor is silent. */
static bool an_end_waits(const ls__launcher_job *j)
{
    for (int r = 0; r < j->plan->size; r++) {
        const ls__child *child = &j->crew.children[r];
        siginfo_t info = { .si_pid = 0 };
        if (!child->ended &&
            waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == child->pid)
            return true;
    }
    return false;
}

void ls__lives_check(ls__launcher_job *j)
{
    double now = ls__now(), limit = j->plan->hang_timeout;
    bool all = false;
    if (an_end_waits(j)) {
        j->check_at = now + shortest_interval;
        return;
    }
    ls__lives_read_beats(j);
    check_early(j, now);
    check_silence(j, now);
    ls__mpi_check_process(j);
    ls__alone_check(j);
    int hung = limit > 0 ? find_hung(j, now, &all) : -1;
    if (hung >= 0 || all) {
        end_hung(j, hung);
        return;
    }
    double interval = longest_interval;
    if (limit > 0 && limit / 10 < interval) interval = limit / 10;
    if (j->plan->silence_warning > 0 && j->plan->silence_warning / 10 < interval)
        interval = j->plan->silence_warning / 10;
    j->check_at = now + (interval > shortest_interval ? interval : shortest_interval);
    if (ls__mpi_due(j) > 0 && ls__mpi_due(j) < j->check_at) j->check_at = ls__mpi_due(j);
    if (j->crew.alive < j->plan->size) ls__lives_ended_well(j);
}
