/* Tables: what numpy makes of one, schemas and their files, other files under a schema, refusals. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "testing.h"

#include "base/log.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "helper_data_files.h"

static const char *golden_path(const char *name)
{
    static char path[LS_PATH_MAX];
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, LS_PATH_MAX, "%s/tests/data/table_golden/%s", source ? source : "../../..",
             name);
    return path;
}

static double at(const json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

static void check_row(const ls_dataset *d, int64_t row, const json_t *e)
{
    float numbers[8];
    int32_t categories[4], class;
    float target;
    const json_t *x = json_array_get(json_object_get(e, "numbers"), (size_t)row);
    const json_t *c = json_array_get(json_object_get(e, "categories"), (size_t)row);
    double wanted = at(json_object_get(e, "target"), (size_t)row);
    bool classes = json_object_get(e, "classes") != NULL;
    assert_ok(ls_dataset_read(
        d, row, NULL, (void *[]) { numbers, categories, classes ? (void *)&class : &target }));
    for (size_t i = 0; i < json_array_size(x); i++)
        if (fabs((double)numbers[i] - at(x, i)) > 1e-6 * (1 + fabs(at(x, i))))
            fail_msg("row %lld, number %zu: %g, not %g", (long long)row, i, (double)numbers[i],
                     at(x, i));
    for (size_t i = 0; i < json_array_size(c); i++) assert_int_equal(categories[i], at(c, i));
    if (classes)
        assert_int_equal(class, wanted);
    else
        assert_true(fabs((double)target - wanted) < 1e-5);
}

static void check_schema(const ls_table_schema *s, const json_t *e)
{
    const int64_t *sizes;
    const json_t *wanted = json_object_get(e, "sizes"), *classes = json_object_get(e, "classes");
    assert_int_equal(2 * (size_t)ls_table_numbers(s),
                     json_array_size(json_array_get(json_object_get(e, "numbers"), 0)));
    assert_int_equal(ls_table_categories(s, &sizes), json_array_size(wanted));
    for (size_t i = 0; i < json_array_size(wanted); i++) assert_int_equal(sizes[i], at(wanted, i));
    assert_int_equal(ls_table_classes(s), json_array_size(classes));
    for (size_t i = 0; i < json_array_size(classes); i++)
        assert_string_equal(ls_table_class(s, (int64_t)i),
                            json_string_value(json_array_get(classes, i)));
    double mean, deviation;
    ls_table_target_scale(s, &mean, &deviation);
    if (classes) return;
    assert_true(fabs(mean / json_number_value(json_object_get(e, "mean")) - 1) < 1e-12);
    assert_true(fabs(deviation / json_number_value(json_object_get(e, "deviation")) - 1) < 1e-12);
}

static void as_numpy_does(void **state)
{
    (void)state;
    const ls_table_options options[] = { { .drop = "id" },
                                         { .target = "job", .drop = "id,income" } };
    json_t *expected = json_load_file(golden_path("people.json"), 0, NULL);
    for (size_t i = 0; i < 2; i++) {
        const json_t *e = json_array_get(expected, i);
        ls_table_schema *s;
        ls_dataset *d;
        assert_ok(ls_table_schema_learn(golden_path("people.csv"), &options[i], &s));
        for (int loaded = 0; loaded < 2; loaded++) {
            assert_string_equal(ls_table_target(s), i == 0 ? "income" : "job");
            check_schema(s, e);
            assert_ok(ls_dataset_table(golden_path("people.csv"), s, &d));
            assert_int_equal(ls_dataset_length(d), 40);
            assert_true(d->in_memory);
            assert_int_equal(ls_dataset_classes(d), ls_table_classes(s));
            for (int64_t row = 0; row < 40; row++) check_row(d, row, e);
            ls_dataset_destroy(d);
            assert_ok(ls_table_schema_save(s, write_file("schema.json", "", 0)));
            ls_table_schema_destroy(s);
            assert_ok(ls_table_schema_load(test_path("schema.json"), &s));
        }
        ls_table_schema_destroy(s);
    }
    json_decref(expected);
    ls_table_schema_destroy(NULL);
}

static ls_status learn(const char *csv, const ls_table_options *options, ls_table_schema **out)
{
    return ls_table_schema_learn(write_file("t.csv", csv, strlen(csv)), options, out);
}

static void kinds_of_columns(void **state)
{
    (void)state;
    ls_table_schema *s;
    ls_dataset *d;
    float numbers[4], target;
    int32_t categories[3];
    const int64_t *sizes;
    /* zip: a category though it looks like a number; name: too many texts; flat: no deviation */
    static const char text[] = "zip,name,flat,x,y\n10,a,5,1,2\n9,b,5,,4\n10,c,5,3,6\n";
    assert_ok(learn(text, &(ls_table_options) { .categories = "zip", .hash_above = 2 }, &s));
    assert_int_equal(ls_table_numbers(s), 2);
    assert_int_equal(ls_table_categories(s, &sizes), 2);
    assert_int_equal(sizes[0], 3);
    assert_int_equal(sizes[1], 3); /* 2 buckets */
    assert_ok(ls_dataset_table(test_path("t.csv"), s, &d));
    assert_ok(ls_dataset_read(d, 1, NULL, (void *[]) { numbers, categories, &target }));
    assert_int_equal(categories[0], 1); /* 9 < 10 as numbers */
    assert_in_range(categories[1], 1, 2);
    assert_true(numbers[0] == 0 && numbers[1] == 0 && numbers[2] == 0 && numbers[3] == 1);
    assert_true(target == 0);
    ls_dataset_destroy(d);
    ls_table_schema_destroy(s);
    /* Some identifiers look like numbers beyond all bounds: texts among texts. */
    assert_ok(learn("id,y\n8837e10355,1\nab,2\n1e5,4\n", NULL, &s));
    assert_int_equal(ls_table_categories(s, &sizes), 1);
    assert_int_equal(sizes[0], 4);
    ls_table_schema_destroy(s);
    /* Decimal commas; a target of numbers as classes in their order. */
    assert_ok(
        learn("x;class\n1,5;10\n2,5;9\n3,5;10\n", &(ls_table_options) { .classify = true }, &s));
    assert_int_equal(ls_table_classes(s), 2);
    assert_string_equal(ls_table_class(s, 0), "9");
    assert_null(ls_table_class(s, 2));
    assert_ok(ls_dataset_table(test_path("t.csv"), s, &d));
    assert_ok(ls_dataset_read(d, 2, NULL, (void *[]) { numbers, categories }));
    assert_true(fabsf(numbers[0] - 1.2247449f) < 1e-6f);
    assert_int_equal(categories[0], 1);
    ls_dataset_destroy(d);
    ls_table_schema_destroy(s);
}

