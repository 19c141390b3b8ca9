/* The safetensors reader and writer, to the byte. */
#include "testing.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "helper_saved.h"

static char folder[LS_PATH_MAX], path[LS_PATH_MAX];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", fresh_folder("safetensors"));
    snprintf(path, sizeof path, "%.4000s/file.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, folder) == LS_OK ? 0 : -1;
}

static void write_bytes(const void *data, size_t nbytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, nbytes, f), nbytes);
    assert_int_equal(fclose(f), 0);
}

/* A file with this header and so many zero bytes of data; its length field says length. */
static void write_file_saying(const char *json, uint64_t length, size_t ndata)
{
    size_t n = strlen(json);
    char *bytes = calloc(8 + n + ndata, 1);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> 8 * i);
    memcpy(bytes + 8, json, n);
    write_bytes(bytes, 8 + n + ndata);
    free(bytes);
}

static void write_file(const char *json, size_t ndata)
{
    write_file_saying(json, strlen(json), ndata);
}

static void refused(const char *json, size_t ndata, const char *why)
{
    ls__safetensors s;
    write_file(json, ndata);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, why);
    assert_non_null(strstr(ls_error_text(), path));
    assert_null(s.tensors);
}

#define GOLDEN_JSON                                                                                \
    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"                \
    "\"data_offsets\":[0,4]}}   "

/* The file that the reference implementation writes: 100 bytes, sha256 0e0a98a37725... */
static void golden_read(void **state)
{
    (void)state;
    unsigned char bytes[100] = { 88 };
    memcpy(bytes + 8, GOLDEN_JSON, 88);
    memcpy(bytes + 96, (unsigned char[]) { 0, 0, 0x80, 0x3f }, 4);
    write_bytes(bytes, sizeof bytes);
    ls__safetensors s;
    assert_ok(ls__safetensors_open(path, &s));
    assert_int_equal(s.count, 1);
    assert_string_equal(s.tensors[0].name, "a");
    assert_string_equal(s.tensors[0].dtype, "F32");
    assert_int_equal(s.tensors[0].rank, 1);
    assert_int_equal(s.tensors[0].shape[0], 1);
    assert_int_equal(s.tensors[0].begin, 96);
    assert_int_equal(s.tensors[0].end, 100);
    assert_string_equal(json_string_value(json_object_get(s.metadata, "format")), "pt");
    assert_null(ls__safetensors_find(&s, "b"));
    ls__safetensors_free(&s);
}

static void golden_write(void **state)
{
    (void)state;
    ls__saved_tensor a = { .name = "a", .rank = 1, .shape = { 1 } };
    char *header;
    size_t nbytes;
    int64_t begin;
    assert_ok(ls__safetensors_header(&a, 1, 8, &header, &nbytes, &begin));
    assert_int_equal(nbytes, 96);
    assert_int_equal(begin, 96);
    assert_memory_equal(header, "\x58\0\0\0\0\0\0\0" GOLDEN_JSON, 96);
    ls__free(header);
}

static void pages(void **state)
{
    (void)state;
    char *header;
    size_t nbytes;
    int64_t begins[SAVED_TENSORS];
    assert_ok(ls__safetensors_header(saved_tensors, SAVED_TENSORS, 4096, &header, &nbytes, begins));
    assert_int_equal(nbytes, 4096);
    assert_int_equal(begins[0], 4096);
    assert_int_equal(begins[1], 4096 + 4 * 23 * 17);
    assert_int_equal(begins[4], begins[3] + 4);
    ls__free(header);
}

