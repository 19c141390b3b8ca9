/* Status, error text per thread, ls_check and asserts as a process would see them; memory. */
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

static void texts_are_kept(void **state)
{
    (void)state;
    assert_int_equal(ls_fail(LS_ERR_DATA, "%s: bad", "x.idx"), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "x.idx: bad");
    ls_fail(LS_ERR_DATA, "while loading: %s", ls_error_text()); /* its own text as an argument */
    assert_string_equal(ls_error_text(), "while loading: x.idx: bad");
    errno = ENOENT;
    assert_int_equal(ls__fail_errno(LS_ERR_IO, "%s", "y"), LS_ERR_IO);
    assert_string_equal(ls_error_text(), "y: No such file or directory");
    errno = EMFILE;
    assert_int_equal(ls__fail_errno(LS_ERR_INTERNAL, "epoll_create1"), LS_ERR_MEMORY);
    assert_string_equal(ls_error_text(),
                        "epoll_create1: Too many open files (ulimit -n raises how many)");

    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ls_fail(LS_ERR_ARG, "%s", longest);
    size_t n = strlen(ls_error_text());
    assert_int_equal(n, 2047);
    assert_string_equal(ls_error_text() + n - 4, "x...");
    errno = ENOENT;
    ls__fail_errno(LS_ERR_ARG, "%.2045s", longest); /* the reason does not fit either */
    assert_string_equal(ls_error_text() + 2043, "x...");
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    assert_string_equal(ls_error_text(), "");
    ls_fail(LS_ERR_IO, "of the other thread");
    return NULL;
}

static void texts_belong_to_a_thread(void **state)
{
    (void)state;
    ls_fail(LS_ERR_DATA, "mine");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(ls_error_text(), "mine");
}

static void statuses_have_names_and_codes(void **state)
{
    (void)state;
    assert_int_equal(ls__exit_code(LS_OK), 0);
    assert_int_equal(ls__exit_code(LS_ERR_CONFIG), 2);
    assert_int_equal(ls__exit_code(LS_ERR_IO), 74);
    assert_int_equal(ls__exit_code((ls_status)99), 70);
    for (int i = 0; i <= LS_ERR_DEVICE; i++)
        assert_int_equal(ls__status_from_name(ls__status_name((ls_status)i)), i);
    assert_int_equal(ls__status_from_name("nonsense"), LS_ERR_INTERNAL);
    assert_string_equal(ls__status_text((ls_status)-1), "unknown status");
}

