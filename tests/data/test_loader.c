/* The loader with and without threads: order, buffers, errors, shutdown at any time. */
#include <pthread.h>
#include <unistd.h>

#include "testing.h"

#include "base/memory.h"
#include "base/random.h"
#include "data/loader.h"

/* Sample i is its index and a draw of its stream; reading `bad` fails; some reads take long. */
typedef struct slow {
    int64_t length, bad;
    int delay_us;
} slow;

static int64_t slow_length(void *self)
{
    return ((slow *)self)->length;
}

static ls_status slow_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    const slow *s = self;
    if (s->delay_us && index % 3 == 0) usleep((useconds_t)s->delay_us);
    if (index == s->bad) return ls_fail(LS_ERR_DATA, "bad.png: not an image");
    *(int64_t *)out[0] = index;
    float *x = out[1];
    for (int i = 0; i < 3; i++) x[i] = rng ? (float)ls_rng_uniform(rng) : -1;
    return LS_OK;
}

static const ls_dataset_ops slow_ops = { .length = slow_length, .read = slow_read };
static const ls_field slow_fields[] = { { "index", LS_DTYPE_I64, 0, { 0 } },
                                        { "x", LS_DTYPE_F32, 1, { 3 } } };

/* Batches of sizes 4, 0, 4, 5, 4, 0, ... one after the other, `batches` in all. */
typedef struct plan {
    int64_t batches, origin;
} plan;

static int64_t size_of(int64_t k)
{
    return k % 4 == 1 ? 0 : k % 4 == 3 ? 5 : 4;
}

static bool planned(void *user, int64_t k, int64_t *begin, int64_t *count)
{
    const plan *p = user;
    if (k >= p->batches) return false;
    *begin = p->origin + k / 4 * 13;
    for (int64_t i = k / 4 * 4; i < k; i++) *begin += size_of(i);
    *count = size_of(k);
    return true;
}

static ls_dataset *make(slow *self)
{
    ls_dataset *d;
    assert_ok(ls_dataset_create(&slow_ops, self, slow_fields, 2, &d));
    return d;
}

static void check_batch(const ls__loader_batch *b, const ls__loader_options *o, int64_t length)
{
    assert_int_equal((uintptr_t)b->fields[0] % 64, 0);
    assert_int_equal((uintptr_t)b->fields[1] % 64, 0);
    for (int64_t i = 0; i < b->count; i++) {
        int64_t position = b->begin + i;
        int64_t index = o->training ? ls__sampler_index(o->seed, length, position) : position;
        assert_int_equal(b->samples[i], index);
        assert_int_equal(((const int64_t *)b->fields[0])[i], index);
        ls_rng rng;
        ls__rng_init(&rng, o->seed, "augment", (uint64_t)(position / length), (uint64_t)index);
        for (int j = 0; j < 3; j++) {
            float x = o->training ? (float)ls_rng_uniform(&rng) : -1;
            assert_true(((const float *)b->fields[1])[i * 3 + j] == x);
        }
    }
}

static const int thread_counts[] = { LS_NONE, 1, 2, 5 };

static void batches_come_in_order(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        for (int depth = 0; depth < 8; depth += 1 + depth) {
            slow self = { .length = 60, .bad = -1, .delay_us = depth == 1 ? 200 : 0 };
            ls_dataset *d = make(&self);
            plan p = { .batches = 50 };
            ls__loader_options o = { .dataset = d,
                                     .seed = 9,
                                     .training = true,
                                     .threads = thread_counts[t],
                                     .depth = depth,
                                     .max_count = 5,
                                     .plan = planned,
                                     .user = &p };
            ls__loader *l;
            assert_ok(ls__loader_create(&o, &l));
            ls__loader_batch b;
            bool more;
            for (int64_t k = 0; k < p.batches; k++) {
                int64_t begin, count;
                assert_true(planned(&p, k, &begin, &count));
                assert_ok(ls__loader_next(l, &b, &more));
                assert_true(more);
                assert_int_equal(b.begin, begin);
                assert_int_equal(b.count, count);
                check_batch(&b, &o, self.length);
            }
            for (int i = 0; i < 3; i++) { /* the end stays the end */
                assert_ok(ls__loader_next(l, &b, &more));
                assert_false(more);
            }
            ls__loader_destroy(l);
            ls_dataset_destroy(d);
        }
    }
}

