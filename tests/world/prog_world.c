/* A program that tests start: steps of one all-reduce, with whatever mishap is asked for. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/log.h"
#include "world/world_internal.h"

static int64_t steps = 100, at = 10, who = 1, pause_us = 1000;
static const char *act = "none", *folder = "";

static void note_pid(const char *name, int pid)
{
    char path[300];
    if (!folder[0]) return;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) abort();
    fprintf(file, "%d\n", pid);
    fclose(file);
}

/* A grandchild that hides: a session of its own, deaf to signals, reparented. */
static void leave_grandchild(void)
{
    pid_t pid = fork();
    if (pid > 0) return;
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    note_pid("grandchild", (int)getpid());
    for (;;) pause();
}

static void print_lines(int rank)
{
    for (int i = 0; i < 2000; i++) {
        fprintf(stderr, "%d:%04d:%0300d\n", rank, i, 0);
        printf("out %d:%04d:%0300d\n", rank, i, 0);
    }
    for (int i = 0; i < 200000; i++) putchar('x');
    printf("\nunfinished");
}

static void mishap(ls_world *world)
{
    if (strcmp(act, "exit0") == 0) exit(0);
    if (strcmp(act, "exit7") == 0) exit(7);
    if (strcmp(act, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would exit instead */
        raise(SIGSEGV);
    }
    if (strcmp(act, "kill") == 0) raise(SIGKILL);
    if (strcmp(act, "kill-once") == 0 && ls__world_restarts(world) == 0) raise(SIGKILL);
    if (strcmp(act, "abort") == 0) ls_world_abort(world, "no more %s", "coffee");
    if (strcmp(act, "check") == 0)
        ls_check(ls_fail(LS_ERR_DATA, "x.idx: it is \xff\xc3\xa9 empty"));
    if (strcmp(act, "diverge") == 0) ls_check(ls_fail(LS_ERR_DIVERGED, "loss is nan"));
    if (strcmp(act, "stop") == 0) raise(SIGSTOP);
    if (strcmp(act, "spin") == 0)
        for (;;) pause();
    if (strcmp(act, "mismatch") == 0) ls_check(ls_comm_barrier(ls_world_comm(world)));
    if (strcmp(act, "grandchild") == 0) leave_grandchild();
    if (strcmp(act, "term") == 0) raise(SIGTERM);
    if (strcmp(act, "warn") == 0) {
        ls__log(LS__LOG_WARN, "all find this");
        ls__log(LS__LOG_WARN, "rank %d finds this", ls_world_rank(world));
    }
    if (strcmp(act, "print") == 0) print_lines(ls_world_rank(world));
    if (strcmp(act, "finish5") == 0) {
        ls_world_finish(world);
        exit(5);
    }
}

static void step(ls_world *world, int64_t n, int32_t *stop)
{
    int32_t signal = ls__world_stop_signal(world);
    char checkpoint[64];
    struct timespec t = { .tv_nsec = pause_us * 1000 };
    snprintf(checkpoint, sizeof checkpoint, "checkpoints/step-%08d", (int)(n - n % 5));
    ls__world_position(world, n, n > 5 ? checkpoint : "");
    if (n == at && (who < 0 || ls_world_rank(world) == who)) mishap(world);
    ls_check(
        ls_comm_all_reduce(ls_world_comm(world), &signal, stop, 1, LS_DTYPE_I32, LS_REDUCE_MAX));
    char text[64];
    snprintf(text, sizeof text, "step %d", (int)n);
    ls__world_progress(world, text);
    nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
    ls_flag flags[] = { { "steps", 'i', &steps, "how many; -1 = for ever" },
                        { "act", 's', (void *)&act, "the mishap" },
                        { "at", 'i', &at, "at this step" },
                        { "who", 'i', &who, "on this rank; -1 = all" },
                        { "pause-us", 'i', &pause_us, "of a step" },
                        { "folder", 's', (void *)&folder, "for notes" },
                        { 0 } };
    ls_world_options options = { .summary = "a program of tests", .flags = flags };
    ls_world *world;
    int32_t stop = 0;
    ls_check(ls_world_init(&argc, &argv, &options, &world));
    char name[32];
    snprintf(name, sizeof name, "rank-%d", ls_world_rank(world));
    if (folder[0]) ls__world_set_folder(world, folder);
    ls__world_position(world, 0, ""); /* a test may end the rank as soon as it knows its number */
    note_pid(name, (int)getpid());
    if (strcmp(act, "deaf") == 0) {
        ls__world_position(world, at, "");
        for (;;) pause();
    }
    for (int64_t n = 0; (steps < 0 || n < steps) && !stop; n++) step(world, n, &stop);
    if (stop) ls__world_stopped(world, stop);
    if (ls_world_rank(world) == 0) printf("done %d\n", stop);
    if (strcmp(act, "twice") == 0) {
        ls_world_finish(world);
        ls_check(ls_world_init(&argc, &argv, &options, &world));
    }
    return ls_world_finish(world);
}
