/* Damaged checkpoints are named and passed over; loads say what does not fit. */
#include "testing.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "helper_saved.h"

static char folder[LS_PATH_MAX];

static const char *inside(const char *name)
{
    static char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    return path;
}

/* Three checkpoints, of steps 1, 2 and 3. */
static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", fresh_folder("damage"));
    saved_job job = { .folder = folder, .size = 2, .keep_last = -1, .timeout_ms = 20000 };
    saved_save saves[] = { { 1, NAN }, { 2, NAN }, { 3, NAN } };
    return saved_run(&job, saves, 3, NULL) == LS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, folder) == LS_OK ? 0 : -1;
}

/* Step 3 is damaged in a way that the text names; step 2 is found instead, with a warning. */
static void passed_over(const char *file, const char *how)
{
    char path[LS_PATH_MAX];
    json_t *trainer;
    assert_fails(ls__checkpoint_verify(inside("step-00000003")), LS_ERR_DATA, how);
    assert_non_null(strstr(ls_error_text(), file));
    int saved = dup(2), log = open(inside("log"), O_CREAT | O_TRUNC | O_WRONLY, 0666);
    dup2(log, 2);
    ls_status status = ls__checkpoint_find(folder, true, path, &trainer);
    dup2(saved, 2);
    close(saved);
    close(log);
    assert_ok(status);
    assert_string_equal(path, inside("step-00000002"));
    assert_int_equal(json_integer_value(json_object_get(trainer, "step")), 2);
    json_decref(trainer);
    char *text;
    size_t n;
    assert_ok(ls__file_read(inside("log"), 1 << 16, &text, &n));
    if (!strstr(text, "warning: checkpoint passed over: ") || !strstr(text, file) ||
        !strstr(text, how))
        fail_msg("the warning is: %s", text);
    ls__free(text);
}

static void flipped(void **state)
{
    (void)state;
    flip_byte(inside("step-00000003/model.safetensors"), 4096 + 100);
    passed_over("step-00000003/model.safetensors", "the checksum of bytes 4096 to ");
}

static void flipped_header(void **state)
{
    (void)state;
    flip_byte(inside("step-00000003/optimizer.safetensors"), 20);
    passed_over("optimizer.safetensors", "the checksum of bytes 0 to 4096 is wrong");
}

static void flipped_trainer(void **state)
{
    (void)state;
    flip_byte(inside("step-00000003/trainer.json"), 5);
    passed_over("trainer.json", "the checksum of bytes 0 to ");
}

static void truncated(void **state)
{
    (void)state;
    int64_t nbytes = file_bytes(inside("step-00000003/optimizer.safetensors"));
    char how[128];
    snprintf(how, sizeof how, "truncated: it has %lld bytes and should have %lld",
             (long long)nbytes - 1, (long long)nbytes);
    cut_file(inside("step-00000003/optimizer.safetensors"), nbytes - 1);
    passed_over("optimizer.safetensors", how);
}

static void grown(void **state)
{
    (void)state;
    cut_file(inside("step-00000003/model.safetensors"), 1 << 20);
    passed_over("model.safetensors", "too long");
}

static void missing(void **state)
{
    (void)state;
    assert_int_equal(unlink(inside("step-00000003/optimizer.safetensors")), 0);
    passed_over("optimizer.safetensors", "missing");
}

static void no_manifest(void **state)
{
    (void)state;
    assert_int_equal(unlink(inside("step-00000003/manifest.json")), 0);
    passed_over("manifest.json", "missing");
}

static void torn_manifest(void **state)
{
    (void)state;
    cut_file(inside("step-00000003/manifest.json"), 200);
    passed_over("manifest.json", "not valid JSON");
}

/* Every bit of the manifest counts, be it in a number, a name or white space between them. */
static void any_byte_of_manifest(void **state)
{
    (void)state;
    const char *path = "step-00000003/manifest.json";
    int64_t nbytes = file_bytes(inside(path));
    int found = 0;
    for (int64_t i = 0; i < nbytes; i++) {
        flip_byte(inside(path), i);
        ls_status status = ls__checkpoint_verify(inside("step-00000003"));
        if (status == LS_OK) fail_msg("byte %lld changed and nobody saw it", (long long)i);
        found += status == LS_ERR_DATA || status == LS_ERR_UNSUPPORTED;
        flip_byte(inside(path), i);
    }
    assert_int_equal(found, nbytes);
    assert_ok(ls__checkpoint_verify(inside("step-00000003")));
}

