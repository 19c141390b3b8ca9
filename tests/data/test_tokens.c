/* Token files: both formats, windows over several files, what is refused, and resident memory. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

#include "base/log.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "data/tokens.h"
#include "helper_data_files.h"

enum { GPT2 = LS__SHARD_GPT2, LLAMA3 = LS__SHARD_LLAMA3 };
static uint8_t bytes[1 << 16];

/* Window i of a dataset holds tokens first, first + step, ... */
static void check_window(const ls_dataset *d, int64_t i, int64_t context, int32_t first,
                         int32_t step)
{
    int32_t tokens[64], targets[64];
    assert_true(context <= 64);
    assert_ok(ls_dataset_read(d, i, NULL, (void *[]) { tokens, targets }));
    for (int64_t k = 0; k < context; k++) {
        assert_int_equal(tokens[k], first + step * k);
        assert_int_equal(targets[k], first + step * (k + 1));
    }
}

static void shards_of_both_versions(void **state)
{
    (void)state;
    const struct {
        int32_t magic, version;
    } all[] = { { GPT2, 1 }, { LLAMA3, 7 } };
    for (int i = 0; i < 2; i++) {
        write_file("shard.bin", bytes, make_shard(bytes, all[i].magic, all[i].version, 41, 41));
        ls_dataset *d;
        assert_ok(ls_dataset_tokens(test_path("shard.bin"), 10, &d));
        int nfields;
        const ls_field *f = ls_dataset_fields(d, &nfields);
        assert_int_equal(nfields, 2);
        assert_string_equal(f[0].name, "tokens");
        assert_string_equal(f[1].name, "targets");
        for (int k = 0; k < 2; k++) {
            assert_int_equal(f[k].type, LS_DTYPE_I32);
            assert_int_equal(f[k].rank, 1);
            assert_int_equal(f[k].shape[0], 10);
        }
        assert_int_equal(ls_dataset_length(d), 4);
        for (int64_t w = 0; w < 4; w++) {
            d->prefetch(d->self, w);
            check_window(d, w, 10, (int32_t)w * 70 + 3, 7);
        }
        ls_dataset_destroy(d);
    }
}

static void a_file_without_a_header(void **state)
{
    (void)state;
    uint16_t tokens[] = { 65000, 65001, 65002, 65003, 65004, 65005, 65006, 65007 };
    write_file("plain.bin", tokens, sizeof tokens);
    ls_dataset *d;
    assert_ok(ls_dataset_tokens(test_path("plain.bin"), 3, &d));
    assert_int_equal(ls_dataset_length(d), 2); /* 7 targets */
    check_window(d, 1, 3, 65003, 1);
    assert_true(d->in_memory);
    ls_dataset_destroy(d);
    assert_ok(ls_dataset_tokens(test_path("plain.bin"), 1, &d));
    assert_int_equal(ls_dataset_length(d), 7);
    check_window(d, 6, 1, 65006, 1);
    ls_dataset_destroy(d);
}

static void files_in_the_order_of_their_names(void **state)
{
    (void)state;
    for (uint16_t file = 0; file < 3; file++) {
        uint16_t tokens[9];
        for (uint16_t i = 0; i < 9; i++) tokens[i] = (uint16_t)((file + 1) * 1000 + i);
        const char *const names[] = { "part-B.tok", "part-a.tok", "part-A.tok" };
        write_file(names[file], tokens, sizeof tokens - 2u * file);
    }
    ls_dataset *d; /* A: 7 tokens, B: 9, a: 8 */
    assert_ok(ls_dataset_tokens(test_path("part-*.tok"), 4, &d));
    assert_int_equal(ls_dataset_length(d), 1 + 2 + 1);
    check_window(d, 0, 4, 3000, 1);
    check_window(d, 1, 4, 1000, 1);
    check_window(d, 2, 4, 1004, 1);
    check_window(d, 3, 4, 2000, 1);
    ls_dataset_destroy(d);
    /* A file too short for a window is left out. */
    write_file("part-A.tok", "\1\0\2\0", 4);
    ls__log_set_level(LS__LOG_ERROR);
    assert_ok(ls_dataset_tokens(test_path("part-*.tok"), 4, &d));
    ls__log_set_level(LS__LOG_INFO);
    assert_int_equal(ls_dataset_length(d), 3);
    check_window(d, 0, 4, 1000, 1);
    check_window(d, 2, 4, 2000, 1);
    ls_dataset_destroy(d);
    /* A name with brackets is a name. */
    write_file("x[1].tok", "\1\0\2\0\3\0", 6);
    assert_ok(ls_dataset_tokens(test_path("x[1].tok"), 2, &d));
    check_window(d, 0, 2, 1, 1);
    ls_dataset_destroy(d);
}

static void shard_fails(size_t nbytes, const char *says)
{
    ls_dataset *d;
    write_file("bad.bin", bytes, nbytes);
    assert_fails(ls_dataset_tokens(test_path("bad.bin"), 4, &d), LS_ERR_DATA, says);
    assert_non_null(strstr(ls_error_text(), "bad.bin"));
    assert_null(d);
}

