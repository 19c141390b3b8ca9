/* A dataset cut in two by a seeded shuffle. Neither half keeps a list: a half is a range of
 * positions of one permutation, computed per read, so that a split of a billion samples costs
 * nothing. */
#include <math.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_internal.h"

typedef struct half {
    ls__permutation order;
    int64_t begin; /* its first position */
} half;

static int64_t place_in_whole(const void *self, int64_t index)
{
    const half *h = self;
    return ls__permutation_at(&h->order, h->begin + index);
}

/* Positions [begin, begin + count) of order. */
static ls_status make_half(const ls_dataset *whole, const ls__permutation *order, int64_t begin,
                           int64_t count, ls_dataset **out)
{
    half *h = ls__alloc(1, sizeof *h);
    if (!h) return LS_ERR_MEMORY;
    *h = (half) { .order = *order, .begin = begin };
    ls_status status = ls__dataset_view(whole, place_in_whole, h, count, out);
    if (status != LS_OK) ls__free(h);
    return status;
}

ls_status ls_dataset_split(ls_dataset *whole, double fraction, uint64_t seed, ls_dataset **rest,
                           ls_dataset **part)
{
    *rest = *part = NULL;
    if (!(fraction >= 0 && fraction <= 1))
        return ls_fail(LS_ERR_ARG, "split of %s: the fraction %g is not in [0, 1]", whole->name,
                       fraction);
    if (whole->length == 0)
        return ls_fail(LS_ERR_DATA, "split of %s: it has no samples", whole->name);
    int64_t n = (int64_t)llround(fraction * (double)whole->length);
    if (n > whole->length) n = whole->length;
    bool one_is_empty = n == 0 || n == whole->length;
    if (one_is_empty && fraction > 0 && fraction < 1)
        return ls_fail(LS_ERR_DATA,
                       "%s: %lld sample%s cannot be split: a fraction of %g leaves one side "
                       "empty; give more data, or data of its own to validate on",
                       whole->name, (long long)whole->length, whole->length == 1 ? "" : "s",
                       fraction);
    ls__permutation order;
    ls__permutation_init(&order, seed, "split", 0, whole->length);
    LS_TRY(make_half(whole, &order, 0, n, part));
    ls_status status = make_half(whole, &order, n, whole->length - n, rest);
    if (status != LS_OK) {
        ls_dataset_destroy(*part);
        *part = NULL;
    }
    return status;
}
