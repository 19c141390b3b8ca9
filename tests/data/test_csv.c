/* CSV: the records that Python reads, numbers as strtod reads them, what is refused. */
#include <jansson.h>
#include <locale.h>

#include "testing.h"

#include "base/file.h"
#include "base/memory.h"
#include "data/csv.h"
#include "data/table_value.h"

static const char *golden_path(const char *name)
{
    static char path[LS_PATH_MAX];
    const char *source = getenv("LS_SOURCE_DIR");
    snprintf(path, LS_PATH_MAX, "%s/tests/data/table_golden/%s", source ? source : "../../..",
             name);
    return path;
}

static void check_file(const json_t *file)
{
    const char *name = json_string_value(json_object_get(file, "file"));
    char *text;
    size_t nbytes, i, k;
    const json_t *record, *field;
    ls__csv csv;
    bool more;
    assert_ok(ls__file_read(golden_path(name), 1 << 20, &text, &nbytes));
    ls__csv_open(text, nbytes, name, &csv);
    json_array_foreach(json_object_get(file, "records"), i, record)
    {
        assert_ok(ls__csv_next(&csv, &more));
        assert_true(more);
        assert_int_equal(csv.nfields, json_array_size(record));
        json_array_foreach(record, k, field)
        {
            const ls__csv_field *got = &csv.fields[k];
            if (got->nbytes != json_string_length(field) ||
                memcmp(got->text, json_string_value(field), got->nbytes) != 0)
                fail_msg("%s:%lld: field %zu is \"%.*s\", not \"%s\"", name, (long long)csv.line, k,
                         (int)got->nbytes, got->text, json_string_value(field));
        }
    }
    assert_ok(ls__csv_next(&csv, &more));
    assert_false(more);
    ls__csv_close(&csv);
    ls__free(text);
}

static void as_python_reads(void **state)
{
    (void)state;
    size_t i;
    const json_t *file;
    json_t *files = json_load_file(golden_path("records.json"), 0, NULL);
    assert_int_equal(json_array_size(files), 4);
    json_array_foreach(files, i, file) check_file(file);
    json_decref(files);
}

/* Fields of all records, each in brackets; records end with their line's number. */
static const char *shown(const char *text)
{
    static char out[512];
    size_t used = 0;
    ls__csv csv;
    bool more;
    out[0] = '\0';
    ls__csv_open(text, strlen(text), "x.csv", &csv);
    for (;;) {
        assert_ok(ls__csv_next(&csv, &more));
        if (!more) break;
        for (int i = 0; i < csv.nfields; i++)
            used += (size_t)snprintf(out + used, sizeof out - used, "[%.*s]",
                                     (int)csv.fields[i].nbytes, csv.fields[i].text);
        used += (size_t)snprintf(out + used, sizeof out - used, "%lld ", (long long)csv.line);
    }
    ls__csv_close(&csv);
    return out;
}

static void spaces_and_lines(void **state)
{
    (void)state;
    assert_string_equal(shown("a, b ,c\n 1 ,\" 2 \" ,3"), "[a][b][c]1 [1][ 2 ][3]2 ");
    assert_string_equal(shown("a,b\r\n\r\n\n1,2\r\n\n"), "[a][b]1 [1][2]4 ");
    assert_string_equal(shown("a,b\n\"x\n\ny\",1\n2,3"), "[a][b]1 [x\n\ny][1]2 [2][3]5 ");
    assert_string_equal(shown("a,b\n,\n"), "[a][b]1 [][]2 ");
    assert_string_equal(shown("a\n\"\"\n"), "[a]1 []2 ");
    assert_string_equal(shown("a;b,c;d\n1;2;3"), "[a][b,c][d]1 [1][2][3]2 ");
    assert_string_equal(shown("\"a;;;\",b\n1,2"), "[a;;;][b]1 [1][2]2 ");
    assert_string_equal(shown("a\tb\n\t\n"), "[a][b]1 [][]2 ");
    assert_string_equal(shown("a,5\" pipe\n"), "[a][5\" pipe]1 ");
    assert_string_equal(shown("a\rb,c\n"), "[a\rb][c]1 ");
    assert_string_equal(shown("a,\"b\"\"\"\r\n"), "[a][b\"]1 ");
    assert_string_equal(shown(""), "");
}