static void other_files(void **state)
{
    (void)state;
    ls_table_schema *s;
    ls_dataset *d;
    float numbers[2];
    int32_t category, class;
    assert_ok(learn("x,city,t\n1,Ulm,no\n3,Kiel,yes\n", NULL, &s));
    /* Another order, one more column, an unknown city; and no target at all. */
    static const char other[] = "city,more,x\nRom,1,3\n,2,NA\nUlm,3,2\n";
    assert_ok(ls_dataset_table(write_file("o.csv", other, strlen(other)), s, &d));
    int nfields;
    ls_dataset_fields(d, &nfields);
    assert_int_equal(nfields, 2);
    const int32_t wanted[] = { 0, 0, 2 };
    for (int i = 0; i < 3; i++) {
        assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { numbers, &category }));
        assert_int_equal(category, wanted[i]);
        assert_true(numbers[0] == (i == 0 ? 1.0f : 0.0f) && numbers[1] == (i == 1 ? 1.0f : 0.0f));
    }
    ls_dataset_destroy(d);
    const struct {
        const char *text, *says;
    } bad[] = {
        { "city,t\nUlm,no\n", "o.csv: the column \"x\" is missing" },
        { "x,city,t\n1,Ulm,no\nold,Ulm,no\n",
          "o.csv:3: column 1 (\"x\"): \"old\" is not a finite number" },
        { "x,city,t\n1,Ulm,perhaps\n",
          "o.csv:2: column 3 (\"t\"): \"perhaps\" is none of the 2 classes" },
        { "x,city,t\n1,Ulm,\n", "o.csv:2: column 3 (\"t\"): the target is missing" },
        { "x,city,t\n1,Ulm\n", "o.csv:2: 2 fields, but the header names 3 columns" },
        { "x,city,t\n1e300,Ulm,no\n", "1e300 is beyond what its standardized value can be" },
        { "x,city,t\n", "o.csv: no rows behind the header" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file("o.csv", bad[i].text, strlen(bad[i].text));
        assert_fails(ls_dataset_table(test_path("o.csv"), s, &d), LS_ERR_DATA, bad[i].says);
        assert_null(d);
    }
    assert_ok(ls_dataset_table(test_path("t.csv"), s, &d));
    assert_ok(ls_dataset_read(d, 1, NULL, (void *[]) { numbers, &category, &class }));
    assert_int_equal(class, 1);
    ls_dataset_destroy(d);
    ls_table_schema_destroy(s);
}

