/* Files: bounds, and what is left when any system call of a durable write fails. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

static char folder[64];

static int enter_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/lockstep-test-file-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && ls__folder_remove(&ls__fs_posix, folder) == LS_OK ? 0 : -1;
}

/* --- a file system that fails --- */

typedef struct faults {
    int fail_at;    /* the n-th call fails; 0 = none */
    int error;      /* with this errno */
    int calls;      /* so far */
    bool short_io;  /* pwrite takes one byte at a time, every other time EINTR */
    char trace[64]; /* a letter per call */
} faults;

static void note(faults *f, char letter)
{
    size_t n = strlen(f->trace);
    if (n + 1 < sizeof f->trace) f->trace[n] = letter;
}

static bool fails(faults *f)
{
    f->calls++;
    if (f->fail_at == 0 || f->calls != f->fail_at) return false;
    errno = f->error;
    return true;
}

static int faulty_open(void *user, const char *path, int flags, int mode)
{
    note(user, 'o');
    return fails(user) ? -1 : open(path, flags, mode);
}

static int64_t faulty_pwrite(void *user, int fd, const void *data, size_t nbytes, int64_t offset)
{
    note(user, 'w');
    faults *f = user;
    if (fails(f)) return -1;
    if (f->short_io && f->calls % 2) {
        errno = EINTR;
        return -1;
    }
    return pwrite(fd, data, f->short_io ? 1 : nbytes, offset);
}

static int faulty_sync(void *user, int fd)
{
    note(user, 's');
    return fails(user) ? -1 : fsync(fd);
}

static int faulty_close(void *user, int fd)
{
    note(user, 'c');
    bool failed = fails(user);
    int error = errno;
    close(fd);
    errno = error;
    return failed ? -1 : 0;
}

static int faulty_rename(void *user, const char *from, const char *to)
{
    note(user, 'r');
    return fails(user) ? -1 : rename(from, to);
}

static int faulty_symlink(void *user, const char *target, const char *path)
{
    note(user, 'l');
    return fails(user) ? -1 : symlink(target, path);
}

static int faulty_unlink(void *user, const char *path)
{
    (void)user;
    return unlink(path);
}

static ls__fs faulty_fs(faults *f)
{
    ls__fs fs = ls__fs_posix;
    fs.user = f;
    fs.open = faulty_open;
    fs.pwrite = faulty_pwrite;
    fs.sync = faulty_sync;
    fs.close = faulty_close;
    fs.rename = faulty_rename;
    fs.symlink = faulty_symlink;
    fs.unlink = faulty_unlink;
    return fs;
}

static void assert_content(const char *path, const char *expected)
{
    char *data;
    size_t nbytes;
    assert_ok(ls__file_read(path, 1000, &data, &nbytes));
    assert_string_equal(data, expected);
    assert_int_equal(nbytes, strlen(expected));
    ls__free(data);
}

static int entries(void)
{
    int n = 0;
    FILE *list = popen("ls -A | wc -l", "r");
    if (!list || fscanf(list, "%d", &n) != 1) n = -1;
    if (list) pclose(list);
    return n;
}

/* Each call in turn fails with ENOSPC: an error that names the file, the old content or (once
 * renamed) the new one, and nothing left behind. */
static void an_atomic_write_is_all_or_nothing(void **state)
{
    (void)state;
    bool finished = false;
    for (int at = 1; !finished; at++) {
        assert_in_range(at, 1, 20);
        assert_ok(ls__file_write_atomic(&ls__fs_posix, "x", "old", 3));
        faults f = { .fail_at = at, .error = ENOSPC };
        ls__fs fs = faulty_fs(&f);
        ls_status status = ls__file_write_atomic(&fs, "x", "new!", 4);
        finished = f.calls < at;
        char *data;
        size_t nbytes;
        assert_ok(ls__file_read("x", 100, &data, &nbytes));
        assert_true(strcmp(data, "new!") == 0 || strcmp(data, "old") == 0);
        if (status == LS_OK) {
            assert_string_equal(data, "new!");
        } else {
            assert_int_equal(status, LS_ERR_IO);
            assert_non_null(strstr(ls_error_text(), "No space left"));
        }
        ls__free(data);
        assert_int_equal(entries(), 1);
    }
}

/* What a power failure keeps: the content is synced before the name is given, the name after. */
static void durable_things_are_synced_in_order(void **state)
{
    (void)state;
    faults f = { 0 };
    ls__fs fs = faulty_fs(&f);
    assert_ok(ls__file_write_atomic(&fs, "x", "new!", 4));
    assert_string_equal(f.trace, "owscrosc");
    f = (faults) { 0 };
    assert_ok(ls__symlink_replace(&fs, "x", "link"));
    assert_string_equal(f.trace, "lrosc");
    f = (faults) { 0 };
    assert_ok(ls__folder_make(&fs, "a/b")); /* each new name in its folder */
    assert_string_equal(f.trace, "oscosc");
}

