/* Learning-rate schedules: pure functions of the step, so that a resumed run needs no state.
 *
 * With w warm-up steps the k-th of them runs at k/w of the rate: none is spent on a rate of zero.
 * Linear and cosine fall from the end of the warm-up to zero at the end of the run; the edges of
 * the step schedule are counted from the run's begin. Called once per step. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "optim/optim.h"

static const char *const names[] = {
    [LS_SCHEDULE_CONSTANT] = "constant",
    [LS_SCHEDULE_LINEAR] = "linear",
    [LS_SCHEDULE_COSINE] = "cosine",
    [LS_SCHEDULE_STEP] = "step",
};

bool ls__schedule_parse(const char *text, ls_schedule *out)
{
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (ls_schedule)i;
            return true;
        }
    }
    return false;
}

const char *ls__schedule_name(ls_schedule schedule)
{
    return names[schedule];
}

ls_status ls__schedule_check(const ls_run_options *options, int64_t steps)
{
    ls_schedule kind = options->schedule.kind;
    if ((int)kind < 0 || kind > LS_SCHEDULE_STEP)
        return ls_fail(LS_ERR_CONFIG, "schedule %d is not one of ls_schedule's", (int)kind);
    if (options->schedule.warmup_steps < 0 && options->schedule.warmup_steps != LS_NONE)
        return ls_fail(LS_ERR_CONFIG, "warm-up of %lld steps: give 0 or more",
                       (long long)options->schedule.warmup_steps);
    if (options->schedule.custom) return LS_OK;
    if (kind == LS_SCHEDULE_STEP) {
        if (options->schedule.step_size < 0)
            return ls_fail(LS_ERR_CONFIG, "the schedule's step_size is %lld: give 1 or more",
                           (long long)options->schedule.step_size);
        if (!(options->schedule.gamma >= 0))
            return ls_fail(LS_ERR_CONFIG, "the schedule's gamma is %g: give a factor above 0",
                           options->schedule.gamma);
    }
    bool needs_end = kind == LS_SCHEDULE_LINEAR || kind == LS_SCHEDULE_COSINE ||
                     (kind == LS_SCHEDULE_STEP && !options->schedule.step_size);
    if (needs_end && steps <= 0)
        return ls_fail(LS_ERR_CONFIG,
                       "the %s schedule needs the run's length: set --max-steps or --max-epochs",
                       names[kind]);
    return LS_OK;
}

static double step_factor(const ls_run_options *options, int64_t step, int64_t steps)
{
    int64_t size = options->schedule.step_size ? options->schedule.step_size : (steps + 2) / 3;
    double gamma = options->schedule.gamma != 0 ? options->schedule.gamma : 0.1;
    return size > 0 ? pow(gamma, (double)(step / size)) : 1;
}

static double kind_factor(const ls_run_options *options, int64_t step, int64_t steps)
{
    int64_t warmup = options->schedule.warmup_steps > 0 ? options->schedule.warmup_steps : 0;
    double progress = 0; /* of the part behind the warm-up */
    if (step > warmup)
        progress = step < steps ? (double)(step - warmup) / (double)(steps - warmup) : 1;
    switch (options->schedule.kind) {
    case LS_SCHEDULE_LINEAR:
        return 1 - progress;
    case LS_SCHEDULE_COSINE:
        return 0.5 * (1 + cos(acos(-1) * progress));
    case LS_SCHEDULE_STEP:
        return step_factor(options, step, steps);
    case LS_SCHEDULE_CONSTANT:
        break;
    }
    return 1;
}

double ls__schedule_lr(const ls_run_options *options, double lr, int64_t step, int64_t steps)
{
    double factor = options->schedule.custom
                        ? options->schedule.custom(step, steps, options->schedule.user)
                        : kind_factor(options, step, steps);
    int64_t warmup = options->schedule.warmup_steps;
    if (step < warmup) factor *= (double)(step + 1) / (double)warmup;
    return lr * factor;
}
