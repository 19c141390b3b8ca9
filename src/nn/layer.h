/* What layers share: their checks, whose failures name the layer. */
#ifndef LS_NN_LAYER_H
#define LS_NN_LAYER_H

#include <lockstep/nn.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

/* True when a layer can go on: x is there, f32 where wanted, with at least (or exactly) so many
 * dimensions, and name is one. A failure is latched as: what "name": ... */
bool ls__layer_check(const char *what, const char *name, const ls_tensor *x, int min_rank,
                     int max_rank);
/* The parameter <name>.<part>. */
ls_tensor *ls__layer_param(ls_graph *g, const char *name, const char *part, ls_init init, int rank,
                           const int64_t *shape);

#endif
