/* Counts in how many steps of a window who was the last. */
#include "run/stragglers.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { WINDOW = 50, MOST = 35 };

static const double least_ms = 10, least_share = 0.2; /* of a step: less is not worth a word */

ls_status ls__stragglers_make(ls__stragglers *s, int size, const int *node_of)
{
    *s = (ls__stragglers) { .size = size, .node_of = node_of };
    s->sorted = ls__alloc((size_t)size, sizeof *s->sorted);
    s->ranks = ls__alloc((size_t)size, sizeof *s->ranks);
    s->nodes = ls__alloc((size_t)size, sizeof *s->nodes);
    return s->sorted && s->ranks && s->nodes ? LS_OK : LS_ERR_MEMORY;
}

void ls__stragglers_free(ls__stragglers *s)
{
    ls__free(s->sorted);
    ls__free(s->ranks);
    ls__free(s->nodes);
    *s = (ls__stragglers) { 0 };
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void count(struct ls__late *late, double held_ms)
{
    late->steps++;
    late->held_ms += held_ms;
}

/* The first that was the last in most steps of the window and was not told of. -1 = none. */
static int find(struct ls__late *list, int n, ls__straggler *out)
{
    int found = -1;
    for (int i = 0; i < n; i++) {
        if (found < 0 && list[i].steps >= MOST && !list[i].told) found = i;
        if (found == i) {
            list[i].told = true;
            out->steps = list[i].steps;
            out->of = WINDOW;
            out->held_ms = list[i].held_ms / list[i].steps;
        }
        list[i].steps = 0;
        list[i].held_ms = 0;
    }
    return found;
}

bool ls__stragglers_step(ls__stragglers *s, const float *waits_ms, double step_ms,
                         ls__straggler *out)
{
    int last = 0;
    if (s->size < 2) return false;
    for (int r = 1; r < s->size; r++)
        if (waits_ms[r] < waits_ms[last]) last = r;
    memcpy(s->sorted, waits_ms, (size_t)s->size * sizeof *waits_ms);
    qsort(s->sorted, (size_t)s->size, sizeof *s->sorted, by_value);
    double held_ms = (double)s->sorted[s->size / 2] - (double)waits_ms[last];
    if (held_ms > least_ms && held_ms > least_share * step_ms) {
        count(&s->ranks[last], held_ms);
        if (s->node_of) count(&s->nodes[s->node_of[last]], held_ms);
    }
    if (++s->steps < WINDOW) return false;
    s->steps = 0;
    ls__straggler machine;
    int node = find(s->nodes, s->size, &machine);
    out->rank = find(s->ranks, s->size, out);
    out->node = out->rank < 0 ? node : s->node_of ? s->node_of[out->rank] : 0;
    if (out->rank >= 0) return true;
    machine.rank = -1;
    machine.node = node;
    *out = machine;
    return node >= 0;
}