static void round_trip(void **state)
{
    (void)state;
    float params[SAVED_COUNT];
    for (int i = 0; i < SAVED_COUNT; i++) params[i] = saved_value(3, -1, i);
    assert_ok(ls__safetensors_write(NULL, path, saved_tensors, SAVED_TENSORS, params));
    ls__safetensors s;
    assert_ok(ls__safetensors_open(path, &s));
    assert_int_equal(s.count, SAVED_TENSORS);
    const ls__safetensor *t = ls__safetensors_find(&s, "fc2.weight");
    assert_non_null(t);
    assert_int_equal(t->rank, 3);
    assert_int_equal(t->shape[2], 8);
    FILE *f = fopen(path, "rb");
    float value;
    assert_int_equal(fseek(f, (long)t->begin + 4 * 7, SEEK_SET), 0);
    assert_int_equal(fread(&value, 4, 1, f), 1);
    assert_true(value == params[480 + 7]);
    fclose(f);
    ls__safetensors_free(&s);
    assert_ok(ls__checkpoint_verify(path));
}

static void odd_names(void **state)
{
    (void)state;
    ls__saved_tensor odd[] = { { .name = "a\"b\\c\n{[,", .rank = 0 },
                               { .name = "\xc3\xa4", .rank = 1, .shape = { 0 } } };
    float value = 1;
    assert_ok(ls__safetensors_write(NULL, path, odd, 2, &value));
    ls__safetensors s;
    assert_ok(ls__safetensors_open(path, &s));
    assert_non_null(ls__safetensors_find(&s, odd[0].name));
    assert_non_null(ls__safetensors_find(&s, odd[1].name));
    ls__safetensors_free(&s);
    odd[0].name = "\xff";
    assert_fails(ls__safetensors_write(NULL, path, odd, 2, &value), LS_ERR_ARG, "UTF-8");
}

static void accepts(void **state)
{
    (void)state;
    ls__safetensors s;
    write_file("{}", 0);
    assert_ok(ls__safetensors_open(path, &s));
    assert_int_equal(s.count, 0);
    ls__safetensors_free(&s);
    /* Types in any order of the text, empty tensors anywhere, sub-byte types in whole bytes. */
    write_file("{\"b\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[2,5]},"
               "\"e\":{\"dtype\":\"U64\",\"shape\":[3,0],\"data_offsets\":[2,2]},"
               "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}",
               5);
    assert_ok(ls__safetensors_open(path, &s));
    assert_int_equal(s.count, 3);
    assert_string_equal(s.tensors[0].name, "a");
    assert_string_equal(s.tensors[1].name, "e");
    assert_string_equal(s.tensors[2].name, "b");
    assert_null(s.metadata);
    ls__safetensors_free(&s);
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void refuses(void **state)
{
    (void)state;
    refused(ENTRY("F32", "[1]", "[0,4]"), 3, "truncated");
    refused(ENTRY("F32", "[1]", "[0,4]"), 5, "data behind the last tensor");
    refused(ENTRY("F32", "[1]", "[4,8]"), 8, "does not begin where");
    refused(ENTRY("F32", "[2]", "[0,4]"), 4, "shape takes 8 bytes, its data_offsets span 4");
    refused(ENTRY("F32", "[1]", "[4,0]"), 4, "end before they begin");
    refused(ENTRY("F32", "[1]", "[-4,0]"), 4, "data_offsets");
    refused(ENTRY("F32", "[1]", "[0,4,8]"), 4, "data_offsets");
    refused(ENTRY("F32", "[1]", "[0.0,4.0]"), 4, "data_offsets");
    refused(ENTRY("F32", "[1]", "[0,9223372036854775808]"), 4, "JSON");
    refused(ENTRY("F32", "[-1]", "[0,4]"), 4, "dimension");
    refused(ENTRY("F32", "[1.0]", "[0,4]"), 4, "dimension");
    refused(ENTRY("F32", "1", "[0,4]"), 4, "shape");
    refused(ENTRY("F32", "[1,1,1,1,1,1,1]", "[0,4]"), 4, "7 dimensions");
    refused(ENTRY("F32", "[4294967296,4294967296,4294967296]", "[0,4]"), 4, "overflows");
    refused(ENTRY("F33", "[1]", "[0,4]"), 4, "unknown dtype \"F33\"");
    refused(ENTRY("F32000000000000000000", "[1]", "[0,4]"), 4, "unknown dtype");
    refused(ENTRY("F4", "[3]", "[0,1]"), 1, "whole bytes");
    refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype");
    refused("{\"a\":7}", 0, "not an object");
    refused("[]", 0, "begin with {");
    refused(" {}", 0, "begin with {");
    refused("{} x", 0, "not valid JSON");
    refused("{\"a\":", 0, "not valid JSON");
    refused("{\"\xff\":1}", 0, "not valid JSON");
    refused("{\"a\\u0000\":1}", 0, "not valid JSON");
    refused("{\"__metadata__\":{\"x\":1}}", 0, "not a string");
    refused("{\"__metadata__\":[]}", 0, "not an object");
    refused("{\"a\":{\"shape\":[[1]]}}", 0, "nested deeper");
    const char *twice = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                        "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    refused(twice, 4, "not valid JSON");
    const char *overlap = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    refused(overlap, 4, "does not begin where");
    const char *gap = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5,9]}}";
    refused(gap, 9, "does not begin where");
}

