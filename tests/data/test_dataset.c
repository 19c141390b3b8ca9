/* A dataset of one's own behind its checks, and the seeded split. */
#include "testing.h"

#include "base/memory.h"
#include "data/dataset_internal.h"

typedef struct numbers {
    int64_t length;
    int destroyed;
} numbers;

static int64_t numbers_length(void *self)
{
    return ((numbers *)self)->length;
}

/* Sample i is (i, i + 1) and -i; the 13th cannot be read. */
static ls_status numbers_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)self;
    if (index == 13) return ls_fail(LS_ERR_DATA, "thirteen.png: not an image");
    float *x = out[0];
    x[0] = (float)index;
    x[1] = rng ? (float)ls_rng_uniform(rng) : (float)(index + 1);
    *(int64_t *)out[1] = -index;
    return LS_OK;
}

static void numbers_destroy(void *self)
{
    ((numbers *)self)->destroyed++;
}

static const ls_dataset_ops numbers_ops = { numbers_length, numbers_read, numbers_destroy };
static const ls_field numbers_fields[] = {
    { "pair", LS_DTYPE_F32, 1, { 2 } },
    { "minus", LS_DTYPE_I64, 0, { 0 } },
};

static ls_dataset *make(numbers *self)
{
    ls_dataset *d;
    assert_ok(ls_dataset_create(&numbers_ops, self, numbers_fields, 2, &d));
    return d;
}

static int64_t read_one(const ls_dataset *d, int64_t index)
{
    float pair[2];
    int64_t minus;
    assert_ok(ls_dataset_read(d, index, NULL, (void *[]) { pair, &minus }));
    assert_true(pair[0] == (float)-minus && pair[1] == pair[0] + 1);
    return -minus;
}

static void reads_what_its_owner_says(void **state)
{
    (void)state;
    numbers self = { .length = 20 };
    char name[] = "pair";
    ls_field fields[2] = { numbers_fields[0], numbers_fields[1] };
    fields[0].name = name;
    ls_dataset *d;
    assert_ok(ls_dataset_create(&numbers_ops, &self, fields, 2, &d));
    name[0] = 'X'; /* names are copied */
    fields[1].rank = 3;
    int n;
    const ls_field *copies = ls_dataset_fields(d, &n);
    assert_int_equal(n, 2);
    assert_string_equal(copies[0].name, "pair");
    assert_int_equal(copies[1].rank, 0);
    assert_int_equal(ls_dataset_length(d), 20);
    assert_int_equal(read_one(d, 0), 0);
    assert_int_equal(read_one(d, 19), 19);
    ls_dataset_destroy(d);
    assert_int_equal(self.destroyed, 1);
    ls_dataset_destroy(NULL);
}

static void errors_name_dataset_and_index(void **state)
{
    (void)state;
    numbers self = { .length = 20 };
    ls_dataset *d = make(&self), *rest, *part;
    float pair[2];
    int64_t minus;
    void *out[] = { pair, &minus };
    assert_fails(ls_dataset_read(d, 13, NULL, out), LS_ERR_DATA,
                 "sample 13 of the dataset (pair, minus): thirteen.png: not an image");
    assert_fails(ls_dataset_read(d, 20, NULL, out), LS_ERR_ARG, "20 is not in [0, 20)");
    assert_fails(ls_dataset_read(d, -1, NULL, out), LS_ERR_ARG, "-1 is not in [0, 20)");
    assert_ok(
        ls_dataset_split(d, 1, 0, &rest, &part)); /* the error names the whole's index, once */
    int64_t i = 0;
    while (i < 20 && ls_dataset_read(part, i, NULL, out) == LS_OK) i++;
    assert_string_equal(ls_error_text(),
                        "sample 13 of the dataset (pair, minus): thirteen.png: not an image");
    ls_dataset_destroy(rest);
    ls_dataset_destroy(part);
    ls_dataset_destroy(d);
}

static ls_status create_with(const ls_field *fields, int n)
{
    static numbers self = { .length = 5 };
    ls_dataset *d;
    ls_status status = ls_dataset_create(&numbers_ops, &self, fields, n, &d);
    assert_null(d);
    return status;
}

static void wrong_fields_are_refused(void **state)
{
    (void)state;
    assert_fails(create_with(numbers_fields, 0), LS_ERR_ARG, "fields");
    assert_fails(create_with(NULL, 1), LS_ERR_ARG, "fields");
    ls_field twice[] = { numbers_fields[0], numbers_fields[0] };
    assert_fails(create_with(twice, 2), LS_ERR_ARG, "two fields of the dataset are named \"pair\"");
    ls_field f = { "x", (ls_dtype)77, 0, { 0 } };
    assert_fails(create_with(&f, 1), LS_ERR_ARG, "77");
    f = (ls_field) { "x", LS_DTYPE_F32, LS_MAX_RANK, { 1, 1, 1, 1, 1, 1 } };
    assert_fails(create_with(&f, 1), LS_ERR_SHAPE, "6 dimensions");
    f = (ls_field) { "x", LS_DTYPE_F32, 2, { 3, 0 } };
    assert_fails(create_with(&f, 1), LS_ERR_SHAPE, "dimension 1 is 0");
    f = (ls_field) { "x", LS_DTYPE_F32, 3, { INT64_MAX / 2, 16, 16 } };
    assert_fails(create_with(&f, 1), LS_ERR_SHAPE, "2^40");
    f = (ls_field) { "", LS_DTYPE_F32, 0, { 0 } };
    assert_fails(create_with(&f, 1), LS_ERR_ARG, "no name");
    ls_dataset *d;
    numbers negative = { .length = -4 };
    assert_fails(ls_dataset_create(&numbers_ops, &negative, numbers_fields, 2, &d), LS_ERR_ARG,
                 "-4");
    ls_dataset_ops no_read = { .length = numbers_length };
    assert_fails(ls_dataset_create(&no_read, &negative, numbers_fields, 2, &d), LS_ERR_ARG, "read");
}