static void learn_fails(const char *csv, const ls_table_options *options, ls_status status,
                        const char *says)
{
    ls_table_schema *s;
    ls__log_set_level(LS__LOG_ERROR);
    assert_fails(learn(csv, options, &s), status, says);
    ls__log_set_level(LS__LOG_INFO);
    assert_null(s);
}

static void what_is_refused(void **state)
{
    (void)state;
    const ls_status bad = LS_ERR_DATA, config = LS_ERR_CONFIG;
    learn_fails("", NULL, bad, "t.csv: the file is empty");
    learn_fails("\n\n", NULL, bad, "nothing but blank lines");
    learn_fails("a,b\n", NULL, bad, "no rows behind the header");
    learn_fails("1,2\n3,4\n", NULL, bad, "its first line is numbers");
    learn_fails("a,b,a\n1,2,3\n", NULL, bad, "two columns are named \"a\"");
    learn_fails("a,b\n1,2\n1,2,3\n", NULL, bad, "t.csv:3: 3 fields, but the header names 2");
    learn_fails("a,b\n1,inf\n", NULL, bad, "t.csv:2: column 2 (\"b\"): inf is not a finite number");
    learn_fails("a,b\n1,2\n1e999,2\n", NULL, bad, "t.csv:3: column 1 (\"a\"): 1e999 is not");
    learn_fails("a,b\n1,2\n1,?\n", NULL, bad, "t.csv:3: column 2 (\"b\"): the target is missing");
    learn_fails("a,b\n1,x\n1,x\n", NULL, bad, "has one class only (\"x\")");
    learn_fails("b\n1\n2\n", NULL, bad, "no columns besides the target \"b\"");
    learn_fails("a,b\n,1\n,2\n", NULL, bad, "no columns besides the target");
    learn_fails("a,b\r1,2\r", NULL, bad, "its lines end with CR alone");
    learn_fails("a,b\n1,\xE9\n", NULL, bad, "t.csv:2: not UTF-8 (the byte 0xE9)");
    learn_fails("version https://git-lfs.github.com/spec/v1\n", NULL, bad, "git lfs pull");
    learn_fails("PK\003\004", NULL, bad, "a spreadsheet is exported as CSV first");
    learn_fails("a,b\n1,2\n", &(ls_table_options) { .target = "bb" }, config,
                "no column is named \"bb\", which is given as the target");
    learn_fails("a,b\n1,2\n", &(ls_table_options) { .drop = "price" }, config,
                "which is given as a column to drop; there are a, b");
    learn_fails("height,b\n1,2\n", &(ls_table_options) { .drop = "hieght" }, config,
                "did you mean \"height\"?");
    learn_fails("a,b\n1,2\n", &(ls_table_options) { .drop = "b" }, config,
                "is the target and is dropped");
    learn_fails("a,b\n1,2\n", &(ls_table_options) { .categories = "c" }, config,
                "as a column of categories");
    learn_fails("a,b\n1,2\n", &(ls_table_options) { .hash_above = -1 }, LS_ERR_ARG,
                "hash_above is -1");
    ls_table_schema *s;
    write_file("nul.csv", "a,b\n1,\0\n", 8);
    assert_fails(ls_table_schema_learn(test_path("nul.csv"), NULL, &s), bad, "a zero byte at 6");
    assert_fails(ls_table_schema_learn("/nowhere.csv", NULL, &s), bad, "/nowhere.csv");
    assert_fails(ls_table_schema_learn(NULL, NULL, &s), LS_ERR_ARG, "needs a path");
}