static void evaluation_keeps_the_datasets_order(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        slow self = { .length = 26, .bad = -1 };
        ls_dataset *d = make(&self);
        plan p = { .batches = 8 };
        ls__loader_options o = {
            .dataset = d, .threads = thread_counts[t], .max_count = 5, .plan = planned, .user = &p
        };
        ls__loader *l;
        assert_ok(ls__loader_create(&o, &l));
        ls__loader_batch b;
        bool more;
        int64_t total = 0;
        for (;;) {
            assert_ok(ls__loader_next(l, &b, &more));
            if (!more) break;
            assert_int_equal(b.begin, total);
            check_batch(&b, &o, self.length);
            total += b.count;
        }
        assert_int_equal(total, 26);
        ls__loader_destroy(l);
        ls_dataset_destroy(d);
    }
}

static void a_read_error_comes_in_its_turn(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        slow self = { .length = 200, .bad = 70, .delay_us = 50 };
        ls_dataset *d = make(&self);
        plan p = { .batches = 60 };
        ls__loader_options o = {
            .dataset = d, .threads = thread_counts[t], .max_count = 5, .plan = planned, .user = &p
        };
        ls__loader *l;
        assert_ok(ls__loader_create(&o, &l));
        ls__loader_batch b;
        bool more;
        for (int64_t k = 0;; k++) { /* every batch before the one with sample 70 */
            int64_t begin = 0, count = 0;
            assert_true(planned(&p, k, &begin, &count));
            if (begin + count > 70) break;
            assert_ok(ls__loader_next(l, &b, &more));
            assert_true(more);
            assert_int_equal(b.begin, begin);
        }
        for (int i = 0; i < 3; i++) {
            assert_fails(ls__loader_next(l, &b, &more), LS_ERR_DATA,
                         "sample 70 of the dataset (index, x): bad.png: not an image");
            assert_false(more);
        }
        ls__loader_destroy(l);
        ls_dataset_destroy(d);
    }
}

static void destroyed_at_any_time(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        for (int taken = 0; taken < 12; taken++) {
            slow self = { .length = 300, .bad = taken % 3 == 2 ? 20 : -1, .delay_us = 300 };
            ls_dataset *d = make(&self);
            plan p = { .batches = 60, .origin = taken };
            ls__loader_options o = { .dataset = d,
                                     .threads = thread_counts[t],
                                     .max_count = 5,
                                     .depth = 1 + taken % 3,
                                     .plan = planned,
                                     .user = &p };
            ls__loader *l;
            assert_ok(ls__loader_create(&o, &l));
            ls__loader_batch b;
            bool more;
            for (int k = 0; k < taken; k++)
                if (ls__loader_next(l, &b, &more) != LS_OK) break;
            ls__loader_destroy(l);
            ls_dataset_destroy(d);
        }
    }
    ls__loader_destroy(NULL);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    slow self = { .length = 20, .bad = -1 }, nothing = { .length = 0 };
    ls_dataset *d = make(&self), *empty = make(&nothing);
    plan p = { .batches = 1 };
    ls__loader *l;
    ls__loader_options good = { .dataset = d, .max_count = 5, .plan = planned, .user = &p };
    ls__loader_options o = good;
    o.threads = -2;
    assert_fails(ls__loader_create(&o, &l), LS_ERR_ARG, "-2 loader threads");
    o = good;
    o.max_count = 0;
    assert_fails(ls__loader_create(&o, &l), LS_ERR_ARG, "at least one sample");
    o = good;
    o.max_count = INT64_MAX / 2;
    assert_fails(ls__loader_create(&o, &l), LS_ERR_MEMORY, "beyond any memory");
    o = good;
    o.dataset = empty;
    assert_fails(ls__loader_create(&o, &l), LS_ERR_DATA, "no samples");
    assert_null(l);
    ls_dataset_destroy(d);
    ls_dataset_destroy(empty);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    slow self = { .length = 200, .bad = -1 };
    ls_dataset *d = make(&self);
    plan p = { .batches = 60 };
    ls__loader_options o = {
        .dataset = d, .threads = 2, .max_count = 5, .plan = planned, .user = &p
    };
    for (long n = 1;; n++) {
        ls__loader *l;
        ls__alloc_fail_at(n);
        ls_status status = ls__loader_create(&o, &l);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            assert_true(n > 5);
            ls__loader_destroy(l);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(l);
    }
    ls_dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_order),
        cmocka_unit_test(evaluation_keeps_the_datasets_order),
        cmocka_unit_test(a_read_error_comes_in_its_turn),
        cmocka_unit_test(destroyed_at_any_time),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
