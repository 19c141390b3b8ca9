/* A dataset cut in two by a seeded shuffle. Neither half keeps a list: a half is a range of
 * positions of one permutation, computed per read, so that a split of a billion samples costs
 * nothing. */
#include <math.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_internal.h"

typedef struct half {
    const ls_dataset *whole;
    ls__permutation order;
    int64_t begin, count; /* positions */
} half;

static int64_t half_length(void *self)
{
    return ((const half *)self)->count;
}

static ls_status half_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    const half *h = self;
    return ls_dataset_read(h->whole, ls__permutation_at(&h->order, h->begin + index), rng, out);
}

static const ls_dataset_ops half_ops = {
    .length = half_length,
    .read = half_read,
    .destroy = ls__free,
};

static ls_status make_half(const ls_dataset *whole, const half *like, ls_dataset **out)
{
    half *h = ls__alloc(1, sizeof *h);
    if (!h) return LS_ERR_MEMORY;
    *h = *like;
    ls_status status =
        ls__dataset_create(&half_ops, h, whole->fields, whole->nfields, whole->name, out);
    if (status != LS_OK) {
        ls__free(h);
        return status;
    }
    (*out)->is_view = true;
    (*out)->in_memory = whole->in_memory;
    return LS_OK;
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
                       "split of %s: a fraction of %g of %lld samples leaves one side empty",
                       whole->name, fraction, (long long)whole->length);
    half h = { .whole = whole, .begin = 0, .count = n };
    ls__permutation_init(&h.order, seed, "split", 0, whole->length);
    LS_TRY(make_half(whole, &h, part));
    h.begin = n;
    h.count = whole->length - n;
    ls_status status = make_half(whole, &h, rest);
    if (status != LS_OK) {
        ls_dataset_destroy(*part);
        *part = NULL;
    }
    return status;
}
