/* What is here, and what --devices makes of it. */
#include "testing.h"

#include <sys/stat.h>
#include <unistd.h>

#include "device/device.h"

/* A machine with CPUs first, first + 1, ... of which usable are worth planning for. */
static ls__cpus machine(int first, int in_mask, int usable)
{
    ls__cpus cpus = { .in_mask = in_mask, .usable = usable };
    for (int i = 0; i < in_mask; i++) CPU_SET(first + i, &cpus.mask);
    return cpus;
}

static void devices_are_chosen(void **state)
{
    (void)state;
    static const struct {
        int in_mask, usable;
        const char *spec;
        int threads;     /* asked for */
        int count, each; /* expected */
        bool pin;
        const char *text, *hint;
    } cases[] = {
        { 2, 2, "auto", 0, 2, 1, true, "2 CPU devices with 1 thread each", "" },
        { 1, 1, "auto", 0, 1, 1, true, "1 CPU device with 1 thread", "" },
        { 8, 8, "auto", 0, 8, 1, true, "8 CPU devices with 1 thread each", "" },
        { 9, 9, "auto", 0, 8, 1, false, "8 CPU devices with 1 thread each", "" },
        { 64, 64, "auto", 0, 8, 8, true, "8 CPU devices with 8 threads each", "" },
        { 64, 4, "auto", 0, 4, 1, false, "4 CPU devices with 1 thread each", "" },
        { 8, 8, "1", 0, 1, 1, false, "1 CPU device with 1 thread",
          "1 of 8 CPUs in use; --threads-per-device 8 would use more" },
        { 8, 8, "cpu:1", 8, 1, 8, true, "1 CPU device with 8 threads", "" },
        { 64, 64, "cpu:3", 0, 3, 21, false, "3 CPU devices with 21 threads each", "" },
        { 8, 8, "cpu:3", 0, 3, 1, false, "3 CPU devices with 1 thread each",
          "3 of 8 CPUs in use; --threads-per-device 2 would use more" },
        { 4, 2, "cpu:4", 0, 4, 1, false, "4 CPU devices with 1 thread each", "" },
        { 2, 2, "cpu:6", 0, 6, 1, false, "6 CPU devices with 1 thread each", "" },
        { 32, 32, "1024", 0, 1024, 1, false, "1024 CPU devices with 1 thread each", "" },
    };
    const ls__gpu_files none = { .count = 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls__cpus cpus = machine(3, cases[i].in_mask, cases[i].usable);
        ls__device_plan plan;
        assert_ok(ls__devices_plan_with(cases[i].spec, cases[i].threads, &cpus, &none, &plan));
        assert_int_equal(plan.kind, LS__DEVICE_CPU);
        assert_int_equal(plan.count, cases[i].count);
        assert_int_equal(plan.threads, cases[i].each);
        assert_int_equal(plan.pin, cases[i].pin);
        assert_string_equal(plan.text, cases[i].text);
        assert_string_equal(plan.hint, cases[i].hint);
    }
}

static void wrong_devices_say_what_is_here(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        ls_status status;
        const char *text;
    } cases[] = {
        { "10000", LS_ERR_CONFIG,
          "--devices 10000: at most 1024 devices on one machine (usable here: 2)" },
        { "cpu:99999999999999999999", LS_ERR_CONFIG, "at most 1024" },
        { "cpu:65", LS_ERR_CONFIG, "at most 64 devices here, 32 for each usable CPU" },
        { "0", LS_ERR_CONFIG, "at least 1 (usable here: 2)" },
        { "cpu:0", LS_ERR_CONFIG, "at least 1" },
        { "cpu:", LS_ERR_CONFIG, "a whole number behind cpu:" },
        { "cpu:-1", LS_ERR_CONFIG, "a whole number behind cpu:" },
        { "cpu:2x", LS_ERR_CONFIG, "a whole number behind cpu:" },
        { "two", LS_ERR_CONFIG,
          "must be auto, a number of devices, cpu:N, gpu:N, sim:N, or GPUs as gpu@0,2 (usable "
          "here: 2)" },
        { "-1", LS_ERR_CONFIG, "must be auto" },
        { "", LS_ERR_CONFIG, "must be auto" },
        { "gpu", LS_ERR_CONFIG, "must be auto" },
        { "gpu:", LS_ERR_CONFIG, "a whole number behind gpu:" },
        { "gpu:0", LS_ERR_CONFIG, "at least 1" },
        { "gpu:2", LS_ERR_UNSUPPORTED, "no GPU can be used here: is the driver loaded" },
        { "gpu@0*2", LS_ERR_UNSUPPORTED, "no GPU can be used here" },
        { "0,2", LS_ERR_UNSUPPORTED, "no GPU can be used here" },
        { "sim@0", LS_ERR_UNSUPPORTED, "lockstep_sim.so" },
        { "sim:4", LS_ERR_UNSUPPORTED, "lockstep_sim.so" },
        { "sim:x", LS_ERR_CONFIG, "a whole number behind sim:" },
        { "cpu@0,1", LS_ERR_CONFIG, "taskset says which" },
        { "GPU-6e5c41a2", LS_ERR_UNSUPPORTED, "no GPU can be used here" },
    };
    const ls__gpu_files none = { .count = 0 };
    ls__cpus cpus = machine(0, 2, 2);
    ls__device_plan plan;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(ls__devices_plan_with(cases[i].spec, 0, &cpus, &none, &plan), cases[i].status,
                     cases[i].text);
}

