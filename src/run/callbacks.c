/* Calls the functions that a program hangs into a run, in the order it listed them, on every
 * rank. */
#include "run/run_state.h"

static ls_hook *hook_of(const ls_callback *callback, ls__hook hook)
{
    switch (hook) {
    case LS__HOOK_FIT_BEGIN:
        return callback->fit_begin;
    case LS__HOOK_EPOCH_BEGIN:
        return callback->epoch_begin;
    case LS__HOOK_STEP_END:
        return callback->step_end;
    case LS__HOOK_VALIDATION_END:
        return callback->validation_end;
    case LS__HOOK_CHECKPOINT_SAVED:
        return callback->checkpoint_saved;
    case LS__HOOK_EPOCH_END:
        return callback->epoch_end;
    case LS__HOOK_FIT_END:
        return callback->fit_end;
    }
    return NULL;
}

void ls__run_call(ls_run *run, ls__hook hook)
{
    const ls_callback *const *callbacks = run->settings.options.callbacks;
    for (int i = 0; callbacks && callbacks[i]; i++) {
        ls_hook *function = hook_of(callbacks[i], hook);
        if (function) function(run, callbacks[i]->user);
    }
}
