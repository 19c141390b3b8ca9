/* Power fails at every moment of a few saves, and whatever was not synced is lost, torn, or out of
 * order: the newest complete checkpoint always loads, and is the last one that was promised or the
 * one being saved. */
#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "base/log.h"
#include "helper_crash.h"
#include "helper_saved.h"

static char live[LS_PATH_MAX], after[LS_PATH_MAX];
static bool some_damaged; /* by the test itself */

static int setup(void **state)
{
    (void)state;
    snprintf(live, sizeof live, "%s", fresh_folder("live"));
    snprintf(after, sizeof after, "%s", fresh_folder("after"));
    some_damaged = false;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, live) == LS_OK &&
                   ls__folder_remove(&ls__fs_posix, after) == LS_OK
               ? 0
               : -1;
}

/* What has the name of a checkpoint is one, even where a newer one is there. */
static void check_all_whole(const char *where)
{
    ls__checkpoint_entry *entries;
    int n;
    char path[LS_PATH_MAX];
    assert_ok(ls__checkpoint_list(after, &entries, &n));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.3000s/step-%08lld", after, (long long)entries[i].step);
        if (ls__checkpoint_verify(path) != LS_OK) fail_msg("%s: %s", where, ls_error_text());
    }
    ls__checkpoint_list_free(entries, n);
}

/* The same job again in one more process would find this. */
static void check_state(int64_t promised, int64_t next, const char *where)
{
    char path[LS_PATH_MAX];
    if (ls__checkpoint_find(after, true, path, NULL) != LS_OK)
        fail_msg("%s: %s", where, ls_error_text());
    if (!path[0]) {
        if (promised >= 0) fail_msg("%s: step %lld is lost", where, (long long)promised);
        return;
    }
    long long step = atoll(strrchr(path, '-') + 1);
    if (step != promised && step != next)
        fail_msg("%s: step %lld was found, %lld promised", where, step, (long long)promised);
    const char *differs = saved_check(path, step, 1);
    if (differs) fail_msg("%s: %s", where, differs);
    if (!some_damaged) check_all_whole(where);
}

static void check_moment(const crash_disk *disk, int moment, int64_t next, long *states)
{
    char where[128];
    int64_t promised = crash_promised(disk, moment);
    int loose, writes;
    crash_loose(disk, moment, &loose, &writes);
    for (int names = loose ? -2 : 0; names <= loose; names++) {
        bool inner = names > 1 && names < loose - 1; /* the ends say most */
        for (int data = 0; data < (writes && !inner ? CRASH_DATA_KINDS : 1); data++) {
            uint64_t seed = (uint64_t)(moment * 1000 + (names + 2) * 10 + data);
            snprintf(where, sizeof where, "moment %d, %d of %d names, data %d", moment, names,
                     loose, data);
            crash_make(disk, moment, names < 0 ? -1 : names, (crash_data)data, seed, after);
            check_state(promised, next, where);
            ++*states;
        }
    }
}

/* After some of the failures the run goes on from what is left. */
static void go_on(const crash_disk *disk, int moment)
{
    crash_make(disk, moment, -1, CRASH_DATA_SOME, (uint64_t)moment, after);
    char path[LS_PATH_MAX];
    saved_job job = { .folder = after, .size = 1, .keep_last = 1, .keep_best = 1 };
    assert_ok(ls__checkpoint_find(after, true, path, NULL));
    assert_ok(saved_run(&job, &(saved_save) { 50, 0.5 }, 1, NULL));
    assert_ok(ls__checkpoint_find(after, true, path, NULL));
    assert_null(saved_check(path, 50, 2));
}

/* Saves one by one, so that each is promised when its wait has returned. */
static void power_fails(const saved_job *base, const saved_save *saves, int n)
{
    crash_disk *disk = crash_create(live);
    saved_job job = *base;
    job.fs = crash_fs(disk);
    long states = 0;
    char path[LS_PATH_MAX];
    assert_ok(ls__checkpoint_find(live, false, path, NULL));
    if (path[0]) crash_promise(disk, atoll(strrchr(path, '-') + 1));
    int first = 0;
    for (int i = 0; i < n; i++) {
        assert_ok(saved_run(&job, &saves[i], 1, NULL));
        for (; first <= crash_moments(disk); first++)
            check_moment(disk, first, saves[i].step, &states);
        crash_promise(disk, saves[i].step);
    }
    for (int moment = 0; moment <= crash_moments(disk); moment += 11) go_on(disk, moment);
    printf("%d moments, %ld states\n", crash_moments(disk), states);
    assert_true(states > 100L * n);
    crash_destroy(disk);
}

static void fresh_run(void **state)
{
    (void)state;
    saved_job job = { .folder = live, .size = 1, .keep_last = 1, .keep_best = 1 };
    saved_save saves[] = { { 1, 0.5 }, { 2, 0.2 }, { 3, 0.4 }, { 4, 0.1 } };
    power_fails(&job, saves, 4);
}

static void two_ranks(void **state)
{
    (void)state;
    saved_job job = { .folder = live, .size = 2, .keep_last = 1 };
    saved_save saves[] = { { 1, NAN }, { 2, NAN } };
    power_fails(&job, saves, 2);
}

/* Step 4 is damaged, so that the run went on from 3: 4 is saved again after 3's past is replaced. */
static void over_damaged(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    saved_job job = { .folder = live, .size = 1, .keep_last = -1, .keep_best = 1 };
    saved_save before[] = { { 2, 0.5 }, { 3, 0.4 }, { 4, 0.1 }, { 6, 0.3 } };
    assert_ok(saved_run(&job, before, 4, NULL));
    snprintf(path, sizeof path, "%.3000s/step-00000004/model.safetensors", live);
    some_damaged = true;
    flip_byte(path, 4200);
    snprintf(path, sizeof path, "%.3000s/step-00000006/model.safetensors", live);
    flip_byte(path, 4200);
    job.keep_last = 1;
    saved_save saves[] = { { 4, 0.2 }, { 5, 0.3 } };
    power_fails(&job, saves, 2);
}

/* The only checkpoint there is, whole, is saved again. */
static void over_itself(void **state)
{
    (void)state;
    saved_job job = { .folder = live, .size = 1, .keep_last = 1 };
    saved_save save = { 3, NAN };
    assert_ok(saved_run(&job, &save, 1, NULL));
    power_fails(&job, &save, 1);
}

int main(void)
{
    ls__log_set_level(LS__LOG_ERROR); /* thousands of warnings are expected */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fresh_run, setup, teardown),
        cmocka_unit_test_setup_teardown(two_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(over_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(over_itself, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
