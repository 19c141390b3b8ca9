/* Tokenizers of bytes and characters: encoding, pieces, their file, and what is refused. */
#include "testing.h"

#include "base/memory.h"
#include "helper_data_files.h"
#include "lockstep/tokenizer.h"

/* Encodes, and puts the pieces together again. */
static int64_t round_trip(const ls_tokenizer *t, const char *text, size_t nbytes, int32_t *first)
{
    int32_t *tokens;
    int64_t count;
    char back[256];
    size_t used = 0;
    assert_ok(ls_tokenizer_encode(t, text, nbytes, &tokens, &count));
    for (int64_t i = 0; i < count; i++) {
        size_t n;
        const char *piece = ls_tokenizer_piece(t, tokens[i], &n);
        assert_non_null(piece);
        memcpy(back + used, piece, n);
        used += n;
    }
    assert_int_equal(used, nbytes);
    assert_memory_equal(back, text, nbytes);
    if (first) *first = tokens[0];
    free(tokens);
    return count;
}

static void bytes_are_tokens(void **state)
{
    (void)state;
    ls_tokenizer *t;
    assert_ok(ls_tokenizer_bytes(&t));
    assert_int_equal(ls_tokenizer_size(t), 256);
    assert_string_equal(ls_tokenizer_kind(t), "bytes");
    assert_int_equal(ls_tokenizer_end(t), -1);
    int32_t first;
    assert_int_equal(round_trip(t, "\xFF\0\xC3z", 4, &first), 4);
    assert_int_equal(first, 255);
    assert_int_equal(round_trip(t, "", 0, NULL), 0);
    size_t n = 7;
    assert_null(ls_tokenizer_piece(t, 256, &n));
    assert_int_equal(n, 0);
    assert_null(ls_tokenizer_piece(t, -1, &n));
    assert_ok(ls_tokenizer_save(t, write_file("bytes.json", "", 0)));
    ls_tokenizer_destroy(t);
    assert_ok(ls_tokenizer_load(test_path("bytes.json"), &t));
    assert_string_equal(ls_tokenizer_kind(t), "bytes");
    ls_tokenizer_destroy(t);
    ls_tokenizer_destroy(NULL);
}

static const char greek[] = "\xCE\xB1\n\xCE\xB2 a\0\xF0\x9F\x98\x80 \xCE\xB1"; /* 8 characters */

static void characters_are_tokens(void **state)
{
    (void)state;
    ls_tokenizer *t;
    write_file("text.txt", greek, sizeof greek - 1);
    assert_ok(ls_tokenizer_characters(test_path("text.txt"), &t));
    for (int loaded = 0; loaded < 2; loaded++) {
        /* \0 \n space a alpha beta face */
        assert_int_equal(ls_tokenizer_size(t), 7);
        assert_string_equal(ls_tokenizer_kind(t), "characters");
        int32_t first;
        assert_int_equal(round_trip(t, greek, sizeof greek - 1, &first), 9);
        assert_int_equal(first, 4);
        size_t n;
        assert_memory_equal(ls_tokenizer_piece(t, 6, &n), "\xF0\x9F\x98\x80", 4);
        assert_int_equal(n, 4);
        assert_memory_equal(ls_tokenizer_piece(t, 0, &n), "\0", 1);
        assert_int_equal(n, 1);
        assert_ok(ls_tokenizer_save(t, write_file("chars.json", "", 0)));
        ls_tokenizer_destroy(t);
        assert_ok(ls_tokenizer_load(test_path("chars.json"), &t));
    }
    ls_tokenizer_destroy(t);
}