static void shards_that_are_wrong(void **state)
{
    (void)state;
    make_shard(bytes, GPT2, 1, 20, 20);
    shard_fails(1024 + 38, "truncated: 1062 bytes, but the 20 tokens that its header promises make "
                           "1064");
    shard_fails(1024 + 42, "too long: 1066 bytes");
    shard_fails(1000, "truncated: 1000 bytes; a shard's header alone has 1024");
    shard_fails(make_shard(bytes, GPT2, 1, 21, 20), "the 21 tokens that its header promises");
    shard_fails(make_shard(bytes, LLAMA3, 7, 10, 20), "too long: 1104 bytes, but the 10 tokens");
    shard_fails(make_shard(bytes, GPT2, 2, 20, 20), "a shard of version 2; 1 is read");
    shard_fails(make_shard(bytes, LLAMA3, 1, 20, 20), "a shard of version 1; 7 is read");
    shard_fails(make_shard(bytes, GPT2, 1, -5, 20), "the header says -5 tokens");
    shard_fails(make_shard(bytes, GPT2, 1, 0, 0), "the header says 0 tokens");
    shard_fails(make_shard(bytes, 20240522, 1, 20, 20), "multiple-choice questions");
    shard_fails(make_shard(bytes, 20240326, 3, 20, 20), "it is a model of llm.c");
    shard_fails(make_shard(bytes, 20240519, 1, 20, 20),
                "begins with a header of magic 20240519 and version 1");
    shard_fails(make_shard(bytes, GPT2, 1, 4, 4), "4 tokens, but a window of 4 and the token "
                                                  "behind it need 5");
}

static void files_that_are_something_else(void **state)
{
    (void)state;
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:1234\n";
    memcpy(bytes, lfs, sizeof lfs);
    shard_fails(sizeof lfs - 1, "it is a git-lfs pointer: run git lfs pull");
    memcpy(bytes, "<!DOCTYPE html><p>404</p>", 26);
    shard_fails(26, "HTML page");
    memcpy(bytes, "\037\213\010\0\0\0\0\0\0\0", 10);
    shard_fails(10, "it is compressed");
    memset(bytes, 'a', 100);
    shard_fails(100, "it is a text");
    for (int i = 0; i < 100; i++) bytes[i] = (uint8_t)(i * 37);
    shard_fails(99, "an odd number of bytes (99)");
    ls_dataset *d;
    write_file("none.bin", "", 0);
    assert_fails(ls_dataset_tokens(test_path("none.bin"), 4, &d), LS_ERR_DATA, "file is empty");
    assert_fails(ls_dataset_tokens(test_path("*.nothing"), 4, &d), LS_ERR_DATA,
                 "*.nothing: no file has this name or matches");
    assert_fails(ls_dataset_tokens("", 4, &d), LS_ERR_DATA, "no file has this name");
    assert_fails(ls_dataset_tokens("/tmp", 4, &d), LS_ERR_DATA, "/tmp: is a folder");
    assert_fails(ls_dataset_tokens(NULL, 4, &d), LS_ERR_ARG, "needs a file or a pattern");
    /* Two bytes of a gzip file's three may well begin a file of tokens. */
    write_file("real.bin", "\037\213\001\0\2\0", 6);
    assert_ok(ls_dataset_tokens(test_path("real.bin"), 2, &d));
    ls_dataset_destroy(d);
    assert_fails(ls_dataset_tokens(test_path("real.bin"), 0, &d), LS_ERR_ARG, "a context of 0");
}

static void a_token_beyond_the_vocabulary(void **state)
{
    (void)state;
    write_file("v.bin", bytes, make_shard(bytes, GPT2, 1, 41, 41)); /* the last is 283 */
    ls_dataset *d;
    assert_ok(ls_dataset_tokens_with(test_path("v.bin"), 10,
                                     &(ls_token_options) { .vocabulary = 284 }, &d));
    check_window(d, 3, 10, 213, 7);
    ls_dataset_destroy(d);
    assert_fails(ls_dataset_tokens_with(test_path("v.bin"), 10,
                                        &(ls_token_options) { .vocabulary = 283 }, &d),
                 LS_ERR_DATA, "token 40 holds 283, but the vocabulary has 283");
    assert_ok(ls_dataset_tokens_with(test_path("v.bin"), 11, /* the last one is in no window */
                                     &(ls_token_options) { .vocabulary = 283 }, &d));
    ls_dataset_destroy(d);
    size_t n = make_shard(bytes, LLAMA3, 7, 5, 5);
    memset(bytes + n - 8, 0xFF, 4);
    write_file("v.bin", bytes, n);
    assert_fails(ls_dataset_tokens(test_path("v.bin"), 4, &d), LS_ERR_DATA,
                 "token 3 holds 4294967295");
    assert_fails(
        ls_dataset_tokens_with(test_path("v.bin"), 4, &(ls_token_options) { .vocabulary = -1 }, &d),
        LS_ERR_ARG, "a vocabulary of -1");
}