static void short_and_interrupted_writes_go_on(void **state)
{
    (void)state;
    faults f = { .short_io = true };
    ls__fs fs = faulty_fs(&f);
    assert_ok(ls__file_write_atomic(&fs, "x", "0123456789", 10));
    assert_content("x", "0123456789");
}

static void reading_is_bounded(void **state)
{
    (void)state;
    char *data;
    size_t nbytes;
    assert_ok(ls__file_write_atomic(&ls__fs_posix, "x", "0123456789", 10));
    assert_ok(ls__file_read("x", 10, &data, &nbytes));
    ls__free(data);
    assert_fails(ls__file_read("x", 9, &data, &nbytes), LS_ERR_DATA, "x: larger than the 9 bytes");
    assert_null(data);
    assert_fails(ls__file_read("absent", 9, &data, &nbytes), LS_ERR_IO, "absent: cannot open");
    assert_fails(ls__file_read(".", 9, &data, &nbytes), LS_ERR_IO, ".: cannot read");
    assert_fails(ls__file_read("/dev/zero", 100000, &data, &nbytes), LS_ERR_DATA, "larger than");
    assert_ok(ls__file_read("/proc/self/cgroup", 1 << 20, &data, &nbytes)); /* st_size is 0 */
    assert_true(nbytes > 0 && data[nbytes] == '\0');
    ls__free(data);
    assert_ok(ls__file_write_atomic(&ls__fs_posix, "empty", "", 0));
    assert_content("empty", "");
}

static void folders_are_made_and_removed_whole(void **state)
{
    (void)state;
    assert_ok(ls__folder_make(&ls__fs_posix, "a/b//c/"));
    assert_ok(ls__folder_make(&ls__fs_posix, "a/b/c"));
    assert_ok(ls__file_write_atomic(&ls__fs_posix, "a/b/c/file", "x", 1));
    assert_ok(ls__file_write_atomic(&ls__fs_posix, "kept", "x", 1));
    assert_ok(ls__symlink_replace(&ls__fs_posix, "../../kept", "a/b/link"));
    assert_ok(ls__symlink_replace(&ls__fs_posix, "../..", "a/b/up"));
    assert_ok(ls__folder_remove(&ls__fs_posix, "a"));
    assert_false(ls__path_exists("a"));
    assert_content("kept", "x");
    assert_ok(ls__folder_remove(&ls__fs_posix, "a")); /* is gone: fine */
    assert_fails(ls__folder_make(&ls__fs_posix, "kept/b"), LS_ERR_IO, "kept");
    assert_fails(ls__folder_make(&ls__fs_posix, "kept"), LS_ERR_IO, "kept: cannot create");
    assert_fails(ls__folder_make(&ls__fs_posix, ""), LS_ERR_ARG, "not a path");
}

static void links_are_replaced(void **state)
{
    (void)state;
    char target[64] = { 0 };
    assert_ok(ls__symlink_replace(&ls__fs_posix, "one", "last"));
    assert_ok(ls__symlink_replace(&ls__fs_posix, "two", "last"));
    assert_int_equal(readlink("last", target, sizeof target), 3);
    assert_string_equal(target, "two");
    for (int at = 1; at <= 2; at++) {
        faults f = { .fail_at = at, .error = EROFS };
        ls__fs fs = faulty_fs(&f);
        assert_fails(ls__symlink_replace(&fs, "three", "last"), LS_ERR_IO, "Read-only");
        assert_int_equal(entries(), 1);
        assert_int_equal(readlink("last", target, sizeof target), 3);
        assert_string_equal(target, "two");
    }
}

static void paths_join(void **state)
{
    (void)state;
    char out[LS_PATH_MAX], longest[LS_PATH_MAX];
    assert_ok(ls__path_join(out, "a", "b"));
    assert_string_equal(out, "a/b");
    assert_ok(ls__path_join(out, "a/", "b"));
    assert_string_equal(out, "a/b");
    assert_ok(ls__path_join(out, "", "b"));
    assert_string_equal(out, "b");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_ok(ls__path_join(out, "", longest));
    assert_fails(ls__path_join(out, "a", longest), LS_ERR_ARG, "longer than 4095");
    assert_fails(ls__file_write_atomic(&ls__fs_posix, longest, "x", 1), LS_ERR_ARG, "longer than");
}

