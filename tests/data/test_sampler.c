/* Cutting a batch, and the order of samples. */
#include "testing.h"

#include "data/loader.h"

static void check_cut(int64_t samples, int64_t unit, int micro_batches)
{
    ls__cut cut = { .batch = 64, .unit = unit, .micro_batches = micro_batches };
    int64_t expected = 0, least = INT64_MAX, most = 0;
    for (int s = 0; s < micro_batches; s++) {
        int64_t begin, end;
        ls__cut_micro_batch(&cut, samples, s, &begin, &end);
        if (begin != expected || end < begin || end > samples)
            fail_msg("%d samples by %d in %d: micro-batch %d is [%d, %d)", (int)samples, (int)unit,
                     micro_batches, s, (int)begin, (int)end);
        if (begin != samples) assert_int_equal(begin % unit, 0);
        int64_t units = (end - begin + unit - 1) / unit;
        if (units < least) least = units;
        if (units > most) most = units;
        expected = end;
    }
    assert_int_equal(expected, samples);
    assert_true(most - least <= 1);
}

static void cuts_cover_the_batch(void **state)
{
    (void)state;
    for (int64_t samples = 0; samples <= 64; samples++)
        for (int64_t unit = 1; unit <= 20; unit++)
            for (int micro_batches = 1; micro_batches <= 12; micro_batches++)
                check_cut(samples, unit, micro_batches);
}

static void a_cut_known_by_hand(void **state)
{
    (void)state;
    ls__cut cut = { .batch = 10, .unit = 0, .micro_batches = 4 };
    const int64_t edges[] = { 0, 2, 5, 7, 10 };
    for (int s = 0; s < 4; s++) {
        int64_t begin, end;
        ls__cut_micro_batch(&cut, 10, s, &begin, &end);
        assert_int_equal(begin, edges[s]);
        assert_int_equal(end, edges[s + 1]);
    }
}

static void every_epoch_is_a_permutation(void **state)
{
    (void)state;
    enum { N = 101 };
    int64_t indices[3 * N];
    ls__sampler_indices(7, N, 0, 3 * N, indices);
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[N] = { false };
        for (int i = 0; i < N; i++) {
            int64_t index = indices[epoch * N + i];
            assert_true(index >= 0 && index < N && !seen[index]);
            seen[index] = true;
            assert_int_equal(index, ls__sampler_index(7, N, epoch * N + i));
            assert_int_equal(ls__sampler_epoch(N, epoch * N + i), epoch);
        }
    }
    assert_memory_not_equal(indices, indices + N, N * sizeof *indices);
    assert_memory_not_equal(indices + N, indices + 2 * N, N * sizeof *indices);
    int64_t other[N];
    ls__sampler_indices(8, N, 0, N, other);
    assert_memory_not_equal(indices, other, sizeof other);
}

/* Any range is the same as that part of a longer one: resuming needs only the position. */
static void any_range_stands_alone(void **state)
{
    (void)state;
    enum { N = 37, ALL = 4 * N };
    int64_t all[ALL], some[ALL];
    ls__sampler_indices(3, N, 0, ALL, all);
    for (int begin = 0; begin < ALL; begin += 5) {
        for (int count = 0; count <= ALL - begin; count += 7) {
            ls__sampler_indices(3, N, begin, count, some);
            assert_memory_equal(some, all + begin, (size_t)count * sizeof *some);
        }
    }
}

static void a_dataset_of_one_sample(void **state)
{
    (void)state;
    int64_t indices[4];
    ls__sampler_indices(3, 1, 1000000, 4, indices);
    for (int i = 0; i < 4; i++) assert_int_equal(indices[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_cover_the_batch),         cmocka_unit_test(a_cut_known_by_hand),
        cmocka_unit_test(every_epoch_is_a_permutation), cmocka_unit_test(any_range_stands_alone),
        cmocka_unit_test(a_dataset_of_one_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
