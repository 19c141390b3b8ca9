/* Saving on one number of ranks and loading on another; links, retention, what is set aside. */
#include "testing.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "helper_saved.h"
#include "helper_store.h"

static char folder[LS_PATH_MAX];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", fresh_folder("save"));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, folder) == LS_OK ? 0 : -1;
}

static const char *inside(const char *name)
{
    static char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    return path;
}

static bool there(const char *name)
{
    return ls__path_exists(inside(name));
}

static void assert_link(const char *link, const char *target)
{
    char found[256] = "";
    ssize_t n = readlink(inside(link), found, sizeof found - 1);
    found[n > 0 ? n : 0] = '\0';
    assert_string_equal(found, target);
}

static saved_job job_of(int size)
{
    return (saved_job) { .folder = folder, .size = size, .keep_last = -1, .timeout_ms = 20000 };
}

static void assert_whole(const char *name, int64_t step)
{
    assert_ok(ls__checkpoint_verify(inside(name)));
    for (int size = 1; size <= SAVED_RANKS_MAX; size++) {
        const char *differs = saved_check(inside(name), step, size);
        if (differs) fail_msg("%s on %d ranks: %s", name, size, differs);
    }
}

static void every_size(void **state)
{
    (void)state;
    for (int size = 1; size <= SAVED_RANKS_MAX; size++) {
        saved_job job = job_of(size);
        saved_save saves[] = { { 100 * size, NAN }, { 100 * size + 50, NAN } };
        assert_ok(saved_run(&job, saves, 2, NULL));
        char name[64];
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "step-%08d", 100 * size + 50 * i);
            assert_whole(name, 100 * size + 50 * i);
        }
        assert_link("last", name);
    }
    assert_false(there("best"));
}

/* Nothing but checkpoints and links is left, and files have the bytes of one device. */
static void same_files(void **state)
{
    (void)state;
    char first[LS_PATH_MAX];
    char *one, *three;
    size_t n, m;
    saved_job job = job_of(1);
    assert_ok(saved_run(&job, &(saved_save) { 7, NAN }, 1, NULL));
    assert_ok(ls__file_read(inside("step-00000007/optimizer.safetensors"), 1 << 20, &one, &n));
    snprintf(first, sizeof first, "%s", folder);
    teardown(NULL);
    setup(NULL);
    job = job_of(3);
    assert_ok(saved_run(&job, &(saved_save) { 7, NAN }, 1, NULL));
    assert_ok(ls__file_read(inside("step-00000007/optimizer.safetensors"), 1 << 20, &three, &m));
    assert_int_equal(n, m);
    assert_memory_equal(one, three, n);
    free(one);
    free(three);
    char listing[LS_PATH_MAX + 64];
    snprintf(listing, sizeof listing, "test \"$(ls -A %s | tr '\\n' ' ')\" = 'last step-00000007 '",
             folder);
    assert_int_equal(system(listing), 0);
}

static void find_newest(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    json_t *trainer;
    assert_ok(ls__checkpoint_find(inside("nothing"), true, path, &trainer));
    assert_string_equal(path, "");
    assert_null(trainer);
    saved_job job = job_of(2);
    saved_save saves[] = { { 9, NAN }, { 10, NAN }, { 100000000, NAN } };
    assert_ok(saved_run(&job, saves, 3, NULL));
    assert_ok(ls__checkpoint_find(folder, true, path, &trainer));
    assert_string_equal(path, inside("step-100000000"));
    assert_int_equal(json_integer_value(json_object_get(trainer, "step")), 100000000);
    json_decref(trainer);
}

static void retention(void **state)
{
    (void)state;
    saved_job job = job_of(2);
    job.keep_last = 2;
    job.keep_best = 1;
    job.monitor = "val/loss";
    saved_save saves[] = { { 1, 0.5 }, { 2, 0.2 }, { 3, 0.4 }, { 4, NAN }, { 5, 0.2 } };
    assert_ok(saved_run(&job, saves, 5, NULL));
    assert_false(there("step-00000001"));
    assert_true(there("step-00000002"));
    assert_false(there("step-00000003"));
    assert_true(there("step-00000004"));
    assert_true(there("step-00000005"));
    assert_link("last", "step-00000005");
    assert_link("best", "step-00000002"); /* of equals the earlier one */
    assert_whole("step-00000002", 2);
    /* A later process knows the metrics of those that are there. */
    saved_save more[] = { { 6, 0.3 }, { 7, 0.1 }, { 8, 0.9 }, { 9, 0.9 } };
    assert_ok(saved_run(&job, more, 1, NULL));
    assert_link("best", "step-00000002");
    assert_false(there("step-00000004"));
    assert_ok(saved_run(&job, more + 1, 3, NULL));
    assert_link("best", "step-00000007");
    assert_false(there("step-00000002"));
    assert_whole("step-00000007", 7);
    ls__checkpoint_entry *entries;
    int n;
    assert_ok(ls__checkpoint_list(folder, &entries, &n));
    assert_int_equal(n, 3);
    assert_true(entries[0].best && entries[0].step == 7 && entries[0].metric == 0.1);
    assert_string_equal(entries[0].monitor, "val/loss");
    assert_true(entries[2].last && entries[2].step == 9);
    assert_true(entries[2].nbytes > 2 * SAVED_COUNT * 4);
    ls__checkpoint_list_free(entries, n);
}

