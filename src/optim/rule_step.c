/* What a device needs to update a slice by one of our rules: the slice's settings as the numbers that
 * the rules' loops use. They are computed here once for host and device, in double. */
#include <math.h>

#include <lockstep/optimizer.h>

#include "optim/optim.h"

static void adamw_numbers(const ls_slice *s, ls__rule_step *out)
{
    double step = (double)s->step;
    out->keep = (float)(1 - s->lr * s->weight_decay);
    out->beta1 = (float)s->beta1;
    out->rest1 = (float)(1 - s->beta1);
    out->beta2 = (float)s->beta2;
    out->rest2 = (float)(1 - s->beta2);
    out->step_size = (float)(s->lr / (1 - pow(s->beta1, step)));
    out->root = (float)(1 / sqrt(1 - pow(s->beta2, step)));
}

static ls__rule rule_of(const ls_optimizer *kind, const ls_slice *s)
{
    if (kind == &ls_adamw) return LS__RULE_ADAMW;
    if (kind != &ls_sgd && kind != &ls_nesterov) return LS__RULE_NONE;
    if (s->momentum <= 0) return LS__RULE_SGD;
    return kind == &ls_sgd ? LS__RULE_MOMENTUM : LS__RULE_NESTEROV;
}

bool ls__rule_step_of(const ls_optimizer *kind, const ls_slice *slice, ls__rule_step *out)
{
    *out = (ls__rule_step) { .rule = rule_of(kind, slice),
                             .scale = slice->grad_scale,
                             .lr = (float)slice->lr,
                             .decay = (float)slice->weight_decay,
                             .momentum = (float)slice->momentum };
    if (out->rule == LS__RULE_ADAMW) adamw_numbers(slice, out);
    return out->rule != LS__RULE_NONE;
}
