/* Any bytes as trainer.json: refused, or a run's state that can be gone on with. */
#include "fuzzing.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "run/run_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static ls_run run; /* large */
    char count[3] = "", state[5] = "", name[] = "count";
    json_t *document = json_loadb((const char *)data, nbytes, JSON_REJECT_DUPLICATES, NULL);
    if (!document) return 0;
    ls__log_set_level(LS__LOG_ERROR);
    const ls_callback callback = { .name = "cb", .state = state, .state_size = sizeof state };
    ls__kept kept = { name, count, sizeof count };
    memset(&run, 0, sizeof run);
    run.kept = &kept;
    run.nkept = 1;
    run.settings.options.callbacks = (const ls_callback *const[]) { &callback, NULL };
    run.best = (ls__judge) { .monitor = "val/loss", .mode = LS_MODE_MIN };
    run.resumed = document;
    if (ls__trainer_json_check(document, "fuzz") == LS_OK &&
        ls__trainer_json_restore(&run) == LS_OK) {
        if (run.step < 0 || run.position < 0 || run.nvalues > LS__VALUES_KEPT ||
            run.interval.count > LS__RECORDS_MAX || run.best.waited < 0)
            abort();
    }
    json_decref(document);
    return 0;
}