/* Sizes are in the message, so that a torn download is recognized. */
static void lengths(void **state)
{
    (void)state;
    ls__safetensors s;
    write_bytes("1234567", 7);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "truncated: 7 bytes");
    write_bytes("", 0);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "truncated: 0 bytes");
    write_file_saying("{}", 3, 0);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "takes 11 bytes, the file has 10");
    write_file_saying("{}", 100000001, 0);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "the format allows 100000000");
    write_file_saying("{}", UINT64_MAX, 0);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "the format allows");
    write_file(ENTRY("F32", "[100]", "[0,400]"), 399);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "the header describes ");
    char sizes[64];
    snprintf(sizes, sizeof sizes, "+400 bytes, the file has %" PRId64, file_bytes(path));
    assert_non_null(strstr(ls_error_text(), sizes));
}

static void mistaken(void **state)
{
    (void)state;
    ls__safetensors s;
    const char *pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    write_bytes(pointer, strlen(pointer));
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "git-lfs pointer");
    write_bytes("<!DOCTYPE html><html>", 21);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "a web page");
    write_bytes("<html>", 6);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "a web page");
    write_bytes("PK\x03\x04 and so on", 13);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "zip archive");
    assert_fails(ls__safetensors_open(folder, &s), LS_ERR_DATA, "not a file");
    assert_fails(ls__safetensors_open("/nonexistent/x", &s), LS_ERR_IO, "/nonexistent/x");
}

/* A header of nothing but brackets would cost the parser gigabytes. */
static void bounded(void **state)
{
    (void)state;
    ls__safetensors s;
    size_t n = 16 << 20;
    char *json = malloc(n + 1);
    memset(json, ',', n);
    memcpy(json, "{\"a\":[", 6);
    json[n] = '\0';
    write_file(json, 0);
    assert_fails(ls__safetensors_open(path, &s), LS_ERR_DATA, "items; at most");
    free(json);
}

static void out_of_memory(void **state)
{
    (void)state;
    float params[SAVED_COUNT] = { 0 };
    assert_ok(ls__safetensors_write(NULL, path, saved_tensors, SAVED_TENSORS, params));
    ls_status status = LS_ERR_MEMORY;
    long n = 0;
    while (status != LS_OK) {
        ls__safetensors s;
        ls__alloc_fail_at(++n);
        status = ls__safetensors_open(path, &s);
        ls__alloc_fail_at(0);
        if (status == LS_OK)
            ls__safetensors_free(&s);
        else
            assert_int_equal(status, LS_ERR_MEMORY);
    }
    assert_in_range(n, 5, 100); /* it did fail several times */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_read), cmocka_unit_test(golden_write),  cmocka_unit_test(pages),
        cmocka_unit_test(round_trip),  cmocka_unit_test(odd_names),     cmocka_unit_test(accepts),
        cmocka_unit_test(refuses),     cmocka_unit_test(lengths),       cmocka_unit_test(mistaken),
        cmocka_unit_test(bounded),     cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
