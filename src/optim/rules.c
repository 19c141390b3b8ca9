/* Names of optimizers, and which settings a tensor gets. Called once per tensor and run. */
#include <fnmatch.h>
#include <string.h>

#include "optim/optim.h"

const ls_optimizer *ls__optimizer_by_name(const char *name)
{
    const ls_optimizer *const ours[] = { &ls_sgd, &ls_nesterov, &ls_adamw };
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strcmp(ours[i]->name, name) == 0) return ours[i];
    return NULL;
}

int ls__optimizer_states(const ls_optimizer *optimizer)
{
    int count = 0;
    while (optimizer->states && optimizer->states[count]) count++;
    return count;
}

void ls__param_rules(const ls_param_rule *rules, double weight_decay, const char *name, bool decays,
                     ls__param_settings *out)
{
    *out = (ls__param_settings) {
        .lr_scale = 1,
        .weight_decay = decays && weight_decay > 0 ? weight_decay : 0,
    };
    for (const ls_param_rule *rule = rules; rule && rule->match; rule++) {
        if (fnmatch(rule->match, name, 0) != 0) continue;
        if (rule->lr_scale != 0) out->lr_scale = rule->lr_scale;
        if (rule->weight_decay != 0)
            out->weight_decay = rule->weight_decay > 0 ? rule->weight_decay : 0;
        out->frozen = rule->freeze;
        return;
    }
}
