/* Loops over shapes that broadcast. Merged when a step runs, since the rows of a tile are known only
 * then; that takes some tens of nanoseconds for a tile of thousands of elements. */
#include "backend/cpu/broadcast.h"

static bool spans(const ls_tensor *x, const cpu_broadcast *s, int i)
{
    int own = x ? i - (s->rank - x->rank) : -1;
    return own >= 0 && x->shape[own] == s->size[i];
}

void ls__cpu_broadcast(cpu_broadcast *s, const ls_tensor *shape, const ls_tensor *a,
                       const ls_tensor *b)
{
    *s = (cpu_broadcast) { .rank = shape->rank ? shape->rank : 1, .size = { 1 } };
    for (int i = 0; i < shape->rank; i++) s->size[i] = shape->shape[i];
    for (int i = 0; i < shape->rank; i++) {
        s->spans[0][i] = spans(a, s, i);
        s->spans[1][i] = spans(b, s, i);
    }
}

void ls__cpu_loops(cpu_loops *l, const cpu_broadcast *s, int64_t rows)
{
    *l = (cpu_loops) { .n = 0 };
    int last = -1;
    for (int i = 0; i < s->rank; i++) {
        int64_t size = i == 0 ? rows : s->size[i];
        if (size == 1 && (l->n > 0 || i + 1 < s->rank)) continue; /* one loop there must be */
        bool same =
            l->n > 0 && s->spans[0][i] == s->spans[0][last] && s->spans[1][i] == s->spans[1][last];
        if (!same) l->size[l->n++] = 1;
        l->size[l->n - 1] *= size;
        for (int k = 0; k < 2; k++) l->stride[k][l->n - 1] = s->spans[k][i];
        last = i;
    }
    for (int k = 0; k < 2; k++) {
        int64_t count = 1;
        for (int i = l->n - 1; i >= 0; i--) {
            if (!l->stride[k][i]) continue;
            l->stride[k][i] = count;
            count *= l->size[i];
        }
    }
}

bool ls__cpu_loops_next(cpu_loops *l)
{
    for (int i = l->n - 2; i >= 0; i--) {
        l->offset[0] += l->stride[0][i];
        l->offset[1] += l->stride[1][i];
        if (++l->index[i] < l->size[i]) return true;
        l->offset[0] -= l->stride[0][i] * l->size[i];
        l->offset[1] -= l->stride[1][i] * l->size[i];
        l->index[i] = 0;
    }
    return false;
}