/* Runs what in a child; its exit code, and what it wrote to stderr. */
static int in_child(void (*what)(void), char *err, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        what();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    ssize_t n;
    while ((n = read(ends[0], err + used, size - 1 - used)) > 0) used += (size_t)n;
    err[used] = '\0';
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void check_fine(void)
{
    ls_check(LS_OK);
}

static void check_data(void)
{
    ls_check(ls_fail(LS_ERR_DATA, "x.idx: bad"));
}

static void check_stale(void)
{
    ls_fail(LS_ERR_DATA, "something else");
    ls_check(LS_ERR_TIMEOUT);
}

/* Tells it itself unless user says otherwise. */
static bool hook(void *user, ls_status status, const char *text)
{
    dprintf(2, "%s %d %s\n", (char *)user, status, text);
    return strcmp(user, "tells") == 0;
}

static void check_hooked(void)
{
    static char user[] = "hook";
    ls__check_set_hook(hook, user);
    check_data();
}

static void check_told(void)
{
    static char user[] = "tells";
    ls__check_set_hook(hook, user);
    check_data();
}

static void assert_wrong(void)
{
    LS_ASSERT(1 + 1 == 3);
}

static void check_prints_and_exits(void **state)
{
    (void)state;
    char err[500];
    assert_int_equal(in_child(check_fine, err, sizeof err), 0);
    assert_string_equal(err, "");
    assert_int_equal(in_child(check_data, err, sizeof err), 2);
    assert_string_equal(err, "lockstep: error: x.idx: bad\n");
    assert_int_equal(in_child(check_stale, err, sizeof err), 69);
    assert_string_equal(err, "lockstep: error: timed out\n");
    assert_int_equal(in_child(check_hooked, err, sizeof err), 2);
    assert_string_equal(err, "hook 4 x.idx: bad\nlockstep: error: x.idx: bad\n");
    assert_int_equal(in_child(check_told, err, sizeof err), 2);
    assert_string_equal(err, "tells 4 x.idx: bad\n");
    assert_int_equal(in_child(assert_wrong, err, sizeof err), 70);
    assert_non_null(strstr(err, "1 + 1 == 3 does not hold"));
}

static void memory_is_checked(void **state)
{
    (void)state;
    assert_null(ls__alloc(SIZE_MAX, 2));
    assert_non_null(strstr(ls_error_text(), "out of memory"));
    assert_null(ls__realloc(NULL, SIZE_MAX / 2, 4));
    assert_null(ls__alloc(SIZE_MAX / 2, 1));
    void *none = ls__alloc(0, 8);
    assert_non_null(none);
    ls__free(none);
    ls__free(NULL);

    for (int n = 1; n <= 4; n++) {
        ls__alloc_fail_at(n);
        void *a = ls__alloc(1, 1), *b = ls__strdup("b"), *c = ls__format("%d", 7);
        void *d = ls__map(100);
        assert_int_equal(a == NULL, n == 1);
        assert_int_equal(b == NULL, n == 2);
        assert_int_equal(c == NULL, n == 3);
        assert_int_equal(d == NULL, n == 4);
        ls__free(a);
        ls__free(b);
        ls__free(c);
        ls__unmap(d, 100);
    }
    ls__alloc_fail_at(0);
    char *text = ls__format("%s-%d", "step", 12);
    assert_string_equal(text, "step-12");
    ls__free(text);
}

static void maps_are_aligned_and_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 4096, 4097, (4 << 20) - 1, 4 << 20, (9 << 20) + 5 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *p = ls__map(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 4096, 0);
        if (sizes[i] >= 4 << 20) assert_int_equal((uintptr_t)p % (2 << 20), 0);
        for (size_t k = 0; k < sizes[i]; k += 1024) assert_int_equal(p[k], 0);
        if (sizes[i] > 0) p[sizes[i] - 1] = 1;
        ls__unmap(p, sizes[i]);
    }
    assert_null(ls__map(SIZE_MAX));
    assert_null(ls__map(SIZE_MAX - (3 << 20)));
    ls__unmap(NULL, 5);
}

static void clocks_go_forward(void **state)
{
    (void)state;
    double begin = ls__now();
    ls__sleep_ms(20);
    assert_true(ls__now() - begin >= 0.02);
    char text[32];
    ls__wall_text(1796160889.7, text);
    assert_string_equal(text, "2026-12-01T21:34:49Z");
    assert_true(ls__wall_time() > 1.6e9);
}

static void arrays_count(void **state)
{
    (void)state;
    ls_array a = { .rank = 3, .shape = { 2, 3, 4 } };
    assert_int_equal(ls_array_count(&a), 24);
    a.rank = 0;
    assert_int_equal(ls_array_count(&a), 1);
    assert_int_equal(ls_dtype_size(LS_DTYPE_BF16), 2);
    assert_string_equal(ls_dtype_name(LS_DTYPE_U64), "u64");
    assert_int_equal(ls_dtype_size((ls_dtype)77), 0);
    assert_string_equal(ls_dtype_name((ls_dtype)-1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_kept),
        cmocka_unit_test(texts_belong_to_a_thread),
        cmocka_unit_test(statuses_have_names_and_codes),
        cmocka_unit_test(check_prints_and_exits),
        cmocka_unit_test(memory_is_checked),
        cmocka_unit_test(maps_are_aligned_and_zero),
        cmocka_unit_test(clocks_go_forward),
        cmocka_unit_test(arrays_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
