/* Analytic gradients against central differences, both in double precision by the reference
 * executor: rules are right or wrong by orders of magnitude. */
#ifndef LS_TESTS_DIFFERENCES_H
#define LS_TESTS_DIFFERENCES_H

#include "reference.h"

/* Parameters and inputs filled; integer fields get labels in [0, 5), those of i64 some ignored. */
reference *differences_prepare(const ls_graph *g);
/* The sum of weight * loss after a run. */
double differences_objective(reference *r);
/* Checks every element of every parameter and f32 input; expects at least `checked` tensors. */
void differences_check(ls_step_fn *step, void *user, int64_t batch, const ls_field *fields,
                       int nfields, int checked);

#endif