static void schema_fails(const char *json, const char *says)
{
    ls_table_schema *s;
    write_file("s.json", json, strlen(json));
    assert_fails(ls_table_schema_load(test_path("s.json"), &s), LS_ERR_DATA, says);
    assert_non_null(strstr(ls_error_text(), "s.json"));
    assert_null(s);
}

#define HEAD "{\"schema\":\"lockstep.table/1\",\"columns\":["
#define A    "{\"name\":\"a\",\"kind\":\"number\",\"mean\":0,\"deviation\":1}"
#define T    "],\"target\":{\"name\":\"t\",\"kind\":\"number\",\"mean\":0,\"deviation\":1}}"

static void damaged_schemas(void **state)
{
    (void)state;
    ls_table_schema *s;
    assert_ok(ls_table_schema_load(write_file("s.json", HEAD A T, strlen(HEAD A T)), &s));
    ls_table_schema_destroy(s);
    schema_fails("{}", "not a table's schema");
    schema_fails(HEAD T, "0 columns; 1 to 65536");
    schema_fails(HEAD "7" T, "a column lacks \"name\" or \"kind\"");
    schema_fails(HEAD A "," A T, "column \"a\" stands twice");
    schema_fails(HEAD A "]}", "a column lacks");
    schema_fails(HEAD "{\"name\":\"t\",\"kind\":\"hashed\",\"buckets\":3}" T, "\"t\" stands twice");
    schema_fails(HEAD "{\"name\":\"a\",\"kind\":\"number\",\"mean\":0,\"deviation\":0}" T,
                 "its mean or deviation is wrong");
    schema_fails(HEAD "{\"name\":\"a\",\"kind\":\"hashed\",\"buckets\":0}" T, "buckets are wrong");
    schema_fails(HEAD "{\"name\":\"a\",\"kind\":\"text\"}" T, "\"text\" is no kind");
    schema_fails(HEAD "{\"name\":\"a\",\"kind\":\"category\",\"values\":[]}" T, "has no values");
    schema_fails(HEAD "{\"name\":\"a\",\"kind\":\"category\",\"values\":[\"x\",\"x\"]}" T,
                 "value 1 of column \"a\"");
}

static void failed_allocations(void **state)
{
    (void)state;
    write_file("t.csv", "x,city,t\n1,Ulm,no\n3,\"Ki\"\"el\",yes\n", 33);
    for (long n = 1;; n++) {
        ls_table_schema *s;
        ls_dataset *d = NULL;
        ls__alloc_fail_at(n);
        ls_status status = ls_table_schema_learn(test_path("t.csv"), NULL, &s);
        if (status == LS_OK) status = ls_dataset_table(test_path("t.csv"), s, &d);
        ls__alloc_fail_at(0);
        ls_dataset_destroy(d);
        ls_table_schema_destroy(s);
        if (status == LS_OK) {
            assert_true(n > 30);
            break;
        }
        if (status != LS_ERR_MEMORY) fail_msg("allocation %ld: %s", n, ls_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_numpy_does),   cmocka_unit_test(kinds_of_columns),
        cmocka_unit_test(other_files),     cmocka_unit_test(what_is_refused),
        cmocka_unit_test(damaged_schemas), cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