static void higher(void **state)
{
    (void)state;
    saved_job job = job_of(1);
    job.keep_last = 1;
    job.keep_best = 2;
    job.higher_is_better = true;
    saved_save saves[] = { { 1, 0.5 }, { 2, 0.9 }, { 3, 0.7 }, { 4, 0.1 } };
    assert_ok(saved_run(&job, saves, 4, NULL));
    assert_false(there("step-00000001"));
    assert_true(there("step-00000002"));
    assert_true(there("step-00000003"));
    assert_link("best", "step-00000002");
    /* Of another metric nothing is comparable: the link goes to what there is. */
    job.monitor = "val/accuracy";
    assert_ok(saved_run(&job, &(saved_save) { 5, 0.2 }, 1, NULL));
    assert_link("best", "step-00000005");
}

/* What the link names stays, even for a run that asks for no best one, or for another's. */
static void best_stays(void **state)
{
    (void)state;
    saved_job job = job_of(1);
    job.keep_last = job.keep_best = 1;
    job.monitor = "val/loss";
    saved_save saves[] = { { 1, 0.5 }, { 2, 0.9 }, { 3, NAN }, { 4, NAN } };
    assert_ok(saved_run(&job, saves, 2, NULL));
    job.monitor = "val/accuracy";
    assert_ok(saved_run(&job, saves + 2, 1, NULL));
    assert_link("best", "step-00000001");
    assert_true(there("step-00000001"));
    job.keep_best = 0;
    assert_ok(saved_run(&job, saves + 3, 1, NULL));
    assert_link("best", "step-00000001");
    assert_true(there("step-00000001"));
    assert_false(there("step-00000003"));
}

/* The run went on from step 2: what was later is out of the way, and nothing is lost. */
static void superseded(void **state)
{
    (void)state;
    saved_job job = job_of(2);
    job.keep_best = 1;
    saved_save saves[] = { { 1, 0.9 }, { 2, 0.5 }, { 3, 0.1 }, { 4, 0.2 } };
    assert_ok(saved_run(&job, saves, 4, NULL));
    assert_link("best", "step-00000003");
    job.keep_last = 1;
    assert_ok(saved_run(&job, saves + 1, 1, NULL));
    assert_false(there("step-00000003"));
    assert_false(there("step-00000004"));
    assert_whole("superseded-00000003", 3);
    assert_whole("superseded-00000004", 4);
    assert_link("last", "step-00000002");
    assert_link("best", "step-00000002");
    assert_whole("step-00000002", 2);
}

static void same_step_again(void **state)
{
    (void)state;
    saved_job job = job_of(1);
    saved_save saves[] = { { 5, 1.0 } };
    job.keep_best = 1;
    assert_ok(saved_run(&job, saves, 1, NULL));
    flip_byte(inside("step-00000005/model.safetensors"), 5000);
    job.size = 3;
    assert_ok(saved_run(&job, saves, 1, NULL));
    assert_whole("step-00000005", 5);
    assert_false(there(".step-00000005.old"));
    assert_link("last", "step-00000005");
}

static void leftovers(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    saved_job job = job_of(1);
    saved_save saves[] = { { 1, NAN }, { 2, NAN } };
    assert_ok(saved_run(&job, saves, 2, NULL));
    assert_int_equal(mkdir(inside(".step-00000003.0123.tmp"), 0777), 0);
    assert_int_equal(mkdir(inside(".step-00000000.gone"), 0777), 0);
    assert_int_equal(symlink("step-00000001", inside("last.tmp-77")), 0);
    assert_int_equal(mkdir(inside(".step-00000001.old"), 0777), 0);
    /* Killed between the two renames of a replacement. */
    char from[LS_PATH_MAX];
    snprintf(from, sizeof from, "%s", inside("step-00000002"));
    assert_int_equal(rename(from, inside(".step-00000002.old")), 0);
    assert_ok(ls__checkpoint_find(folder, false, path, NULL));
    assert_string_equal(path, inside("step-00000001"));
    assert_ok(ls__checkpoint_find(folder, true, path, NULL));
    assert_string_equal(path, inside("step-00000002"));
    assert_false(there(".step-00000003.0123.tmp"));
    assert_false(there(".step-00000000.gone"));
    assert_false(there(".step-00000001.old"));
    assert_false(there(".step-00000002.old"));
    assert_false(there("last.tmp-77"));
}

