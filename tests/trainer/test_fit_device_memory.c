/* Memory of a GPU that a fit takes, on simulated ones: what is predicted before the first step is what
 * there is in use at most, wherever the training state lies and however gradients are exchanged. */
#include "helper_command.h"

#include <stdlib.h>

/* Bytes at most; as the simulation counts, which knows nothing of plans. */
static double fit(const char *name, const char *line)
{
    command c;
    command_run(
        &c, 0, "prog_fit",
        "--json --runs-dir %s --name %s --threads-per-device 1 --batch-size 512 --max-steps 3 %s",
        runs_folder, name, line);
    json_t *d = command_document(&c);
    double peak = number_at(d, "device_peak_bytes", NULL);
    double predicted = number_at(d, "device_predicted_bytes", NULL);
    print_message("%s: predicted %.0f, measured %.0f\n", line, predicted, peak);
    assert_true(peak > 0);
    assert_true(predicted > 0.99 * peak && predicted < 1.01 * peak);
    assert_non_null(strstr(c.err, " for activations"));
    assert_null(strstr(c.err, " 0.0 MB for activations"));
    json_decref(d);
    command_free(&c);
    return peak;
}

static void the_prediction(void **state)
{
    (void)state;
    double one = fit("one", "--devices sim:1");
    fit("two", "--devices sim:2");
    fit("tree", "--devices sim:2 --deterministic");
    assert_true(fit("half", "--devices sim:1 --precision bf16-mixed") != one);
    assert_int_equal(setenv("LOCKSTEP_GPU_STATE", "host", 1), 0);
    assert_true(fit("host", "--devices sim:1") < one);
    unsetenv("LOCKSTEP_GPU_STATE");
}

static void cpus_have_none(void **state)
{
    (void)state;
    command c;
    command_run(&c, 0, "prog_fit", "--json --runs-dir %s --name cpu --max-steps 3 --devices cpu:1",
                runs_folder);
    json_t *d = command_document(&c);
    assert_null(json_object_get(d, "device_peak_bytes"));
    json_decref(d);
    command_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_prediction),
                                        cmocka_unit_test(cpus_have_none) };
    return cmocka_run_group_tests(tests, make_runs_folder, remove_runs_folder);
}
