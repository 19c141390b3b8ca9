/* What the run asks of the optimizer room: names, schedules, the rules for a tensor. */
#ifndef LS_OPTIM_H
#define LS_OPTIM_H

#include <lockstep/run.h>

const ls_optimizer *ls__optimizer_by_name(const char *name); /* "sgd", "nesterov", "adamw"; NULL */
int ls__optimizer_states(const ls_optimizer *optimizer);
bool ls__schedule_parse(const char *text,
                        ls_schedule *out); /* "constant", "linear", "cosine", "step" */
/* The learning rate of the step after `step` finished ones, of `steps` in all (0 = unknown: linear
 * and cosine are errors before the run). */
double ls__schedule_lr(const ls_run_options *options, double lr, int64_t step, int64_t steps);
typedef struct ls__param_settings {
    double lr_scale, weight_decay;
    bool frozen;
} ls__param_settings;
void ls__param_rules(const ls_param_rule *rules, double weight_decay, const char *name, bool decays,
                     ls__param_settings *out);

#endif