static void a_split_is_a_partition(void **state)
{
    (void)state;
    const int64_t lengths[] = { 1, 2, 10, 13, 1000 };
    const double fractions[] = { 0, 0.1, 0.25, 0.5, 0.95, 1 };
    for (int a = 0; a < 5; a++) {
        numbers self = { .length = lengths[a] };
        ls_dataset *d = make(&self), *rest, *part;
        for (int b = 0; b < 6; b++) {
            int64_t n = (int64_t)(fractions[b] * (double)lengths[a] + 0.5);
            if (fractions[b] > 0 && fractions[b] < 1 && (n == 0 || n == lengths[a])) {
                assert_fails(ls_dataset_split(d, fractions[b], 5, &rest, &part), LS_ERR_DATA,
                             "empty");
                assert_true(!rest && !part);
                continue;
            }
            assert_ok(ls_dataset_split(d, fractions[b], 5, &rest, &part));
            assert_int_equal(ls_dataset_length(part), n);
            assert_int_equal(ls_dataset_length(rest), lengths[a] - n);
            char seen[1000] = { 0 };
            int64_t total = 0, in_place = 0;
            for (int64_t i = 0; i < lengths[a]; i++) {
                const ls_dataset *half = i < n ? part : rest;
                int64_t at = i < n ? i : i - n;
                float pair[2];
                int64_t minus;
                ls_status status = ls_dataset_read(half, at, NULL, (void *[]) { pair, &minus });
                if (status != LS_OK) {
                    assert_non_null(strstr(ls_error_text(), "sample 13 "));
                    minus = -13;
                }
                total += !seen[-minus]++;
                in_place += -minus == i;
            }
            assert_int_equal(total, lengths[a]);
            if (lengths[a] == 1000) assert_true(in_place < 20); /* shuffled */
            ls_dataset_destroy(rest);
            ls_dataset_destroy(part);
        }
        assert_int_equal(self.destroyed, 0); /* borrowed */
        ls_dataset_destroy(d);
    }
}

static void a_split_depends_on_the_seed_alone(void **state)
{
    (void)state;
    numbers self = { .length = 12 };
    ls_dataset *d = make(&self), *rest, *part, *again, *again_part, *other, *other_part;
    assert_ok(ls_dataset_split(d, 0.5, 1, &rest, &part));
    assert_ok(ls_dataset_split(d, 0.5, 1, &again, &again_part));
    assert_ok(ls_dataset_split(d, 0.5, 2, &other, &other_part));
    int same = 0;
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(read_one(part, i), read_one(again_part, i));
        same += read_one(part, i) == read_one(other_part, i);
    }
    assert_true(same < 6);
    ls_dataset *all[] = { rest, part, again, again_part, other, other_part, d };
    for (int i = 0; i < 7; i++) ls_dataset_destroy(all[i]);
}

static void wrong_splits_are_refused(void **state)
{
    (void)state;
    numbers self = { .length = 12 }, nothing = { .length = 0 };
    ls_dataset *d = make(&self), *empty = make(&nothing), *rest, *part;
    assert_fails(ls_dataset_split(d, -0.1, 1, &rest, &part), LS_ERR_ARG, "-0.1");
    assert_fails(ls_dataset_split(d, 1.5, 1, &rest, &part), LS_ERR_ARG, "1.5");
    assert_fails(ls_dataset_split(d, 0.0 / 0.0, 1, &rest, &part), LS_ERR_ARG, "nan");
    assert_fails(ls_dataset_split(empty, 0.5, 1, &rest, &part), LS_ERR_DATA, "no samples");
    ls_dataset_destroy(d);
    ls_dataset_destroy(empty);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    numbers self = { .length = 12 };
    ls_dataset *d, *rest, *part;
    long n = 1;
    for (;; n++) {
        ls__alloc_fail_at(n);
        ls_status status = ls_dataset_create(&numbers_ops, &self, numbers_fields, 2, &d);
        ls__alloc_fail_at(0);
        if (status == LS_OK) break;
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(d);
    }
    assert_true(n > 3);
    for (n = 1;; n++) {
        ls__alloc_fail_at(n);
        ls_status status = ls_dataset_split(d, 0.5, 1, &rest, &part);
        ls__alloc_fail_at(0);
        if (status == LS_OK) break;
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_true(!rest && !part);
    }
    assert_true(n > 3);
    ls_dataset_destroy(rest);
    ls_dataset_destroy(part);
    ls_dataset_destroy(d);
    assert_int_equal(self.destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_its_owner_says),
        cmocka_unit_test(errors_name_dataset_and_index),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(a_split_is_a_partition),
        cmocka_unit_test(a_split_depends_on_the_seed_alone),
        cmocka_unit_test(wrong_splits_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
