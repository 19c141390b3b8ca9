/* The world: getters, what ranks tell their supervisor, and how they leave. How a world comes to be
 * is in world_init.c. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/signals.h"
#include "world/world_state.h"

enum { PROGRESS_NS = 100000000 };

int ls_world_rank(const ls_world *world)
{
    return world->rank;
}

int ls_world_size(const ls_world *world)
{
    return world->size;
}

int ls_world_local_rank(const ls_world *world)
{
    return world->local_rank;
}

int ls_world_local_size(const ls_world *world)
{
    return world->local_size;
}

int ls_world_node(const ls_world *world)
{
    return world->node;
}

int ls_world_nodes(const ls_world *world)
{
    return world->nodes->count;
}

int ls_world_threads(const ls_world *world)
{
    return world->launch.plan.threads;
}

const char *ls_world_runs_dir(const ls_world *world)
{
    const char *folder = "runs";
    ls__options_string(ls__world_options(world), "runs-dir", &folder);
    return folder;
}

ls_comm *ls_world_comm(ls_world *world)
{
    return world->comm;
}

ls__options *ls__world_options(const ls_world *world)
{
    return world->options;
}

const ls_world_options *ls__world_program(const ls_world *world)
{
    return &world->program;
}

ls__store *ls__world_store(const ls_world *world)
{
    return world->store;
}

const ls__nodes *ls__world_nodes(const ls_world *world)
{
    return world->nodes;
}

ls__shm *ls__world_shm(const ls_world *world)
{
    return world->shm;
}

const ls__cpus *ls__world_cpus(const ls_world *world)
{
    return &world->launch.cpus;
}

const ls__device_plan *ls__world_devices(const ls_world *world)
{
    return &world->launch.plan;
}

int ls__world_timeout_ms(const ls_world *world)
{
    return world->launch.timeout_ms;
}

const char *ls__world_argv(const ls_world *world, int i)
{
    if (!world->argv || i < 0) return NULL;
    for (int k = 0; k < i; k++)
        if (!world->argv[k]) return NULL;
    return world->argv[i];
}

double ls__world_started(const ls_world *world)
{
    return world->launch.started;
}

bool ls__world_crowded(const ls_world *world)
{
    return world->launch.crowded;
}

const char *ls__world_root(const ls_world *world)
{
    return world->nodes && world->nodes->count > 1 && world->address[0] ? world->address : NULL;
}

int ls__world_restarts(const ls_world *world)
{
    return world->restarts;
}

const char *ls__world_run_name(const ls_world *world)
{
    return world->run_name;
}

const char *ls__world_restart_folder(const ls_world *world)
{
    return world->restart_folder;
}

bool ls__world_terminal(const ls_world *world)
{
    return world->terminal;
}

int ls__world_stop_signal(const ls_world *world)
{
    if (world->shm) return ls__shm_stop_request(world->shm);
    return world->has_signals ? ls__signals_stop_request() : 0;
}

void ls__world_stopped(ls_world *world, int signal)
{
    world->stopped = signal;
}

static void send_text(ls_world *world, ls__frame_type type, const char *text)
{
    ls_status status = ls__store_send(
        world->store, &(ls__frame) { .type = type, .value = text, .nbytes = strlen(text) });
    if (status != LS_OK) ls__log(LS__LOG_DEBUG, "%s", ls_error_text()); /* the watcher acts on it */
}

/* Locked: where reports go. in_folder: room for the second one. */
static void report_paths(const ls_world *world, char in_folder[LS_PATH_MAX], const char *paths[2])
{
    paths[0] = world->launch.report;
    paths[1] = "";
    if (world->folder[0] && ls__path_join(in_folder, world->folder, "report.json") == LS_OK)
        paths[1] = in_folder;
}

/* Locked: all of a report but its end. */
static ls__report report_of(const ls_world *world)
{
    return (ls__report) { .end = { .rank = -1 },
                          .size = world->size,
                          .restarts = world->restarts,
                          .step = atomic_load(&world->step),
                          .checkpoint = world->checkpoint,
                          .seconds = ls__now() - world->launch.started };
}