/* A run that goes on from a checkpoint it was told by name never looks for the newest one. */
static void cleans_by_itself(void **state)
{
    (void)state;
    assert_int_equal(mkdir(inside(".step-00000003.0123.tmp"), 0777), 0);
    saved_job job = job_of(2);
    assert_ok(saved_run(&job, &(saved_save) { 1, NAN }, 1, NULL));
    assert_false(there(".step-00000003.0123.tmp"));
}

static void silent_rank(void **state)
{
    (void)state;
    saved_job job = job_of(3);
    job.timeout_ms = 200;
    job.silent = 2;
    double before = ls__now();
    ls_status status;
    assert_fails(saved_run(&job, &(saved_save) { 1, NAN }, 1, &status), LS_ERR_TIMEOUT, "rank 2");
    assert_int_equal(status, LS_ERR_TIMEOUT);
    assert_true(ls__now() - before < 10);
    assert_false(there("step-00000001"));
    assert_false(there("last"));
}

/* A run saves thousands of times; a store holds a bounded number of names. */
static void names_are_forgotten(void **state)
{
    (void)state;
    test_store *all = test_store_create(2);
    ls__store *store = test_store_client(all, 0);
    char *value;
    size_t nbytes;
    for (int i = 0; i < (1 << 18) + 10; i++) {
        char key[64];
        snprintf(key, sizeof key, "name/%d", i);
        assert_ok(ls__store_set(store, key, "x", 1));
        assert_ok(ls__store_delete(test_store_client(all, 1), key));
    }
    assert_ok(ls__store_delete(store, "never set"));
    assert_ok(ls__store_set(store, "kept", "x", 1));
    assert_fails(ls__store_get(store, "name/3", 1, &value, &nbytes), LS_ERR_TIMEOUT, "name/3");
    assert_ok(ls__store_get(store, "kept", 1, &value, &nbytes));
    ls__free(value);
    test_store_destroy(all);
}

static void two_names(void **state)
{
    (void)state;
    ls__saved_tensor twice[] = { { .name = "a", .rank = 1, .shape = { 4 } },
                                 { .name = "b", .rank = 1, .shape = { 4 }, .offset = 4 },
                                 { .name = "a", .rank = 1, .shape = { 4 }, .offset = 8 } };
    ls__checkpointer_options options = {
        .folder = folder, .size = 1, .tensors = twice, .ntensors = 3
    };
    ls__checkpointer *c;
    assert_fails(ls__checkpointer_create(&options, &c), LS_ERR_ARG, "\"a\"");
    assert_null(c);
}

/* Ranges that do not cover the tensors are our own bug, and never a checkpoint. */
static void uncovered(void **state)
{
    (void)state;
    ls__saved_tensor tensor = { .name = "a", .rank = 1, .shape = { 64 } };
    ls__saved_range range = { .count = 48 };
    ls__checkpointer_options options = { .folder = folder,
                                         .size = 1,
                                         .tensors = &tensor,
                                         .ntensors = 1,
                                         .ranges = &range,
                                         .nranges = 1 };
    ls__checkpointer *c;
    float params[64] = { 0 };
    json_t *trainer = json_object();
    assert_ok(ls__checkpointer_create(&options, &c));
    assert_ok(ls__checkpoint_save(c, 1, params, NULL, trainer, NAN));
    assert_fails(ls__checkpoint_wait(c, NULL), LS_ERR_INTERNAL, "gap");
    int64_t newest;
    assert_ok(ls__checkpoint_wait(c, &newest)); /* told once */
    assert_int_equal(newest, -1);
    ls__checkpointer_destroy(c);
    json_decref(trainer);
    assert_false(there("step-00000001"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_size, setup, teardown),
        cmocka_unit_test_setup_teardown(same_files, setup, teardown),
        cmocka_unit_test_setup_teardown(find_newest, setup, teardown),
        cmocka_unit_test_setup_teardown(retention, setup, teardown),
        cmocka_unit_test_setup_teardown(higher, setup, teardown),
        cmocka_unit_test_setup_teardown(best_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(superseded, setup, teardown),
        cmocka_unit_test_setup_teardown(same_step_again, setup, teardown),
        cmocka_unit_test_setup_teardown(leftovers, setup, teardown),
        cmocka_unit_test_setup_teardown(cleans_by_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(silent_rank, setup, teardown),
        cmocka_unit_test(names_are_forgotten),
        cmocka_unit_test_setup_teardown(two_names, setup, teardown),
        cmocka_unit_test_setup_teardown(uncovered, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
