/* .npy files: what is read, what is refused and how. */
#include <stdio.h>

#include "testing.h"

#include "base/memory.h"
#include "data/dataset_internal.h"
#include "data/npy.h"
#include "helper_data_files.h"

static uint8_t bytes[1 << 17];

/* numpy 1.24: numpy.save(f, numpy.array([[1,2,3],[4,5,6]], "f4")) */
static const char golden_head[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': "
                                  "False, 'shape': (2, 3), }";
static const float golden_values[] = { 1, 2, 3, 4, 5, 6 };

static size_t golden(void)
{
    memset(bytes, ' ', 128);
    memcpy(bytes, golden_head, sizeof golden_head - 1);
    bytes[127] = '\n';
    memcpy(bytes + 128, golden_values, sizeof golden_values);
    return 152;
}

static ls_status parse(const char *literal, int major, size_t nbytes, ls__npy *out)
{
    static uint8_t values[1 << 12];
    size_t n = make_npy(bytes, major, literal, values, nbytes);
    return ls__npy_parse(bytes, n, "x.npy", out);
}

static void what_numpy_writes(void **state)
{
    (void)state;
    write_file("x.npy", bytes, golden());
    int64_t y[] = { -7, 1LL << 40 };
    size_t n = make_npy(bytes, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", y,
                        sizeof y);
    write_file("y.npy", bytes, n);
    ls_dataset *d;
    assert_ok(ls_dataset_npy(test_path("x.npy"), test_path("y.npy"), &d));
    int nfields;
    const ls_field *f = ls_dataset_fields(d, &nfields);
    assert_int_equal(nfields, 2);
    assert_int_equal(ls_dataset_length(d), 2);
    assert_string_equal(f[0].name, "x");
    assert_int_equal(f[0].type, LS_DTYPE_F32);
    assert_int_equal(f[0].rank, 1);
    assert_int_equal(f[0].shape[0], 3);
    assert_string_equal(f[1].name, "y");
    assert_int_equal(f[1].type, LS_DTYPE_I64);
    assert_int_equal(f[1].rank, 0);
    for (int i = 0; i < 2; i++) {
        float x[3];
        int64_t yi;
        assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { x, &yi }));
        assert_memory_equal(x, golden_values + 3 * i, sizeof x);
        assert_int_equal(yi, y[i]);
    }
    ls_dataset_destroy(d);
    assert_ok(ls_dataset_npy(test_path("x.npy"), NULL, &d));
    ls_dataset_fields(d, &nfields);
    assert_int_equal(nfields, 1);
    ls_dataset_destroy(d);
}

static void every_version_and_spelling(void **state)
{
    (void)state;
    const char *const literals[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4), }",
        "{'shape': (5, 4), 'fortran_order': False, 'descr': '<f4'}",
        "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(5,4,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (5L, 4L), }",
    };
    for (int major = 1; major <= 3; major++) {
        for (int i = 0; i < 4; i++) {
            ls__npy a;
            assert_ok(parse(literals[i], major, 80, &a));
            assert_int_equal(a.rank, 2);
            assert_int_equal(a.shape[0], 5);
            assert_int_equal(a.shape[1], 4);
            assert_int_equal((a.values - bytes) % 64, 0);
        }
    }
    ls__npy a; /* one dimension is the same in either order */
    assert_ok(parse("{'descr': '<f4', 'fortran_order': True, 'shape': (5,), }", 1, 20, &a));
}