static void texts_that_do_not_fit(void **state)
{
    (void)state;
    ls_tokenizer *t;
    int32_t *tokens;
    int64_t count;
    assert_ok(ls_tokenizer_characters(write_file("text.txt", greek, sizeof greek - 1), &t));
    assert_fails(ls_tokenizer_encode(t, "a a\na\xC3\xA9", 7, &tokens, &count), LS_ERR_DATA,
                 "the character \xC3\xA9 (U+00E9) at byte 5, in line 2, is not among the 7");
    assert_null(tokens);
    assert_fails(ls_tokenizer_encode(t, "a\t", 2, &tokens, &count), LS_ERR_DATA,
                 "the character (U+0009) at byte 1");
    assert_fails(ls_tokenizer_encode(t, "a\xF4\x8F\xBF\xBF", 5, &tokens, &count), LS_ERR_DATA,
                 "(U+10FFFF) at byte 1");
    assert_fails(ls_tokenizer_encode(t, "aa\xC3", 3, &tokens, &count), LS_ERR_DATA,
                 "not UTF-8 at byte 2 (0xC3)");
    ls_tokenizer_destroy(t);
    assert_fails(ls_tokenizer_characters(write_file("latin.txt", "caf\xE9\n", 5), &t), LS_ERR_DATA,
                 "latin.txt: the text is not UTF-8 at byte 3 (0xE9)");
    assert_null(t);
    assert_fails(ls_tokenizer_characters(write_file("wide.txt",
                                                    "\xFF\xFE"
                                                    "a\0",
                                                    4),
                                         &t),
                 LS_ERR_DATA, "iconv -f UTF-16");
    assert_fails(ls_tokenizer_characters(write_file("none.txt", "", 0), &t), LS_ERR_DATA,
                 "none.txt: the file is empty");
    assert_fails(ls_tokenizer_characters("/nowhere.txt", &t), LS_ERR_DATA, "/nowhere.txt");
}

static void load_fails(const char *json, const char *says)
{
    ls_tokenizer *t;
    write_file("bad.json", json, strlen(json));
    assert_fails(ls_tokenizer_load(test_path("bad.json"), &t), LS_ERR_DATA, says);
    assert_non_null(strstr(ls_error_text(), "bad.json"));
    assert_null(t);
}

#define HEAD "{\"schema\":\"lockstep.tokenizer/1\",\"kind\":"

static void files_that_are_wrong(void **state)
{
    (void)state;
    load_fails("", "not valid JSON");
    load_fails("[]", "not a tokenizer of Lockstep");
    load_fails("{\"schema\":\"lockstep.tokenizer/2\"}", "not a tokenizer of Lockstep");
    load_fails(HEAD "\"words\"}", "\"words\" is no kind of tokenizer");
    load_fails(HEAD "7}", "\"\" is no kind");
    load_fails(HEAD "\"characters\"}", "not a list of code points");
    load_fails(HEAD "\"characters\",\"characters\":[]}", "not a list of code points");
    load_fails(HEAD "\"characters\",\"characters\":[5,5]}", "entry 1 of \"characters\"");
    load_fails(HEAD "\"characters\",\"characters\":[-1]}", "entry 0 of");
    load_fails(HEAD "\"characters\",\"characters\":[55296]}", "entry 0 of");
    load_fails(HEAD "\"characters\",\"characters\":[3,1114112]}", "entry 1 of");
    load_fails(HEAD "\"characters\",\"characters\":[3,\"a\"]}", "entry 1 of");
    ls_tokenizer *t;
    assert_fails(ls_tokenizer_load("/nowhere.json", &t), LS_ERR_IO, "/nowhere.json");
    assert_ok(ls_tokenizer_bytes(&t));
    assert_fails(ls_tokenizer_save(t, "/nowhere/t.json"), LS_ERR_IO, "/nowhere/");
    ls_tokenizer_destroy(t);
}

static ls_status make_and_use(void)
{
    ls_tokenizer *t;
    ls_status status = ls_tokenizer_characters(test_path("text.txt"), &t);
    if (status != LS_OK) return status;
    int32_t *tokens;
    int64_t count;
    status = ls_tokenizer_encode(t, greek, sizeof greek - 1, &tokens, &count);
    free(tokens);
    ls_tokenizer_destroy(t);
    if (status == LS_OK) status = ls_tokenizer_load(test_path("chars.json"), &t);
    if (status == LS_OK) ls_tokenizer_destroy(t);
    return status;
}

static void failed_allocations(void **state)
{
    (void)state;
    write_file("text.txt", greek, sizeof greek - 1);
    ls_tokenizer *t;
    assert_ok(ls_tokenizer_characters(test_path("text.txt"), &t));
    assert_ok(ls_tokenizer_save(t, write_file("chars.json", "", 0)));
    ls_tokenizer_destroy(t);
    for (long n = 1;; n++) {
        ls__alloc_fail_at(n);
        ls_status status = make_and_use();
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_tokens),      cmocka_unit_test(characters_are_tokens),
        cmocka_unit_test(texts_that_do_not_fit), cmocka_unit_test(files_that_are_wrong),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