static void gpus_are_chosen_where_they_are(void **state)
{
    (void)state;
    static const struct {
        ls__gpu_files gpus;
        const char *spec;
        ls__device_kind kind;
        int count; /* 0 = refused */
        const char *text;
    } cases[] = {
        { { 2, true, true, NULL }, "auto", LS__DEVICE_GPU, 2, "2 GPUs" },
        { { 2, true, true, NULL }, "1", LS__DEVICE_GPU, 1, "1 GPU" },
        { { 2, true, true, NULL }, "gpu:2", LS__DEVICE_GPU, 2, "2 GPUs" },
        { { 2, true, true, NULL }, "cpu:2", LS__DEVICE_CPU, 2, "2 CPU devices with 1 thread each" },
        { { 2, true, true, NULL }, "sim:3", LS__DEVICE_SIM, 3, "3 simulated GPUs" },
        { { 2, true, true, NULL },
          "3",
          LS__DEVICE_GPU,
          0,
          "2 GPUs can be used here; at most so many" },
        { { 1, true, true, NULL }, "gpu:2", LS__DEVICE_GPU, 0, "1 GPU can be used here" },
        { { 2, false, true, NULL },
          "gpu:1",
          LS__DEVICE_GPU,
          0,
          "lockstep_cuda.so is not installed" },
        { { 0, true, true, NULL }, "auto", LS__DEVICE_CPU, 4, "4 CPU devices with 1 thread each" },
        { { 0, true, true, NULL }, "sim:1", LS__DEVICE_SIM, 1, "1 simulated GPU" },
        { { 0, true, true, NULL }, "sim:0", LS__DEVICE_SIM, 0, "at least 1" },
        { { 0, true, true, NULL }, "sim:999", LS__DEVICE_SIM, 0, "at most 128 devices here" },
    };
    ls__cpus cpus = machine(0, 4, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls__device_plan plan;
        ls_status status = ls__devices_plan_with(cases[i].spec, 0, &cpus, &cases[i].gpus, &plan);
        if (cases[i].count == 0) {
            assert_int_not_equal(status, LS_OK);
            assert_non_null(strstr(ls_error_text(), cases[i].text));
            continue;
        }
        assert_ok(status);
        assert_int_equal(plan.kind, cases[i].kind);
        assert_int_equal(plan.count, cases[i].count);
        assert_int_equal(plan.threads, 1);
        assert_string_equal(plan.text, cases[i].text);
        assert_string_equal(plan.note, "");
    }
}

/* A GPU without the plugin is said, unless CPUs were asked for. */
static void gpus_without_the_plugin_are_told(void **state)
{
    (void)state;
    const ls__gpu_files gpus[] = { { 1, false, true, NULL }, { 2, false, true, NULL } };
    ls__cpus cpus = machine(0, 4, 4);
    ls__device_plan plan;
    assert_ok(ls__devices_plan_with("auto", 0, &cpus, &gpus[0], &plan));
    assert_non_null(strstr(plan.note, "1 GPU is here, but lockstep_cuda.so is not installed"));
    assert_ok(ls__devices_plan_with("2", 0, &cpus, &gpus[1], &plan));
    assert_non_null(strstr(plan.note, "2 GPUs are here, but lockstep_cuda.so is not installed"));
    assert_ok(ls__devices_plan_with("cpu:2", 0, &cpus, &gpus[1], &plan));
    assert_string_equal(plan.note, "");
}