static void every_element_type(void **state)
{
    (void)state;
    const struct {
        const char *descr;
        uint8_t stored[8];
        int size;
        ls_dtype type;
        double value;
    } all[] = {
        { "|b1", { 1 }, 1, LS_DTYPE_U8, 1 },
        { "|u1", { 200 }, 1, LS_DTYPE_U8, 200 },
        { "<u1", { 200 }, 1, LS_DTYPE_U8, 200 },
        { "|i1", { 0xFE }, 1, LS_DTYPE_I32, -2 },
        { "<i2", { 0xFE, 0xFF }, 2, LS_DTYPE_I32, -2 },
        { "<u2", { 0xFE, 0xFF }, 2, LS_DTYPE_I32, 65534 },
        { "<i4", { 0xFE, 0xFF, 0xFF, 0xFF }, 4, LS_DTYPE_I32, -2 },
        { "<i8", { 0, 0, 0, 0, 1 }, 8, LS_DTYPE_I64, 4294967296.0 },
        { "<f4", { 0, 0, 0x20, 0xC0 }, 4, LS_DTYPE_F32, -2.5 },
        { "<f8", { 0, 0, 0, 0, 0, 0, 0x04, 0xC0 }, 8, LS_DTYPE_F32, -2.5 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char literal[100];
        snprintf(literal, sizeof literal,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (1,), }", all[i].descr);
        write_file("typed.npy", bytes,
                   make_npy(bytes, 1, literal, all[i].stored, (size_t)all[i].size));
        ls_dataset *d;
        assert_ok(ls_dataset_npy(test_path("typed.npy"), NULL, &d));
        assert_int_equal(ls_dataset_fields(d, NULL)->type, all[i].type);
        union {
            uint8_t u8;
            int32_t i32;
            int64_t i64;
            float f32;
        } x;
        assert_ok(ls_dataset_read(d, 0, NULL, (void *[]) { &x }));
        double value = all[i].type == LS_DTYPE_U8    ? x.u8
                       : all[i].type == LS_DTYPE_I32 ? x.i32
                       : all[i].type == LS_DTYPE_I64 ? (double)x.i64
                                                     : (double)x.f32;
        assert_true(value == all[i].value);
        ls_dataset_destroy(d);
    }
}

static void refused(const char *literal, size_t nbytes, const char *says)
{
    ls__npy a;
    for (int major = 1; major <= 3; major++) {
        assert_fails(parse(literal, major, nbytes, &a), LS_ERR_DATA, says);
        assert_non_null(strstr(ls_error_text(), "x.npy"));
    }
}

#define HEAD(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static void what_numpy_can_mend(void **state)
{
    (void)state;
    refused(HEAD("'<f4'", "True", "(5, 4)"), 80,
            "numpy.save(\"x.npy\", numpy.ascontiguousarray(numpy.load(\"x.npy\")))");
    refused(HEAD("'>f4'", "False", "(5, 4)"), 80,
            "\">f4\" (big-endian) are not read; convert them: numpy.save(\"x.npy\", "
            "numpy.load(\"x.npy\").astype(\"<f4\"))");
    refused(HEAD("'<f2'", "False", "(5, 4)"), 40, "\"<f2\" are not read");
    refused(HEAD("'<c8'", "False", "(5, 4)"), 160, "\"<c8\" are not read");
    refused(HEAD("'<U7'", "False", "(5, 4)"), 160, "\"<U7\" are not read");
    refused(HEAD("'|O'", "False", "(5,)"), 80, "Python objects");
    refused(HEAD("[('a', '<f4'), ('b', '<i4')]", "False", "(5,)"), 40, "holds records");
}

static void wrong_shapes_and_sizes(void **state)
{
    (void)state;
    refused(HEAD("'<f4'", "False", "()"), 4, "0 dimensions");
    refused(HEAD("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1)"), 4, "7 dimensions; 1 to 6 are read");
    refused(HEAD("'<f4'", "False", "(0, 4)"), 0, "dimension 0 is 0");
    refused(HEAD("'<f4'", "False", "(5, 4)"), 79,
            "truncated: 207 bytes, but its header promises 208");
    refused(HEAD("'<f4'", "False", "(5, 4)"), 81,
            "too long: 209 bytes, but its header promises 208");
    refused(HEAD("'<f4'", "False", "(4611686018427387904, 4)"), 80, "beyond any file");
    refused(HEAD("'<f4'", "False", "(99999999999999999999, 4)"), 80, "beyond any file");
    refused(HEAD("'<f4'", "False",
                 "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
                 "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"),
            4, "more than 32 sizes");
}

static void garbled_headers(void **state)
{
    (void)state;
    refused("", 0, "{ expected where it says");
    refused("{}", 0, "lacks 'descr'");
    refused("{'descr': '<f4', 'shape': (2,)}", 8, "lacks 'fortran_order'");
    refused("{'descr': '<f4', 'fortran_order': False}", 8, "lacks 'shape'");
    refused("{'descr': '<f4', 'descr': '<f4', }", 8, "the key 'descr' twice");
    refused("{'descr': '<f4', 'colour': 3}", 8, "unknown key 'colour'");
    refused("{'descr' '<f4'}", 8, ": expected");
    refused("{'descr': <f4}", 8, "an element type expected");
    refused("{'descr': '<f4}", 8, "an element type expected");
    refused("{'descr': '<f\\x34'}", 8, "an element type expected");
    refused("{'descr': '<f4' 'shape': (2,)}", 8, "a comma or }");
    refused("{descr: '<f4'}", 8, "a key expected");
    refused(HEAD("'<f4'", "Maybe", "(2,)"), 8, "True or False expected");
    refused(HEAD("'<f4'", "False", "2"), 8, "a tuple of sizes expected");
    refused(HEAD("'<f4'", "False", "(2)"), 8, "a single size has a comma behind it");
    refused(HEAD("'<f4'", "False", "(-2,)"), 8, "a size expected where it says \"-2,)");
    refused(HEAD("'<f4'", "False", "(2 2)"), 16, "a comma or )");
    refused(HEAD("'<f4'", "False", "(,)"), 16, "a size expected");
    refused(HEAD("'<f4'", "False", "(2,"), 16, "a size expected");
    refused(HEAD("'<f4'", "False", "(2,)") " x", 8, "the header's end expected");
}

static void garbled_files(void **state)
{
    (void)state;
    ls__npy a;
    size_t n = golden();
    assert_fails(ls__npy_parse(bytes, 3, "x.npy", &a), LS_ERR_DATA, "not a .npy file");
    assert_fails(ls__npy_parse(bytes, 8, "x.npy", &a), LS_ERR_DATA, "within its first 10 bytes");
    assert_fails(ls__npy_parse(bytes, 100, "x.npy", &a), LS_ERR_DATA,
                 "truncated: 100 bytes, but its header alone has 128");
    assert_fails(ls__npy_parse(bytes, 140, "x.npy", &a), LS_ERR_DATA,
                 "truncated: 140 bytes, but its header promises 152");
    bytes[6] = 4;
    assert_fails(ls__npy_parse(bytes, n, "x.npy", &a), LS_ERR_DATA, "version 4.0");
    bytes[6] = 1;
    bytes[7] = 1;
    assert_fails(ls__npy_parse(bytes, n, "x.npy", &a), LS_ERR_DATA, "version 1.1");
    bytes[7] = 0;
    bytes[0] = 'P';
    assert_fails(ls__npy_parse(bytes, n, "x.npy", &a), LS_ERR_DATA, "not a .npy file");
    make_npy(bytes, 2, HEAD("'<f4'", "False", "(2,)"), golden_values, 8);
    memset(bytes + 8, 0xFF, 4);
    assert_fails(ls__npy_parse(bytes, 136, "x.npy", &a), LS_ERR_DATA, "its header alone has");
    assert_fails(ls__npy_parse(bytes, 11, "x.npy", &a), LS_ERR_DATA, "truncated: 11 bytes");
    ls_dataset *d;
    write_file("lfs.npy", "version https://git-lfs.github.com/spec/v1\n", 43);
    assert_fails(ls_dataset_npy(test_path("lfs.npy"), NULL, &d), LS_ERR_DATA, "git lfs pull");
    assert_fails(ls_dataset_npy(test_path("none.npy"), NULL, &d), LS_ERR_DATA,
                 "none.npy: cannot be opened: No such file");
    assert_fails(ls_dataset_npy(NULL, NULL, &d), LS_ERR_ARG, "path of x");
    assert_null(d);
}

static void lengths_must_agree(void **state)
{
    (void)state;
    ls_dataset *d;
    write_file("x.npy", bytes, golden());
    write_file("short.npy", bytes,
               make_npy(bytes, 1, HEAD("'<f4'", "False", "(3,)"), golden_values, 12));
    assert_fails(ls_dataset_npy(test_path("x.npy"), test_path("short.npy"), &d), LS_ERR_DATA,
                 "x.npy holds 2 samples, but ");
    assert_non_null(strstr(ls_error_text(), "short.npy 3"));
    for (long n = 1;; n++) {
        ls__alloc_fail_at(n);
        ls_status status = ls_dataset_npy(test_path("x.npy"), test_path("x.npy"), &d);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            ls_dataset_destroy(d);
            assert_true(n > 4);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_writes),      cmocka_unit_test(every_version_and_spelling),
        cmocka_unit_test(every_element_type),     cmocka_unit_test(what_numpy_can_mend),
        cmocka_unit_test(wrong_shapes_and_sizes), cmocka_unit_test(garbled_headers),
        cmocka_unit_test(garbled_files),          cmocka_unit_test(lengths_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