/* Far into a large file: an error of the read. */
static void a_late_token_beyond_the_vocabulary(void **state)
{
    (void)state;
    enum { COUNT = 5000000, CONTEXT = 100 };
    static int32_t tokens[CONTEXT], targets[CONTEXT];
    const char *path = write_file("late.bin", "\1", 2);
    assert_int_equal(truncate(path, 2l * COUNT), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\5", 1, 2l * (COUNT - CONTEXT)), 1);
    close(fd);
    ls_dataset *d;
    assert_ok(ls_dataset_tokens_with(path, CONTEXT, &(ls_token_options) { .vocabulary = 5 }, &d));
    int64_t last = ls_dataset_length(d) - 1;
    assert_ok(ls_dataset_read(d, last - 1, NULL, (void *[]) { tokens, targets }));
    assert_fails(ls_dataset_read(d, last, NULL, (void *[]) { tokens, targets }), LS_ERR_DATA,
                 "token 4999900 holds 5, but the vocabulary has 5");
    assert_non_null(strstr(ls_error_text(), "sample 49998 of "));
    assert_non_null(strstr(ls_error_text(), "or is not one of 16-bit tokens without a header"));
    ls_dataset_destroy(d);
}

/* 500 million tokens, all 0: a file of a gigabyte that takes no space on the disk. */
static void a_gigabyte_stays_on_the_disk(void **state)
{
    (void)state;
    enum { COUNT = 500000000, CONTEXT = 1024 };
    make_shard(bytes, GPT2, 1, COUNT, 0);
    const char *path = write_file("large.bin", bytes, 1024);
    assert_int_equal(truncate(path, 1024 + 2l * COUNT), 0);
    ls_dataset *d;
    assert_ok(ls_dataset_tokens(path, CONTEXT, &d));
    int64_t windows = ls_dataset_length(d);
    assert_int_equal(windows, (COUNT - 1) / CONTEXT);
    static int32_t tokens[CONTEXT], targets[CONTEXT];
    long before = resident_file_kilobytes(), most = before;
    for (int64_t i = 0; i < windows; i += 7) {
        int64_t at = (int64_t)((uint64_t)i * 2654435761u % (uint64_t)windows);
        assert_ok(ls_dataset_read(d, at, NULL, (void *[]) { tokens, targets }));
        long now = i % 41 == 0 ? resident_file_kilobytes() : 0;
        if (now > most) most = now;
    }
    assert_true(before > 0);
    long grown = most - before;
    if (grown > 150 * 1024) fail_msg("resident memory grew by %ld kB, of a shard of 1 GB", grown);
    ls_dataset_destroy(d);
}

enum { SHARED_COUNT = 50000000, SHARED_CONTEXT = 512 };

/* Reads all over the file, while others do and pages are handed back. */
static void *read_many(void *user)
{
    const ls_dataset *d = user;
    int32_t tokens[SHARED_CONTEXT], targets[SHARED_CONTEXT];
    for (int64_t i = 0; i < 400; i++) {
        int64_t at = i * 7919 % ls_dataset_length(d);
        if (ls_dataset_read(d, at, NULL, (void *[]) { tokens, targets }) != LS_OK) return user;
        for (int k = 0; k < SHARED_CONTEXT; k++)
            if (tokens[k] != 0 || targets[k] != 0) return user;
    }
    return NULL;
}

static void several_threads_read(void **state)
{
    (void)state;
    make_shard(bytes, GPT2, 1, SHARED_COUNT, 0);
    const char *path = write_file("shared.bin", bytes, 1024);
    assert_int_equal(truncate(path, 1024 + 2l * SHARED_COUNT), 0);
    ls_dataset *d;
    assert_ok(ls_dataset_tokens(path, SHARED_CONTEXT, &d));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_many, d), 0);
    for (int i = 0; i < 3; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    ls_dataset_destroy(d);
}

static void failed_allocations(void **state)
{
    (void)state;
    write_file("m1.mem", bytes, make_shard(bytes, GPT2, 1, 20, 20));
    write_file("m2.mem", bytes, make_shard(bytes, GPT2, 1, 20, 20));
    for (long n = 1;; n++) {
        ls_dataset *d;
        ls__alloc_fail_at(n);
        ls_status status = ls_dataset_tokens(test_path("m*.mem"), 4, &d);
        ls__alloc_fail_at(0);
        if (status == LS_OK) {
            ls_dataset_destroy(d);
            assert_true(n > 6); /* two runs' names, the runs, windows, dataset, its fields */
            break;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_of_both_versions),
        cmocka_unit_test(a_file_without_a_header),
        cmocka_unit_test(files_in_the_order_of_their_names),
        cmocka_unit_test(shards_that_are_wrong),
        cmocka_unit_test(files_that_are_something_else),
        cmocka_unit_test(a_token_beyond_the_vocabulary),
        cmocka_unit_test(a_late_token_beyond_the_vocabulary),
        cmocka_unit_test(a_gigabyte_stays_on_the_disk),
        cmocka_unit_test(several_threads_read),
        cmocka_unit_test(failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