/* Devices are files; what CUDA_VISIBLE_DEVICES hides does not count. */
static void gpus_are_counted(void **state)
{
    (void)state;
    static const char *const files[] = { "nvidia0",    "nvidia1",  "nvidia12", "nvidiactl",
                                         "nvidia-uvm", "nvidia0x", "null" };
    static const struct {
        const char *visible;
        int count;
    } cases[] = {
        { NULL, 3 },         { "0,2", 2 },     { "", 0 },       { "-1", 0 },
        { "1", 1 },          { "0,1,2,3", 3 }, { "0,-1,2", 1 }, { "GPU-6e5c41a2", 1 },
        { "NoDevFiles", 0 },
    };
    char root[] = "/tmp/lockstep-gpus-XXXXXX", path[256];
    assert_non_null(mkdtemp(root));
    ls__gpu_files gpus;
    ls__gpu_files_discover(root, &gpus);
    assert_int_equal(gpus.count, 0);
    snprintf(path, sizeof path, "%s/dev", root);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/dev/%s", root, files[i]);
        fclose(fopen(path, "w"));
    }
    assert_false(ls__other_accelerators(root));
    snprintf(path, sizeof path, "%s/dev/kfd", root);
    fclose(fopen(path, "w"));
    assert_true(ls__other_accelerators(root));
    unlink(path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].visible)
            setenv("CUDA_VISIBLE_DEVICES", cases[i].visible, 1);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        ls__gpu_files_discover(root, &gpus);
        assert_int_equal(gpus.count, cases[i].count);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/dev/%s", root, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/dev", root);
    rmdir(path);
    rmdir(root);
}

static void pinned_ranks_divide_the_mask(void **state)
{
    (void)state;
    ls__cpus cpus = { .in_mask = 4, .usable = 4 };
    static const int in_mask[] = { 1, 5, 700, 1023 };
    for (int i = 0; i < 4; i++) CPU_SET(in_mask[i], &cpus.mask);
    ls__device_plan plan;
    assert_ok(ls__devices_plan("cpu:2", 2, &cpus, &plan));
    assert_true(plan.pin);
    for (int rank = 0; rank < 2; rank++) {
        cpu_set_t set;
        ls__device_cpus(&plan, &cpus, rank, &set);
        assert_int_equal(CPU_COUNT(&set), 2);
        assert_true(CPU_ISSET(in_mask[2 * rank], &set) && CPU_ISSET(in_mask[2 * rank + 1], &set));
    }
    assert_ok(ls__devices_plan("cpu:3", 1, &cpus, &plan));
    cpu_set_t set;
    ls__device_cpus(&plan, &cpus, 1, &set);
    assert_true(CPU_EQUAL(&set, &cpus.mask));
}

static void this_machine_is_described(void **state)
{
    (void)state;
    ls__cpus cpus;
    assert_ok(ls__cpus_discover("/", &cpus));
    assert_in_range(cpus.usable, 1, cpus.in_mask);
    assert_int_equal(cpus.in_mask, CPU_COUNT(&cpus.mask));
    assert_true(cpus.memory > 0 && cpus.memory <= cpus.machine_memory);
    assert_true(strlen(cpus.model) > 3);
    assert_non_null(strstr("avx512 avx2 sse2 neon", cpus.isa));

    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&one) == 0; i--)
        if (CPU_ISSET(i, &cpus.mask)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_ok(ls__cpus_discover("/", &cpus));
    assert_int_equal(cpus.in_mask, 1);
    assert_int_equal(cpus.usable, 1);
    assert_true(CPU_EQUAL(&cpus.mask, &one));

    ls__topology topology;
    assert_ok(ls__topology_discover(&cpus, &topology));
    assert_true(topology.cores >= 1 && topology.packages >= 0 && topology.numa_nodes >= 1);
    assert_int_equal(topology.usable_cores, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_chosen),
        cmocka_unit_test(wrong_devices_say_what_is_here),
        cmocka_unit_test(gpus_without_the_plugin_are_told),
        cmocka_unit_test(gpus_are_chosen_where_they_are),
        cmocka_unit_test(gpus_are_counted),
        cmocka_unit_test(pinned_ranks_divide_the_mask),
        cmocka_unit_test(this_machine_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
