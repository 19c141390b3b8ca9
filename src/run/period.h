/* When something periodic is due, as a function of the clock alone: the same answer on every rank
 * and after every resume. */
#ifndef LS_RUN_PERIOD_H
#define LS_RUN_PERIOD_H

#include <lockstep/base.h>

/* The step that was just finished: its number (from 1), and the sample positions before and behind
 * it. */
typedef struct ls__tick {
    int64_t step, before, after;
    int64_t length; /* samples of an epoch */
} ls__tick;

/* Periods in steps and epochs; one in seconds is never due here (rank 0's clock decides). */
bool ls__period_due(const ls_every *every, const ls__tick *tick);
/* The step holds an epoch's last sample. */
bool ls__tick_ends_epoch(const ls__tick *tick);

/* How far a run goes. */
typedef struct ls__span {
    int64_t samples; /* positions end here; INT64_MAX = no limit by epochs */
    int64_t steps; /* steps in all when it begins at `step` and `position`; INT64_MAX = unlimited */
} ls__span;
ls__span ls__run_span(int64_t max_epochs, int64_t max_steps, int64_t length, int64_t batch,
                      int64_t step, int64_t position);

#endif
