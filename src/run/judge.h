/* Judges a metric over a run: is this the best so far, and for how long has there been none better?
 * Once for the best checkpoint, once for early stopping. */
#ifndef LS_RUN_JUDGE_H
#define LS_RUN_JUDGE_H

#include <lockstep/metric.h>

#include "base/json.h"

typedef struct ls__judge {
    const char *monitor; /* "val/loss"; NULL = off */
    ls_mode mode;        /* MIN or MAX once known */
    double min_delta;
    double best; /* NAN = none yet */
    int64_t best_step;
    int64_t waited; /* values without improvement */
} ls__judge;

/* auto: as the metric says; else by the name. */
ls_mode ls__judge_mode(ls_mode asked, ls_mode metric, const char *name);
/* True when value is better than all before; NAN never is. */
bool ls__judge_see(ls__judge *judge, double value, int64_t step);
json_t *ls__judge_json(const ls__judge *judge);
/* Takes over best and waited when json is of the same monitor and mode; else begins anew. */
void ls__judge_restore(ls__judge *judge, const json_t *json);

#endif
