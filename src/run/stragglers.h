/* Who holds the others up. All ranks wait at the end of each step until the last one comes, so a slow
 * rank is the one that does not wait. One slow step is nothing; one and the same rank, or machine, in
 * most of fifty is told. */
#ifndef LS_RUN_STRAGGLERS_H
#define LS_RUN_STRAGGLERS_H

#include <lockstep/base.h>

typedef struct ls__stragglers {
    int size;           /* 0: nothing is looked at */
    const int *node_of; /* (size) borrowed; NULL = one machine */
    int steps;
    float *sorted; /* (size) */
    struct ls__late {
        int steps;
        double held_ms;
        bool told;
    } * ranks, *nodes; /* (size) each */
} ls__stragglers;

typedef struct ls__straggler {
    int rank, node; /* rank -1: several ranks of the machine */
    int steps, of;
    double held_ms; /* per step */
} ls__straggler;

ls_status ls__stragglers_make(ls__stragglers *s, int size, const int *node_of);
void ls__stragglers_free(ls__stragglers *s);
/* waits_ms: (size) what each rank waited in a step that took step_ms. True: there is somebody to tell
 * of, each rank and machine once. */
bool ls__stragglers_step(ls__stragglers *s, const float *waits_ms, double step_ms,
                         ls__straggler *out);

#endif
