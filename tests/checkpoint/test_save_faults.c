/* Every call of a save fails once: the checkpoint before it stays, the error says what and where,
 * and the next save works. */
#include "testing.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "helper_fault.h"
#include "helper_saved.h"

static char folder[LS_PATH_MAX];

static void start_over(void)
{
    snprintf(folder, sizeof folder, "%s", fresh_folder("faults"));
}

static int teardown(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, folder) == LS_OK ? 0 : -1;
}

static long long newest(void)
{
    char path[LS_PATH_MAX];
    if (ls__checkpoint_find(folder, true, path, NULL) != LS_OK) fail_msg("%s", ls_error_text());
    if (!path[0]) return -1;
    long long step = atoll(strrchr(path, '-') + 1);
    const char *differs = saved_check(path, step, 1);
    if (differs) fail_msg("%s", differs);
    return step;
}

static void short_writes(void **state)
{
    (void)state;
    start_over();
    fault_disk *disk = fault_create(FAULT_FULL, 0);
    saved_job job = { .folder = folder, .fs = fault_fs(disk), .size = 2 };
    assert_ok(saved_run(&job, &(saved_save) { 1, NAN }, 1, NULL));
    assert_int_equal(newest(), 1);
    fault_destroy(disk);
}

/* Nothing is left of a save that failed, but for a disk that takes no removal either. */
static void assert_no_leftovers(int n)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, ".step-", 6) == 0) fail_msg("call %d: %s", n, entry->d_name);
    closedir(dir);
}

/* Step 1 is there; the n-th call of saving 2 fails. false = there is no n-th call. */
static bool nth_fails(fault_kind kind, int n, int size)
{
    start_over();
    saved_job job = { .folder = folder, .size = size, .keep_best = 1, .timeout_ms = 20000 };
    assert_ok(saved_run(&job, &(saved_save) { 1, 0.5 }, 1, NULL));
    fault_disk *disk = fault_create(kind, n);
    job.fs = fault_fs(disk);
    ls_status status = saved_run(&job, &(saved_save) { 2, 0.25 }, 1, NULL);
    bool happened = fault_happened(disk);
    fault_destroy(disk);
    if (!happened) {
        assert_ok(status);
        assert_int_equal(newest(), 2);
        return false;
    }
    if (status != LS_OK) {
        assert_int_equal(status, LS_ERR_IO);
        assert_int_equal(ls__exit_code(status), 74);
        if (!strstr(ls_error_text(), folder) ||
            !strstr(ls_error_text(),
                    kind == FAULT_FULL ? "No space left on device" : "Input/output error"))
            fail_msg("call %d: the text is: %s", n, ls_error_text());
    }
    if (status != LS_OK && kind == FAULT_FULL) assert_no_leftovers(n);
    long long found = newest();
    if (found != 2 && !(found == 1 && status != LS_OK))
        fail_msg("call %d: status %d, and step %lld is the newest", n, status, found);
    job.fs = NULL;
    assert_ok(saved_run(&job, &(saved_save) { 3, 0.75 }, 1, NULL));
    assert_int_equal(newest(), 3);
    return true;
}

static void every_call(fault_kind kind, int size)
{
    int n = 1;
    while (nth_fails(kind, n, size)) n++;
    printf("%d calls\n", n - 1);
    assert_in_range(n, 30, 500);
}

static void full_at_every_call(void **state)
{
    (void)state;
    every_call(FAULT_FULL, 1);
}

static void full_at_every_call_of_three(void **state)
{
    (void)state;
    every_call(FAULT_FULL, 3);
}

static void broken_from_every_call(void **state)
{
    (void)state;
    every_call(FAULT_BROKEN, 1);
}

/* One save fails, the run notices at the next, and could go on. */
static void told_at_next_save(void **state)
{
    (void)state;
    start_over();
    fault_disk *disk = fault_create(FAULT_FULL, 12);
    saved_job job = { .folder = folder, .fs = fault_fs(disk), .size = 1, .resave = true };
    saved_save saves[] = { { 1, NAN }, { 2, NAN } };
    ls_status statuses[2];
    assert_fails(saved_run(&job, saves, 2, statuses), LS_ERR_IO,
                 "the checkpoint of step 1 was not saved: ");
    assert_int_equal(statuses[0], LS_ERR_IO);
    assert_int_equal(statuses[1], LS_OK);
    assert_int_equal(newest(), 2);
    fault_destroy(disk);
}

/* Every allocation fails once, in ranks and writers alike. */
static void out_of_memory(void **state)
{
    (void)state;
    start_over();
    saved_job job = { .folder = folder, .size = 1, .keep_best = 1 };
    assert_ok(saved_run(&job, &(saved_save) { 1, 0.5 }, 1, NULL));
    int failures = 0;
    for (long n = 1; n < 2000; n++) {
        ls__alloc_fail_at(n);
        ls_status status = saved_run(&job, &(saved_save) { 2, 0.25 }, 1, NULL);
        ls__alloc_fail_at(0);
        if (status != LS_OK) assert_int_equal(status, LS_ERR_MEMORY);
        failures += status != LS_OK;
        assert_in_range(newest(), 1, 2);
    }
    assert_true(failures > 10);
}

int main(void)
{
    ls__log_set_level(LS__LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(short_writes, teardown),
        cmocka_unit_test_teardown(full_at_every_call, teardown),
        cmocka_unit_test_teardown(full_at_every_call_of_three, teardown),
        cmocka_unit_test_teardown(broken_from_every_call, teardown),
        cmocka_unit_test_teardown(told_at_next_save, teardown),
        cmocka_unit_test_teardown(out_of_memory, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
