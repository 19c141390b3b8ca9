/* What the run asks of the optimizer room: names, schedules, the rules for a tensor. */
#ifndef LS_OPTIM_H
#define LS_OPTIM_H

#include <lockstep/run.h>

#include "comm/resident.h"

const ls_optimizer *ls__optimizer_by_name(const char *name); /* "sgd", "nesterov", "adamw"; NULL */
int ls__optimizer_states(const ls_optimizer *optimizer);
bool ls__schedule_parse(const char *text,
                        ls_schedule *out); /* "constant", "linear", "cosine", "step" */
const char *ls__schedule_name(ls_schedule schedule);
/* Before the run: settings out of range, or linear, cosine, or step without step_size in a run of
 * unknown length (steps = 0), are LS_ERR_CONFIG. */
ls_status ls__schedule_check(const ls_run_options *options, int64_t steps);
/* The learning rate of the step after `step` finished ones, of `steps` in all (0 = unknown, for
 * schedules that do not need it). */
double ls__schedule_lr(const ls_run_options *options, double lr, int64_t step, int64_t steps);
typedef struct ls__param_settings {
    double lr_scale, weight_decay;
    bool frozen;
} ls__param_settings;
/* decays: whether the run's weight decay applies to the tensor (not to biases and norms). A rule's
 * own weight decay outranks that. rules may be NULL. */
void ls__param_rules(const ls_param_rule *rules, double weight_decay, const char *name, bool decays,
                     ls__param_settings *out);

/* The numbers of an update by one of our own rules, for a device that has them in kernels (param, grad
 * and state of the slice are not looked at). False: the optimizer is not ours. */
bool ls__rule_step_of(const ls_optimizer *kind, const ls_slice *slice, ls__rule_step *out);

#endif