static void csv_fails(const char *text, const char *says)
{
    ls__csv csv;
    bool more = true;
    ls_status status = LS_OK;
    ls__csv_open(text, strlen(text), "x.csv", &csv);
    while (status == LS_OK && more) status = ls__csv_next(&csv, &more);
    assert_fails(status, LS_ERR_DATA, says);
    ls__csv_close(&csv);
}

static void garbled(void **state)
{
    (void)state;
    csv_fails("a,b\n1,\"2\n3\n", "x.csv:2: a quote that opens here is never closed");
    csv_fails("a,b\n\"x\"y,2\n", "x.csv:2: column 1: text behind a closing quote");
    csv_fails("a,b\n1,\"x\n\"y\n", "x.csv:3: column 2: text behind a closing quote");
    char *wide = ls__alloc(LS__CSV_FIELDS_MAX + 2, 1);
    memset(wide, ',', LS__CSV_FIELDS_MAX + 1);
    csv_fails(wide, "x.csv:1: more than 65536 columns");
    ls__free(wide);
}

static void number_is(const char *text, char point, double wanted)
{
    double value = -77;
    if (ls__table_number(text, strlen(text), point, &value) != LS__NUMBER_FINITE)
        fail_msg("\"%s\" is no number", text);
    if (memcmp(&value, &wanted, sizeof value) != 0) fail_msg("\"%s\" is %.17g", text, value);
}

static void numbers(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "1",
        "+1",
        "007",
        "12.5",
        ".5",
        "5.",
        "-1e3",
        "1E+3",
        "1e-3",
        "3.14159265358979",
        "0.1",
        "123456789012345",
        "1234567890123456789012",
        "9007199254740993",
        "1e22",
        "1e23",
        "2.2250738585072014e-308",
        "5e-324",
        "1.7976931348623157e308",
        "1e-400",
        "0e999999999",
        "0.000000000000000000000000000001",
        "123456.789e-20",
        "8.5e15",
        "1e-22",
        "4.35",
        "0.3",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        number_is(good[i], '.', strtod(good[i], NULL));
    number_is("3,25", ',', 3.25);
    number_is("3.25", ',', 3.25);
    static const char *const bad[] = { "",      "-",   ".",       "e5",    "1e", "1e+",
                                       "1.2.3", "1,5", "0x10",    "1 2",   "1a", "--1",
                                       "nan",   "in",  "infinit", "1_000", " 1" };
    double value;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ls__table_number(bad[i], strlen(bad[i]), '.', &value), LS__NUMBER_NONE);
    static const char *const infinite[] = { "inf", "-Inf", "+INFINITY", "1e309", "-1e999999999" };
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(ls__table_number(infinite[i], strlen(infinite[i]), '.', &value),
                         LS__NUMBER_INFINITE);
    /* Random digits, against strtod. */
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        char text[64];
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        snprintf(text, sizeof text, "%llu.%llue%d", (unsigned long long)(x % 100000),
                 (unsigned long long)(x >> 30), (int)(x % 60) - 30);
        number_is(text, '.', strtod(text, NULL));
    }
}

static void what_is_missing(void **state)
{
    (void)state;
    static const char *const missing[] = { "", "NA", "N/A", "NaN", "nan", "null", "NULL", "?" };
    static const char *const there[] = { "0", "na.", "None", "-", " ", "??", "NAN " };
    for (int i = 0; i < 8; i++) assert_true(ls__table_missing(missing[i], strlen(missing[i])));
    for (int i = 0; i < 7; i++) assert_false(ls__table_missing(there[i], strlen(there[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_python_reads), cmocka_unit_test(spaces_and_lines),
        cmocka_unit_test(garbled),         cmocka_unit_test(numbers),
        cmocka_unit_test(what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
