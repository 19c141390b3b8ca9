/* A hub and spokes in one process, for tests of what launchers say to each other. */
#ifndef LS_TESTS_LAUNCH_HELPER_FLEET_H
#define LS_TESTS_LAUNCH_HELPER_FLEET_H

#include "launch/hub.h"
#include "launch/spoke.h"

enum { FLEET_MAX = 1024 };

typedef struct fleet {
    ls__hub *hub;
    ls__spoke *spokes[FLEET_MAX];
    int nspokes;
    int come[FLEET_MAX], lost[FLEET_MAX]; /* how often, by launcher */
    int got[LS__NODE_FRAMES];             /* frames, at the hub */
    int64_t number;                       /* of the last one */
    char why[256];                        /* the last one was lost */
} fleet;

/* The hub of so many launchers; own: its own part, or NULL. */
ls_status fleet_open(fleet *f, int launchers, const ls__node_join *own, const char *secret,
                     double silence);
/* One more spoke with so many ranks; host "h1", ... by number. */
ls__spoke *fleet_spoke(fleet *f, int node_rank, int size, const char *secret, double silence);
/* Serves everybody until done says so; false: after seconds it still did not. */
bool fleet_serve(fleet *f, bool (*done)(fleet *f), double seconds);
void fleet_close(fleet *f);

#endif
