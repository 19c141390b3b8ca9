/* States: memory that a graph's caller keeps from one run to the next. Only graphs that predict
 * token by token have them: where each text is, and the keys and values of its earlier tokens. */
#include "graph/construct.h"

#include <string.h>

#include "base/check.h"

int ls__graph_states(const ls_graph *g, const ls__graph_state **states)
{
    if (states) *states = g->states;
    return g->nstates;
}

static ls_tensor *known_state(ls_graph *g, const ls__graph_state *state, const ls_array *wanted)
{
    ls_tensor probe = { .rank = wanted->rank };
    memcpy(probe.shape, wanted->shape, sizeof probe.shape);
    if (state->tensor->type == wanted->type && ls__tensor_same_shape(state->tensor, &probe))
        return state->tensor;
    return ls__graph_fail(g, LS_ERR_SHAPE,
                          "state \"%s\" exists with another shape or type: give each layer its own "
                          "name",
                          state->name);
}

ls_tensor *ls__graph_state_tensor(ls_graph *g, const char *name, ls_dtype type, int rank,
                                  const int64_t *shape)
{
    if (!g || g->status != LS_OK) return NULL;
    LS_ASSERT(g->options.decode > 0 && rank < LS_MAX_RANK);
    ls_array array = { .type = type, .rank = rank + 1, .shape = { g->options.batch } };
    for (int i = 0; i < rank; i++) array.shape[i + 1] = shape[i];
    for (int i = 0; i < g->nstates; i++)
        if (!strcmp(g->states[i].name, name)) return known_state(g, &g->states[i], &array);
    const char *copy = ls__graph_strdup(g, name);
    if (!copy || !ls__graph_grow(g, &g->states, g->nstates, &g->state_room, sizeof *g->states))
        return NULL;
    ls_tensor *x = ls__graph_tensor(g, LS__ROLE_STATE, &array);
    if (!x) return NULL;
    x->slot = g->nstates;
    x->batched = x->sample_major = true;
    g->states[g->nstates++] = (ls__graph_state) { .name = copy, .tensor = x };
    return x;
}

ls_tensor *ls__graph_position(ls_graph *g)
{
    if (!g || g->options.decode == 0) return NULL;
    return ls__graph_state_tensor(g, "position", LS_DTYPE_I32, 0, NULL);
}