void ls__world_prepare_last_words(ls_world *world)
{
    char in_folder[LS_PATH_MAX];
    const char *paths[2];
    ls__last_words *words = NULL;
    if (!world->has_signals) return;
    pthread_mutex_lock(&world->lock);
    report_paths(world, in_folder, paths);
    ls__report report = report_of(world);
    if ((paths[0][0] || paths[1][0]) &&
        ls__last_words_create(&report, ls__signals, LS__SIGNALS, world->launch.grace, paths,
                              &world->step, &words) != LS_OK)
        ls__log(LS__LOG_DEBUG, "%s", ls_error_text());
    ls__signals_set_last_words(words);
    pthread_mutex_unlock(&world->lock);
}

/* Where lockstep top finds the ranks. */
static void publish_board(ls_world *world, const char *folder)
{
    if (world->shared) return; /* ranks are threads */
    if (!world->board && ls__board_create(1, &world->board) == LS_OK)
        ls__board_set_process(world->board, 0, getpid());
    if (!world->board || ls__board_publish(world->board, folder) != LS_OK)
        ls__log(LS__LOG_DEBUG, "%s", ls_error_text());
}

void ls__world_set_folder(ls_world *world, const char *folder)
{
    if (world->rank != 0) return;
    char *absolute = realpath(folder, NULL); /* the supervisor stands where the job began */
    const char *path = absolute ? absolute : folder;
    pthread_mutex_lock(&world->lock);
    snprintf(world->folder, sizeof world->folder, "%s", path);
    pthread_mutex_unlock(&world->lock);
    send_text(world, LS__FRAME_FOLDER, path);
    publish_board(world, path);
    ls__world_prepare_last_words(world);
    free(absolute);
}

void ls__world_progress(ls_world *world, const char *text)
{
    if (!world->terminal || world->rank != 0) return;
    int64_t now = ls__now_ns();
    bool erase = !text || !text[0];
    pthread_mutex_lock(&world->lock);
    bool due = erase || now >= world->next_progress_ns;
    if (due) world->next_progress_ns = now + PROGRESS_NS;
    pthread_mutex_unlock(&world->lock);
    if (!due) return;
    bool drawn_elsewhere = world->by == LS__STARTED_BY_US;
    if (!erase && drawn_elsewhere) {
        size_t n = strnlen(text, 500);
        ls__store_try_send(world->store,
                           &(ls__frame) { .type = LS__FRAME_PROGRESS, .value = text, .nbytes = n });
    } else if (drawn_elsewhere) {
        send_text(world, LS__FRAME_PROGRESS, "");
    } else {
        ls__statusline_set(text);
    }
}

/* The launcher's file, docs/launching.md. Numbers only grow, so there is nothing to cut off. */
static void beat(const ls_world *world, int64_t step)
{
    char text[32];
    if (world->beat_fd < 0) return;
    int n = snprintf(text, sizeof text, "%lld\n", (long long)step);
    if (pwrite(world->beat_fd, text, (size_t)n, 0) != n) return; /* a full disk: not our matter */
}

void ls__world_position(ls_world *world, int64_t step, const char *checkpoint)
{
    if (world->board) ls__board_set_step(world->board, world->rank, step);
    atomic_store_explicit(&world->step, step, memory_order_relaxed);
    beat(world, step);
    if (!checkpoint || !checkpoint[0]) return;
    pthread_mutex_lock(&world->lock);
    bool news = strcmp(world->checkpoint, checkpoint) != 0;
    if (news) snprintf(world->checkpoint, sizeof world->checkpoint, "%s", checkpoint);
    pthread_mutex_unlock(&world->lock);
    if (!news) return;
    send_text(world, LS__FRAME_CHECKPOINT, checkpoint);
    ls__world_prepare_last_words(world);
}

/* What became of a node's work: its answer, read from the store. Without a limit: a download may take
 * longer than ranks may wait for each other. */
static ls_status once_answer(ls_world *world, int64_t nonce, int node)
{
    char key[64], *value = NULL;
    size_t nbytes;
    snprintf(key, sizeof key, "world/once/%lld/%d", (long long)nonce, node);
    LS_TRY(ls__store_get(world->store, key, -1, &value, &nbytes));
    char *text = strchr(value, ' ');
    ls_status status = LS_ERR_INTERNAL;
    if (text) {
        *text++ = '\0';
        status = ls__status_from_name(value);
    }
    if (status != LS_OK) ls_fail(status, "%s", text ? text : "ls_world_once: no answer");
    ls__free(value);
    return status;
}

