/* What a rank is doing at one moment, seen from outside: for lockstep top. Two looks make the rates. */
#ifndef LS_LAUNCH_RANK_LOOK_H
#define LS_LAUNCH_RANK_LOOK_H

#include "base/json.h"
#include "device/nvml.h"
#include "world/board.h"

typedef struct ls__rank_look {
    int rank, pid;
    int node;   /* a machine's number, in the order of their ranks */
    char state; /* as /proc has it; '?' = gone */
    double at, cpu_seconds;
    double beat_at; /* the last sign of life, on the scale of at; 0 = never */
    int64_t memory; /* bytes */
    int64_t step;   /* -1 = unknown */
    int gpu;        /* percent of its GPU; -1 = none known */
} ls__rank_look;

/* Ranks of this machine. looks: (n), with rank, pid and node; filled in but for beat_at and step. */
void ls__rank_look_at(ls__rank_look *looks, int n, const ls__gpus *gpus);
/* beat_at and step, by the heartbeat files of a launcher's job (local: its number there), or by a job's
 * board. */
void ls__rank_look_beat(ls__rank_look *look, const char *folder, int local);
void ls__rank_look_board(ls__rank_look *look, const ls__board *board);

/* What a launcher sends to the first one, and that one keeps: {"host", "ranks": [[...], ...]}. NULL: no
 * memory. */
json_t *ls__rank_looks_json(const char *host, const ls__rank_look *looks, int n);
/* Adds to looks as many as there is room for; returns how many. Numbers of another machine are not to be
 * relied upon: nothing but texts and numbers is taken. */
int ls__rank_looks_read(const json_t *document, int node, ls__rank_look *looks, int room);

/* --- figures.json in a run's folder: of all machines, while somebody looks at the run --- */
/* Somebody looks, now. */
ls_status ls__figures_ask(const char *folder);
/* When somebody last looked, in nanoseconds of the file system; 0 = never. */
int64_t ls__figures_asked(const char *folder);
/* {"schema", "launchers": [of ls__rank_looks_json, or null]} */
ls_status ls__figures_write(const char *folder, json_t *launchers /* stolen */);
int64_t ls__figures_written(const char *folder); /* when; as ls__figures_asked */
json_t *ls__figures_read(const char *folder);    /* NULL: there are none */

#endif
