/* What the steps of a cross-entropy share: labels, and loops over a row's scores. */
#ifndef LS_BACKEND_CPU_LOSS_H
#define LS_BACKEND_CPU_LOSS_H

#include "backend/cpu/cpu.h"

/* True when the label is a class; notes an impossible one. */
bool ls__cpu_label_counts(const cpu_call *call, int64_t sample, int64_t label, int64_t classes);
/* The sum of exp(x - base), in one pass. base: a large one of x, -inf when all are; the sum is NaN
 * where one is NaN or inf. */
double ls__cpu_sum_exp(const float *x, int64_t n, float *base);
/* dx = exp(x - logsum) g; may be x */
void ls__cpu_scores_grad(const float *x, int64_t n, float logsum, float g, float *dx);
/* A step that fills a cross-entropy's weights. */
ls_status ls__cpu_target_weights(cpu_builder *b, const ls_tensor *labels, int64_t classes,
                                 const ls_tensor *weights);

#endif