ls_status ls_world_once(ls_world *world, ls_status (*work)(void *user), void *user)
{
    int64_t nonce = world->nonce++;
    if (world->local_rank == 0) {
        char key[64], answer[1100];
        ls_status status = work(user);
        if (world->size == 1) return status;
        snprintf(key, sizeof key, "world/once/%lld/%d", (long long)nonce, world->node);
        snprintf(answer, sizeof answer, "%s %s", ls__status_name(status),
                 status == LS_OK ? "" : ls_error_text());
        LS_TRY(ls__store_set(world->store, key, answer, strlen(answer)));
    }
    /* All read all answers, so all return the same: the first node's that failed. */
    for (int m = 0; m < world->nodes->count; m++) LS_TRY(once_answer(world, nonce, m));
    return LS_OK;
}

void ls__world_report(ls_world *world, const ls__end *end, bool print)
{
    pthread_mutex_lock(&world->lock);
    char in_folder[LS_PATH_MAX], where[LS_PATH_MAX];
    const char *paths[2];
    report_paths(world, in_folder, paths);
    ls__report report = report_of(world);
    report.end = *end;
    ls__report_write_both(&report, paths, where);
    if (print) ls__report_print(&report, where);
    int code = ls__report_exit_code(end);
    if (world->launch.json && code != 0 && end->kind != LS__END_STOPPED) ls__report_show(&report);
    pthread_mutex_unlock(&world->lock);
}

void ls_world_abort(ls_world *world, const char *format, ...)
{
    ls__end end = { .kind = LS__END_ABORT, .rank = world->rank };
    va_list args;
    va_start(args, format);
    vsnprintf(end.said, sizeof end.said, format, args);
    va_end(args);
    fflush(NULL);
    if (ls__store_fd(world->store) >= 0) {
        send_text(world, LS__FRAME_ABORT, end.said);
        if (world->root) ls__local_root_reported(world->root);
        if (world->by == LS__STARTED_BY_OTHERS && !world->root)
            ls__log(LS__LOG_ERROR, "rank %d ended the job: %s", world->rank, end.said);
    } else {
        ls__world_report(world, &end, true);
    }
    _exit(1);
}

/* 0, or what the job's end is called when the run saved and stopped for a signal. */
static int code_of(const ls_world *world)
{
    return world->stopped == SIGINT ? 130 : world->stopped ? 75 : 0;
}

/* Results that were printed but could not be written are no success. */
static int finish_alone(ls_world *world, int code)
{
    ls__end end = { .rank = -1, .signal = world->stopped };
    end.kind = world->stopped ? LS__END_STOPPED : LS__END_FINISHED;
    if (!world->program.never_launch && fflush(stdout) != 0 && code == 0) {
        end.kind = LS__END_STATUS;
        end.status = LS_ERR_IO;
        snprintf(end.said, sizeof end.said, LS__STDOUT_LOST, strerror(errno));
    }
    ls__world_report(world, &end, end.kind != LS__END_FINISHED);
    return end.kind == LS__END_STATUS ? ls__report_exit_code(&end) : code;
}

int ls_world_finish(ls_world *world)
{
    if (!world) return 0;
    int code = code_of(world);
    if (world->watcher && ls__watcher_lost(world->watcher)) code = ls__exit_code(LS_ERR_PEER);
    if (ls__store_fd(world->store) >= 0) {
        fflush(NULL);
        ls_status status = ls__store_send(
            world->store, &(ls__frame) { .type = LS__FRAME_GOODBYE, .number = code });
        if (status != LS_OK) code = ls__exit_code(LS_ERR_PEER);
    } else if (!world->shared) {
        code = finish_alone(world, code);
    }
    if (world->root && !ls__local_root_finish(world->root)) code = ls__exit_code(LS_ERR_PEER);
    world->root = NULL;
    ls__world_free(world);
    return code;
}