static void renamed_by_hand(void **state)
{
    (void)state;
    char from[LS_PATH_MAX], path[LS_PATH_MAX];
    snprintf(from, sizeof from, "%s", inside("step-00000001"));
    assert_int_equal(rename(from, inside("step-00000009")), 0);
    assert_fails(ls__checkpoint_verify(inside("step-00000009")), LS_ERR_DATA, "that of step 1");
    assert_ok(ls__checkpoint_find(folder, true, path, NULL));
    assert_string_equal(path, inside("step-00000003"));
}

static void all_damaged(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    for (int step = 1; step <= 3; step++) {
        char name[64];
        snprintf(name, sizeof name, "step-%08d/model.safetensors", step);
        flip_byte(inside(name), 4200);
    }
    assert_fails(ls__checkpoint_find(folder, true, path, NULL), LS_ERR_DATA,
                 "none of its 3 checkpoints can be used");
    assert_string_equal(path, "");
}

/* A damaged newest one does not get in the way of the run that goes on from the one before. */
static void goes_on(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    flip_byte(inside("step-00000003/model.safetensors"), 4200);
    saved_job job = { .folder = folder, .size = 2, .keep_last = 1 };
    assert_ok(saved_run(&job, &(saved_save) { 3, NAN }, 1, NULL));
    assert_ok(ls__checkpoint_find(folder, true, path, NULL));
    assert_string_equal(path, inside("step-00000003"));
    assert_null(saved_check(path, 3, 1));
}

static ls_status load(const ls__saved_tensor *tensors, int n)
{
    float params[SAVED_COUNT];
    ls__saved_range range = { .count = 1 };
    return ls__checkpoint_load(inside("step-00000003"), tensors, n, &range, 1, params, NULL, 0,
                               NULL);
}

static void misfits(void **state)
{
    (void)state;
    ls__saved_tensor tensors[SAVED_TENSORS];
    memcpy(tensors, saved_tensors, sizeof tensors);
    tensors[1].name = "fc9.bias";
    assert_fails(load(tensors, SAVED_TENSORS), LS_ERR_DATA, "no tensor \"fc9.bias\"; it has 5: ");
    tensors[1].name = saved_tensors[1].name;
    tensors[4].shape[1] = 6;
    assert_fails(load(tensors, SAVED_TENSORS), LS_ERR_DATA,
                 "\"fc2.weight\" has shape (5,5,8), the model's is (5,6,8)");
    assert_ok(load(saved_tensors, 2)); /* part of a model, in another order */
    ls__saved_tensor two[] = { saved_tensors[4], saved_tensors[0] };
    assert_ok(load(two, 2));
}

static void weights_file(void **state)
{
    (void)state;
    float params[SAVED_COUNT] = { 0 };
    ls__saved_range ranges[SAVED_COUNT];
    int n = saved_ranges(0, 1, ranges);
    const char *path = inside("step-00000003/model.safetensors");
    assert_ok(
        ls__checkpoint_load(path, saved_tensors, SAVED_TENSORS, ranges, n, params, NULL, 0, NULL));
    assert_true(params[485] == saved_value(3, -1, 485));
    float *states[] = { NULL, NULL };
    assert_fails(ls__checkpoint_load(path, saved_tensors, SAVED_TENSORS, ranges, n, params,
                                     saved_states, 2, states),
                 LS_ERR_ARG, "no optimizer states");
    assert_fails(ls__checkpoint_load(inside("nothing"), saved_tensors, SAVED_TENSORS, ranges, n,
                                     params, NULL, 0, NULL),
                 LS_ERR_IO, "nothing");
}

static void out_of_memory(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    ls_status status = LS_ERR_MEMORY;
    long n = 0;
    while (status != LS_OK) {
        json_t *trainer;
        ls__alloc_fail_at(++n);
        status = ls__checkpoint_find(folder, true, path, &trainer);
        ls__alloc_fail_at(0);
        json_decref(trainer);
        if (status != LS_OK) assert_int_equal(status, LS_ERR_MEMORY);
    }
    assert_string_equal(path, inside("step-00000003"));
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(flipped, setup, teardown),
        cmocka_unit_test_setup_teardown(flipped_header, setup, teardown),
        cmocka_unit_test_setup_teardown(flipped_trainer, setup, teardown),
        cmocka_unit_test_setup_teardown(truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(grown, setup, teardown),
        cmocka_unit_test_setup_teardown(missing, setup, teardown),
        cmocka_unit_test_setup_teardown(no_manifest, setup, teardown),
        cmocka_unit_test_setup_teardown(torn_manifest, setup, teardown),
        cmocka_unit_test_setup_teardown(any_byte_of_manifest, setup, teardown),
        cmocka_unit_test_setup_teardown(renamed_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(all_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(misfits, setup, teardown),
        cmocka_unit_test_setup_teardown(weights_file, setup, teardown),
        cmocka_unit_test_setup_teardown(out_of_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
