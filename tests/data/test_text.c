/* Texts as windows of tokens: mapped where bytes are tokens, else encoded; large ones; what is no
 * text. */
#include <unistd.h>

#include "testing.h"

#include "base/memory.h"
#include "data/dataset_internal.h"
#include "helper_data_files.h"

/* All windows hold the text's tokens as the tokenizer gives them. */
static void check_all(const char *name, const char *text, size_t nbytes, const ls_tokenizer *t)
{
    enum { CONTEXT = 5 };
    ls_dataset *d;
    int32_t *all, tokens[CONTEXT], targets[CONTEXT];
    int64_t count;
    assert_ok(ls_dataset_text(write_file(name, text, nbytes), CONTEXT, t, &d));
    assert_ok(ls_tokenizer_encode(t, text, nbytes, &all, &count));
    assert_int_equal(ls_dataset_length(d), (count - 1) / CONTEXT);
    for (int64_t i = 0; i < ls_dataset_length(d); i++) {
        d->prefetch(d->self, i);
        assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { tokens, targets }));
        assert_memory_equal(tokens, all + i * CONTEXT, sizeof tokens);
        assert_memory_equal(targets, all + i * CONTEXT + 1, sizeof targets);
    }
    free(all);
    ls_dataset_destroy(d);
}

static void any_bytes(void **state)
{
    (void)state;
    char text[1000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 37);
    ls_tokenizer *t;
    assert_ok(ls_tokenizer_bytes(&t));
    check_all("bytes.txt", text, sizeof text, t);
    ls_tokenizer_destroy(t);
}

static void characters(void **state)
{
    (void)state;
    static char text[20000];
    const char *const words[] = { "Tyger Tyger, burning bright\n",
                                  "\xE2\x82\xAC \xCE\xB1\xCE\xB2 " };
    for (int kind = 0; kind < 2; kind++) {
        ls_tokenizer *t;
        text[0] = '\0';
        for (int i = 0; i < 500; i++) strcat(text, words[kind]);
        write_file("chars.txt", text, strlen(text));
        assert_ok(ls_tokenizer_characters(test_path("chars.txt"), &t));
        check_all("chars.txt", text, strlen(text), t);
        ls_tokenizer_destroy(t);
    }
    /* More than 256 characters take two bytes each, more than 65536 four. */
    for (int kind = 0; kind < 2; kind++) {
        size_t n = 0, most = kind == 0 ? 300 : 70000;
        char *many = malloc(4 * most);
        for (uint32_t i = 0; i < most; i++) {
            uint32_t code = 0x10000 + i;
            many[n++] = (char)(0xF0 | code >> 18);
            for (int shift = 12; shift >= 0; shift -= 6)
                many[n++] = (char)(0x80 | (code >> shift & 0x3F));
        }
        ls_tokenizer *t;
        assert_ok(ls_tokenizer_characters(write_file("many.txt", many, n), &t));
        assert_int_equal(ls_tokenizer_size(t), most);
        check_all("many.txt", many, n, t);
        ls_tokenizer_destroy(t);
        free(many);
    }
}

static void text_fails(const char *text, size_t nbytes, const ls_tokenizer *t, const char *says)
{
    ls_dataset *d;
    write_file("bad.txt", text, nbytes);
    assert_fails(ls_dataset_text(test_path("bad.txt"), 4, t, &d), LS_ERR_DATA, says);
    assert_non_null(strstr(ls_error_text(), "bad.txt"));
    assert_null(d);
}

static void what_is_refused(void **state)
{
    (void)state;
    ls_tokenizer *bytes, *t;
    ls_dataset *d;
    assert_ok(ls_tokenizer_bytes(&bytes));
    assert_ok(ls_tokenizer_characters(write_file("abc.txt", "abc\n\xC3\xA9", 6), &t));
    text_fails("abcabcd", 7, t, "(U+0064) at byte 6, in line 1, is not among the 5");
    text_fails("abcab\xC3(", 7, t, "not UTF-8 at byte 5");
    text_fails("", 0, bytes, "the file is empty");
    text_fails("abcd", 4, bytes, "4 tokens, but a window of 4 and the token behind it need 5");
    text_fails("version https://git-lfs.github.com/spec/v1\noid", 46, bytes, "git lfs pull");
    text_fails("PK\003\004----------", 14, bytes, "zip archive");
    write_file("page.html", "<html>abc", 9);
    assert_ok(ls_dataset_text(test_path("page.html"), 4, bytes, &d)); /* a text like any other */
    ls_dataset_destroy(d);
    assert_fails(ls_dataset_text(test_path("page.html"), 0, bytes, &d), LS_ERR_ARG, "context of 0");
    assert_fails(ls_dataset_text("/tmp", 4, bytes, &d), LS_ERR_DATA, "/tmp: is a folder");
    assert_fails(ls_dataset_text(NULL, 4, bytes, &d), LS_ERR_ARG, "needs a path");
    ls_tokenizer_destroy(t);
    ls_tokenizer_destroy(bytes);
}

/* A long text takes no memory: 200 million bytes, of which all but the first are 0. */
static void a_large_text_stays_on_the_disk(void **state)
{
    (void)state;
    enum { NBYTES = 200000000, CONTEXT = 1024 };
    const char *path = write_file("large.txt", "a", 1);
    assert_int_equal(truncate(path, NBYTES), 0);
    long before = resident_file_kilobytes(), most = before;
    ls_tokenizer *t;
    ls_dataset *d;
    assert_ok(ls_tokenizer_characters(path, &t));
    assert_int_equal(ls_tokenizer_size(t), 2);
    assert_ok(ls_dataset_text(path, CONTEXT, t, &d));
    int64_t windows = ls_dataset_length(d);
    assert_int_equal(windows, (NBYTES - 1) / CONTEXT);
    static int32_t tokens[CONTEXT], targets[CONTEXT];
    for (int64_t i = 0; i < windows; i += 7) {
        int64_t at = (int64_t)((uint64_t)i * 2654435761u % (uint64_t)windows);
        assert_ok(ls_dataset_read(d, at, NULL, (void *[]) { tokens, targets }));
        long now = i % 41 == 0 ? resident_file_kilobytes() : 0;
        if (now > most) most = now;
    }
    long grown = most - before;
    assert_true(before > 0);
    if (grown > 150 * 1024) fail_msg("resident memory grew by %ld kB, of a text of 200 MB", grown);
    ls_dataset_destroy(d);
    ls_tokenizer_destroy(t);
}

static void failed_allocations(void **state)
{
    (void)state;
    ls_tokenizer *t;
    assert_ok(ls_tokenizer_characters(write_file("abc.txt", "abc\n\xC3\xA9", 6), &t));
    for (long n = 1;; n++) {
        ls_dataset *d;
        ls__alloc_fail_at(n);
        ls_status status = ls_dataset_text(test_path("abc.txt"), 3, t, &d);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            ls_dataset_destroy(d);
            assert_true(n > 6);
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
    }
    ls_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_text_stays_on_the_disk),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(characters),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
