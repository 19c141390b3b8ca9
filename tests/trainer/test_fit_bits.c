/* The promise: the number of devices changes no bit. Whole programs on 1, 2, 3, 4 and 6 devices. */
#include "helper_command.h"

/* Runs on each number of devices and compares with the first. */
static void same_on(const char *devices, const char *format, ...) LS_PRINTF(2, 3);
static void same_on(const char *devices, const char *format, ...)
{
    char line[1024], first[256], other[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char *folder = folder_make();
    for (const char *n = devices; *n; n++) {
        fit_signature(n == devices ? first : other, "--runs-dir %s --devices cpu:%c %s", folder, *n,
                      line);
        if (n != devices && strcmp(first, other) != 0)
            fail_msg("%s\non %c: %s\non %c: %s", line, *devices, first, *n, other);
    }
    folder_remove(folder);
}

static void perceptron(void **state)
{
    (void)state;
    same_on("1234", "--micro-batches 4 --max-steps 20 --seed 7 --model mlp");
    same_on("14", "--micro-batches 4 --max-steps 20 --seed 7 --model mlp --gradient-clip-val 0.5");
}

/* So that the others can fail: another cut has other bits. */
static void another_number_of_micro_batches_is_another_tree(void **state)
{
    (void)state;
    char *folder = folder_make(), four[256], two[256];
    const char *line = "--max-steps 20 --seed 7 --devices cpu:2";
    fit_signature(four, "--runs-dir %s --micro-batches 4 %s", folder, line);
    fit_signature(two, "--runs-dir %s --micro-batches 2 %s", folder, line);
    assert_string_not_equal(four, two);
    folder_remove(folder);
}

static void dropout(void **state)
{
    (void)state;
    same_on("134", "--micro-batches 4 --max-steps 20 --seed 7 --model dropout");
}

static void convolutions(void **state)
{
    (void)state;
    same_on("1234", "--micro-batches 4 --max-steps 15 --seed 7 --model cnn");
    same_on("13", "--micro-batches 4 --max-steps 15 --seed 7 --model cnn --gradient-clip-val 0.3");
}

static void batch_norm(void **state)
{
    (void)state;
    same_on("1234", "--micro-batches 4 --max-steps 15 --seed 7 --model resnet");
    same_on("12", "--micro-batches 4 --max-steps 15 --model resnet --gradient-clip-val 0.3");
}

static void six_micro_batches(void **state)
{
    (void)state;
    same_on("1236", "--micro-batches 6 --max-steps 12 --seed 7 --model resnet");
}

static void whole_epochs_with_short_steps_and_odd_validation(void **state)
{
    (void)state;
    same_on("123", "--micro-batches 3 --samples 205 --val-samples 301 --max-epochs 2 --model mlp "
                   "--optimizer nesterov --schedule cosine --warmup-steps 3");
}

static void fewer_groups_than_devices(void **state)
{
    (void)state;
    /* 12 samples are 3 groups of 4: one of four devices has nothing to compute. */
    same_on("14", "--micro-batches 4 --batch-size 12 --max-steps 8 --model resnet");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perceptron),
        cmocka_unit_test(another_number_of_micro_batches_is_another_tree),
        cmocka_unit_test(dropout),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(batch_norm),
        cmocka_unit_test(six_micro_batches),
        cmocka_unit_test(whole_epochs_with_short_steps_and_odd_validation),
        cmocka_unit_test(fewer_groups_than_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