static void paths_from_the_root(void **state)
{
    (void)state;
    char here[LS_PATH_MAX], out[LS_PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_ok(ls__path_absolute(out, "/a/b"));
    assert_string_equal(out, "/a/b");
    assert_ok(ls__path_absolute(out, "a/b"));
    assert_memory_equal(out, here, strlen(here));
    assert_string_equal(out + strlen(here), "/a/b");
}

static void json_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } bad[] = { { "{\"a\":1,\"a\":2}", "duplicate" },
                { "{\"a\":1}x", "x:1:" },
                { "", "x:1:0" },
                { "[1,]", "x:1:" },
                { "{\n \"a\" 1}", "x:2:" },
                { "nan", "x:1:" } };
    json_t *value;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_ok(ls__file_write_atomic(&ls__fs_posix, "x", bad[i].text, strlen(bad[i].text)));
        assert_fails(ls__json_read("x", 100, &value), LS_ERR_DATA, bad[i].error);
        assert_null(value);
    }
    assert_fails(ls__json_read("x", 2, &value), LS_ERR_DATA, "larger than");

    value = json_pack("{s:o,s:o,s:o}", "nan", ls__json_double(0.0 / 0.0), "x", ls__json_double(0.5),
                      "sum", ls__json_u64(0x0123456789abcdefu));
    assert_ok(ls__json_write(&ls__fs_posix, "x", value));
    json_decref(value);
    assert_ok(ls__json_read("x", 1000, &value));
    char *line = ls__json_line(value);
    assert_string_equal(line, "{\"nan\":null,\"x\":0.5,\"sum\":\"0123456789abcdef\"}");
    ls__free(line);
    uint64_t sum;
    assert_true(ls__json_parse_u64(json_object_get(value, "sum"), &sum));
    assert_int_equal(sum, 0x0123456789abcdefu);
    assert_false(ls__json_parse_u64(json_object_get(value, "x"), &sum));
    json_decref(value);
    value = json_string("0123456789abcdeg");
    assert_false(ls__json_parse_u64(value, &sum));
    json_decref(value);
}

static void json_numbers_are_short_and_exact(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = { { 0.1, "0.1" },
                  { 3, "3.0" },
                  { -0.0, "-0.0" },
                  { 1e300, "1e+300" },
                  { 1.0 / 3, "0.3333333333333333" },
                  { 0.1 + 0.2, "0.30000000000000004" },
                  { 5e-324, "4.94065645841247e-324" },
                  { 123456789012345680.0, "1.2345678901234568e+17" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *value = json_pack("[f]", cases[i].value), *again;
        char *line = ls__json_line(value), expected[64];
        snprintf(expected, sizeof expected, "[%s]", cases[i].text);
        assert_string_equal(line, expected);
        again = json_loads(line, 0, NULL);
        assert_true(json_is_real(json_array_get(again, 0)));
        double back = json_real_value(json_array_get(again, 0));
        assert_memory_equal(&back, &cases[i].value, sizeof back);
        json_decref(again);
        json_decref(value);
        ls__free(line);
    }
}

static void json_files_are_indented(void **state)
{
    (void)state;
    json_t *value = json_pack("{s:[i,i],s:{},s:[],s:[{s:b}],s:s}", "shape", 2, 3, "none", "empty",
                              "list", "x", 1, "text", "a\"\\\n\t\x7f\xc3\xa4");
    assert_non_null(value);
    assert_ok(ls__json_write(&ls__fs_posix, "x", value));
    assert_content("x", "{\n  \"shape\": [2, 3],\n  \"none\": {},\n  \"empty\": [],\n"
                        "  \"list\": [\n    {\n      \"x\": true\n    }\n  ],\n"
                        "  \"text\": \"a\\\"\\\\\\n\\u0009\\u007f\xc3\xa4\"\n}\n");
    json_t *again;
    assert_ok(ls__json_read("x", 1000, &again));
    assert_true(json_equal(value, again));
    json_decref(again);
    ls__alloc_fail_at(1);
    assert_fails(ls__json_write(&ls__fs_posix, "y", value), LS_ERR_MEMORY, "out of memory");
    ls__alloc_fail_at(1);
    assert_null(ls__json_line(value));
    ls__alloc_fail_at(0);
    assert_false(ls__path_exists("y"));
    json_decref(value);
}

static void failed_allocations_are_statuses(void **state)
{
    (void)state;
    char *data;
    size_t nbytes;
    assert_ok(ls__file_write_atomic(&ls__fs_posix, "x", "0123456789", 10));
    ls__alloc_fail_at(1);
    assert_fails(ls__file_read("x", 100, &data, &nbytes), LS_ERR_MEMORY, "out of memory");
    ls__alloc_fail_at(2); /* /proc: the buffer has to grow */
    assert_fails(ls__file_read("/proc/self/status", 1 << 20, &data, &nbytes), LS_ERR_MEMORY,
                 "out of memory");
    assert_null(data);
    ls__alloc_fail_at(0);
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_folder(an_atomic_write_is_all_or_nothing),
        in_folder(durable_things_are_synced_in_order),
        in_folder(short_and_interrupted_writes_go_on),
        in_folder(reading_is_bounded),
        in_folder(folders_are_made_and_removed_whole),
        in_folder(links_are_replaced),
        in_folder(paths_join),
        in_folder(paths_from_the_root),
        in_folder(json_is_strict),
        in_folder(json_numbers_are_short_and_exact),
        in_folder(json_files_are_indented),
        in_folder(failed_allocations_are_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
